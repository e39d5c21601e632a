package transporttest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"testing"
	"time"
)

// CA signs certificates for a test.
type CA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

// lifetime of every certificate of a test.
const lifetime = 10 * 365 * 24 * time.Hour

// NewCA makes a CA, valid from now on.
func NewCA(tb testing.TB) *CA {
	tb.Helper()
	key := mustKey(tb)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(lifetime),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	cert := mustSign(tb, template, template, key, key)
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &CA{cert: cert, key: key, pool: pool}
}

// Server is the accepting side's configuration, for a common name such as
// "hub:h1". It asks for a client's certificate.
func (ca *CA) Server(tb testing.TB, name string) *tls.Config {
	tb.Helper()
	return &tls.Config{Certificates: []tls.Certificate{ca.issueCert(tb, name)}, ClientCAs: ca.pool, ClientAuth: tls.RequireAndVerifyClientCert}
}

// Client is the dialing side's configuration, for a common name such as
// "edge:n1".
func (ca *CA) Client(tb testing.TB, name string) *tls.Config {
	tb.Helper()
	return &tls.Config{Certificates: []tls.Certificate{ca.issueCert(tb, name)}, RootCAs: ca.pool, ServerName: serverName}
}

// serverName is in every certificate: tests check the CA, not names.
const serverName = "skerry.test"

func (ca *CA) issueCert(tb testing.TB, name string) tls.Certificate {
	tb.Helper()
	key := mustKey(tb)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{serverName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(lifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	cert := mustSign(tb, template, ca.cert, key, ca.key)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
}

func mustKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatalf("make a key: %v", err)
	}
	return key
}

func mustSign(tb testing.TB, template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) *x509.Certificate {
	tb.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		tb.Fatalf("sign a certificate: %v", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatalf("parse a certificate: %v", err)
	}
	return cert
}
