package pki

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"slices"
	"time"

	"skerry/fleet"
	"skerry/syncproto/identity"
)

// HTTPValidity is the validity of a certificate that the CA signs for a hub's HTTP API.
const HTTPValidity = 30 * 24 * time.Hour

// httpWait is how long a TLS handshake waits for the first certificate: a hub that has just joined reads the CA's key
// from the state first.
const httpWait = 5 * time.Second

// SignHTTP returns a new key with a certificate for the names (host names and IP addresses) of a hub's HTTP API. chain
// (DER) follows it. The CA is part of that, so that a client that knows only the CA's hash finds it there.
func (a *Authority) SignHTTP(hub string, names []string, now time.Time, chain [][]byte) (*tls.Certificate, error) {
	if err := CheckClock(now, a.cert); err != nil {
		return nil, err
	}
	key, err := identity.NewKey()
	if err != nil {
		return nil, err
	}
	number, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: number,
		Subject:      pkix.Name{CommonName: "http:" + hub}, // no role of identity: no edge and no hub takes it for a peer's
		NotBefore:    now.Add(-backdate),
		NotAfter:     now.Add(HTTPValidity),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate for the HTTP API: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate for the HTTP API: %w", err)
	}
	return &tls.Certificate{Certificate: append([][]byte{der}, chain...), PrivateKey: key, Leaf: leaf}, nil
}

// renewHTTP signs another certificate for the HTTP API if the names or the CAs have changed or the certificate is due.
// It is kept in memory alone: a hub that starts signs a new one.
func (c *OwnCertificate) renewHTTP(now time.Time) error {
	if c.cfg.HTTPNames == nil || c.web == nil {
		return nil
	}
	names := slices.Sorted(slices.Values(c.cfg.HTTPNames()))
	old := c.http.Load()
	if old != nil && slices.Equal(names, c.httpNames) && slices.EqualFunc(old.Certificate[1:], c.webChain, bytes.Equal) {
		last := !old.Leaf.NotAfter.Before(c.web.cert.NotAfter) // no certificate outlasts the CA
		if last || now.Before(identity.RenewAt(old.Leaf)) {
			return nil
		}
	}
	cert, err := c.web.SignHTTP(c.Identity().Name, names, now, c.webChain)
	if err != nil {
		return err
	}
	c.httpNames = names
	c.http.Store(cert)
	if old == nil {
		close(c.firstHTTP)
	}
	c.cfg.Log.Info("HTTPS certificate issued", "names", names, "until", cert.Leaf.NotAfter)
	return nil
}

// HTTPCertificate returns the newest certificate for the HTTP API. It waits a moment for the first one.
func (c *OwnCertificate) HTTPCertificate(ctx context.Context) (*tls.Certificate, error) {
	if cert := c.http.Load(); cert != nil {
		return cert, nil
	}
	wait, cancel := context.WithTimeout(ctx, httpWait)
	defer cancel()
	select {
	case <-c.firstHTTP:
		return c.http.Load(), nil
	case <-wait.Done():
		return nil, fleet.Errorf(fleet.CodeUnavailable, "serve HTTPS: this hub does not have the key of the cluster's CA yet")
	}
}
