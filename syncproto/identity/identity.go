package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	"skerry/fleet"
)

// Identity is a private key with the certificate that a cluster issued for it, and the cluster's CA. It is
// immutable.
type Identity struct {
	Role string // fleet.RoleHub or RoleEdge
	Name string // a hub's name, an edge's node id
	Cert *x509.Certificate
	CA   *x509.Certificate
	Key  *ecdsa.PrivateKey
}

// New returns an identity of a certificate (DER) and a CA (DER). It fails unless the CA signed the certificate, for
// this key, and the common name has a known role. It does not check the validity in time.
func New(cert, ca []byte, key *ecdsa.PrivateKey) (*Identity, error) {
	id := &Identity{Key: key}
	var err error
	if id.Cert, err = x509.ParseCertificate(cert); err != nil {
		return nil, fmt.Errorf("parse a certificate: %w", err)
	}
	if id.CA, err = x509.ParseCertificate(ca); err != nil {
		return nil, fmt.Errorf("parse the CA's certificate: %w", err)
	}
	if !key.PublicKey.Equal(id.Cert.PublicKey) {
		return nil, errors.New("check a certificate: it is not for this key")
	}
	var ok bool
	if id.Role, id.Name, ok = Subject(id.Cert); !ok {
		return nil, fmt.Errorf("check a certificate: common name %q names no role", id.Cert.Subject.CommonName)
	}
	if err := (Check{CA: id.CA, Role: id.Role}).Verify([]*x509.Certificate{id.Cert}); err != nil {
		return nil, err
	}
	return id, nil
}

// Load returns an identity of PEM texts, as EncodeCert and EncodeKey write them, with the checks of New.
func Load(cert, key, ca []byte) (*Identity, error) {
	k, err := DecodeKey(key)
	if err != nil {
		return nil, err
	}
	certDER, err := decodePEM(cert, pemCert)
	if err != nil {
		return nil, err
	}
	caDER, err := decodePEM(ca, pemCert)
	if err != nil {
		return nil, err
	}
	return New(certDER, caDER, k)
}

// ClientTLS returns the TLS configuration to dial a hub: it shows the certificate, and accepts a hub of the same
// CA. now returns the latest time that is known to be past (see the package's comment).
func (id *Identity) ClientTLS(now func() time.Time) *tls.Config {
	cert := id.Certificate()
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &cert, nil
		},
		InsecureSkipVerify: true, // of host names; VerifyConnection does the rest
		VerifyConnection: func(cs tls.ConnectionState) error {
			return Check{CA: id.CA, Role: fleet.RoleHub, Now: now()}.Verify(cs.PeerCertificates)
		},
	}
}

// Certificate returns the certificate and its key for crypto/tls, without the CA.
func (id *Identity) Certificate() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{id.Cert.Raw}, PrivateKey: id.Key, Leaf: id.Cert}
}

// EnrollTLS returns the TLS configuration to enrol: it shows no certificate, and accepts a hub whose chain contains
// the CA that the token names. Another hub is refused with CodeCAMismatch.
func (t Token) EnrollTLS(now func() time.Time) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, // of host names; VerifyConnection does the rest
		VerifyConnection: func(cs tls.ConnectionState) error {
			for _, c := range cs.PeerCertificates {
				if t.Names(c.Raw) {
					return Check{CA: c, Role: fleet.RoleHub, Now: now()}.Verify(cs.PeerCertificates)
				}
			}
			return fleet.Errorf(fleet.CodeCAMismatch, "check the hub: its CA is not the one that the join token names").
				WithHint("the token belongs to another cluster, or another machine pretends to be the hub")
		},
	}
}

// Check has the requirements on a peer's certificate.
type Check struct {
	CA   *x509.Certificate
	Role string // "": any
	// Now is compared with the end of the certificate's validity only. Zero: validity is not checked.
	Now time.Time
}

// Verify checks a peer's chain, which begins with its own certificate: known role, signed by the CA, not expired.
// Errors are *fleet.Error with CodeForbidden.
func (c Check) Verify(chain []*x509.Certificate) error {
	if len(chain) == 0 {
		return fleet.Errorf(fleet.CodeForbidden, "check a peer: it showed no certificate").
			WithHint("it has to enrol with a join token first")
	}
	leaf := chain[0]
	role, _, ok := Subject(leaf)
	if !ok || c.Role != "" && role != c.Role {
		return fleet.Errorf(fleet.CodeForbidden, "check a peer: %q is not in the role %q", leaf.Subject.CommonName, c.Role)
	}
	roots := x509.NewCertPool()
	roots.AddCert(c.CA)
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots:       roots,
		CurrentTime: c.verificationTime(leaf),
		KeyUsages:   []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		return fleet.Errorf(fleet.CodeForbidden, "check a peer: the certificate of %s ended at %s", leaf.Subject.CommonName, leaf.NotAfter.UTC().Format(time.RFC3339)).
			WithHint("a hub renews its certificate while it runs: check its log and its clock")
	}
	if err != nil {
		return fleet.Errorf(fleet.CodeForbidden, "check a peer: the certificate of %s: %v", leaf.Subject.CommonName, err).
			WithHint("it belongs to another cluster")
	}
	return nil
}

// verificationTime returns Now, or the beginning of the leaf's validity if that is later: a certificate is never
// "not yet valid".
func (c Check) verificationTime(leaf *x509.Certificate) time.Time {
	if c.Now.Before(leaf.NotBefore) {
		return leaf.NotBefore
	}
	return c.Now
}

// CommonName returns the common name of a certificate: "ROLE:NAME".
func CommonName(role, name string) string { return role + ":" + name }

// Subject returns the role and the name in a certificate's common name; ok is false if the role is unknown or the
// name is not valid for it.
func Subject(cert *x509.Certificate) (role, name string, ok bool) {
	role, name, ok = strings.Cut(cert.Subject.CommonName, ":")
	return role, name, ok && ValidName(role, name)
}

// ValidName reports whether name may be in a certificate of the role. An edge's name is a UUID, its node id. A
// hub's has 1 to 64 letters, digits, '.', '_' and '-', and begins and ends with a letter or digit.
func ValidName(role, name string) bool {
	switch role {
	case fleet.RoleEdge:
		return validUUID(name)
	case fleet.RoleHub:
		return validHubName(name)
	}
	return false
}

// NewKey generates a private key: ECDSA P-256, which secure elements support, too.
func NewKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("draw a key: %w", err)
	}
	return key, nil
}

// NewRequest returns a certificate request (PKCS #10, DER) for a role and a name, signed with key. It fails with
// CodeInvalid if the name is not valid for the role.
func NewRequest(key crypto.Signer, role, name string) ([]byte, error) {
	if !ValidName(role, name) {
		return nil, fleet.Errorf(fleet.CodeInvalid, "ask for a certificate: %q is not a valid name of a %s", name, role)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: CommonName(role, name)},
	}, key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate request: %w", err)
	}
	return csr, nil
}

const (
	pemCert = "CERTIFICATE"
	pemKey  = "PRIVATE KEY"
)

// EncodeCert returns a certificate (DER) as PEM.
func EncodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: pemCert, Bytes: der})
}

// EncodeKey returns a private key as PEM (PKCS #8).
func EncodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: der}), nil
}

// DecodeKey is the inverse of EncodeKey.
func DecodeKey(text []byte) (*ecdsa.PrivateKey, error) {
	der, err := decodePEM(text, pemKey)
	if err != nil {
		return nil, err
	}
	k, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("parse a key: %w", err)
	}
	key, ok := k.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("parse a key: it is not an ECDSA key")
	}
	return key, nil
}

// decodePEM returns the content of the first PEM block, which must be of the kind. The rest of the text is ignored.
func decodePEM(text []byte, kind string) ([]byte, error) {
	b, _ := pem.Decode(text)
	if b == nil || b.Type != kind {
		return nil, fmt.Errorf("parse PEM: no %s in it", strings.ToLower(kind))
	}
	return b.Bytes, nil
}

// validUUID reports whether s is a lower-case UUID with dashes.
func validUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i, r := range s {
		switch i {
		case 8, 13, 18, 23:
			if r != '-' {
				return false
			}
		default:
			if (r < '0' || r > '9') && (r < 'a' || r > 'f') {
				return false
			}
		}
	}
	return true
}

// validHubName reports whether s may be a hub's name (see ValidName).
func validHubName(s string) bool {
	if len(s) == 0 || len(s) > 64 {
		return false
	}
	for i, r := range s {
		alnum := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		inner := r == '.' || r == '_' || r == '-'
		if !alnum && (!inner || i == 0 || i == len(s)-1) {
			return false
		}
	}
	return true
}
