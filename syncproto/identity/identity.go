package identity

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
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
	CA   *x509.Certificate // signed Cert
	Key  *ecdsa.PrivateKey
	// Also are other CAs of the cluster whose hubs are accepted.
	Also []*x509.Certificate
	// Bridges are shown behind Cert. They lead a peer that knows only an older CA from there to CA.
	Bridges []*x509.Certificate
	// Former are, for a hub, CAs whose hubs are not accepted any more. Their edges may still be.
	Former []*x509.Certificate
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

// Load returns an identity of PEM texts, as EncodeCert and EncodeKey write them, with the checks of New. cas has one or
// more CAs. The one that signed the certificate becomes CA, and the others Also.
func Load(cert, key, cas []byte) (*Identity, error) {
	k, err := DecodeKey(key)
	if err != nil {
		return nil, err
	}
	certDER, err := decodePEM(cert, pemCert)
	if err != nil {
		return nil, err
	}
	all, err := DecodeCerts(cas)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, errors.New("parse the CA's certificate: the file has none")
	}
	return newOfOneCA(certDER, all, k)
}

// newOfOneCA returns an identity whose certificate (DER) one of the CAs signed, with the checks of New.
func newOfOneCA(cert []byte, cas []*x509.Certificate, key *ecdsa.PrivateKey) (id *Identity, err error) {
	for i := range cas {
		own, failed := New(cert, cas[i].Raw, key)
		if failed == nil {
			return own.WithAuthorities(cas), nil
		}
		if err == nil {
			err = failed
		}
	}
	return nil, err
}

// WithAuthorities returns a copy of the identity that accepts hubs of the given CAs, and of its own.
func (id *Identity) WithAuthorities(cas []*x509.Certificate) *Identity {
	next := *id
	next.Also = nil
	for _, ca := range cas {
		if !ca.Equal(id.CA) {
			next.Also = append(next.Also, ca)
		}
	}
	return &next
}

// Authorities returns the CAs whose hubs the identity accepts, its own first.
func (id *Identity) Authorities() []*x509.Certificate {
	return append([]*x509.Certificate{id.CA}, id.Also...)
}

// CAID returns a short name of a CA, made of its certificate.
func CAID(ca []byte) string {
	sum := sha256.Sum256(ca)
	return hex.EncodeToString(sum[:8])
}

// CAIDs returns the names of CAs in the order of the alphabet, separated by commas.
func CAIDs(cas []*x509.Certificate) string {
	ids := make([]string, len(cas))
	for i, ca := range cas {
		ids[i] = CAID(ca.Raw)
	}
	slices.Sort(ids)
	return strings.Join(ids, ",")
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
			return Check{CA: id.CA, Also: id.Also, Role: fleet.RoleHub, Now: now()}.Verify(cs.PeerCertificates)
		},
	}
}

// Certificate returns the certificate and its key for crypto/tls, with the bridges and without the CA.
func (id *Identity) Certificate() tls.Certificate {
	chain := [][]byte{id.Cert.Raw}
	for _, bridge := range id.Bridges {
		chain = append(chain, bridge.Raw)
	}
	return tls.Certificate{Certificate: chain, PrivateKey: id.Key, Leaf: id.Cert}
}

// EnrollTLS returns the TLS configuration to enrol: it shows no certificate, and accepts a hub whose chain contains
// the CA that the token names. Another hub is refused with CodeCAMismatch.
func (t Token) EnrollTLS(now func() time.Time) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, // of host names; VerifyConnection does the rest
		VerifyConnection: func(cs tls.ConnectionState) error {
			if named := t.FindCA(cs.PeerCertificates); named != nil {
				return Check{CA: named, Role: fleet.RoleHub, Now: now()}.Verify(cs.PeerCertificates)
			}
			return fleet.Errorf(fleet.CodeCAMismatch, "check the hub: its CA is not the one that the join token names").
				WithHint("the token belongs to another cluster, or another machine pretends to be the hub")
		},
	}
}

// FindCA returns the certificate in a chain that the token names, or nil.
func (t Token) FindCA(chain []*x509.Certificate) *x509.Certificate {
	for _, c := range chain {
		if t.Names(c.Raw) {
			return c
		}
	}
	return nil
}

// Check has the requirements on a peer's certificate.
type Check struct {
	CA   *x509.Certificate
	Also []*x509.Certificate // other CAs that are as good
	Role string              // "": any
	// Now is compared with the end of the certificate's validity only. Zero: validity is not checked.
	Now time.Time
}

// MaxCAs bounds the CAs of a cluster, and so the bridges between the oldest and the newest one.
const MaxCAs = 8

// maxChain bounds a peer's chain: its certificate, the bridges, and the CAs themselves.
const maxChain = 2 * MaxCAs

// Verify checks a peer's chain, which begins with its own certificate: known role, not expired, signed by a CA or by a
// CA to which other certificates of the chain lead. The end of a CA that this side knows does not count: hubs replace
// it, and an edge that was away meanwhile knows no other. Errors are *fleet.Error with CodeForbidden.
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
	if c.hasEnded(leaf) {
		return fleet.Errorf(fleet.CodeForbidden, "check a peer: the certificate of %s ended at %s", leaf.Subject.CommonName, leaf.NotAfter.UTC().Format(time.RFC3339)).
			WithHint("a hub renews its certificate while it runs: check its log and its clock")
	}
	if err := c.verifyPath(leaf, chain[1:]); err != nil {
		return fleet.Errorf(fleet.CodeForbidden, "check a peer: the certificate of %s: %v", leaf.Subject.CommonName, err).
			WithHint("it belongs to another cluster")
	}
	return nil
}

// Vouches reports whether a CA of the check signed ca, or certificates of a chain lead from there to it.
func (c Check) Vouches(ca *x509.Certificate, chain []*x509.Certificate) bool {
	if slices.ContainsFunc(append([]*x509.Certificate{c.CA}, c.Also...), ca.Equal) {
		return true
	}
	for _, bridge := range chain {
		if ca.IsCA && bridge.IsCA && bytes.Equal(bridge.RawSubjectPublicKeyInfo, ca.RawSubjectPublicKeyInfo) &&
			bytes.Equal(bridge.RawSubject, ca.RawSubject) && c.verifyPath(bridge, chain) == nil {
			return true
		}
	}
	return false
}

// verifyPath returns an error unless the certificates between lead from cert to a CA.
func (c Check) verifyPath(cert *x509.Certificate, between []*x509.Certificate) error {
	if len(between) > maxChain {
		return fmt.Errorf("a chain of %d certificates, more than %d", len(between), maxChain)
	}
	between = slices.Clone(between)
	for {
		if len(cert.UnhandledCriticalExtensions) > 0 {
			return errors.New("it has a critical extension that is not known")
		}
		if isSignedBy(cert, c.CA) || slices.ContainsFunc(c.Also, func(ca *x509.Certificate) bool { return isSignedBy(cert, ca) }) {
			return nil
		}
		i := slices.IndexFunc(between, func(bridge *x509.Certificate) bool {
			return !bytes.Equal(bridge.RawSubject, bridge.RawIssuer) && !c.hasEnded(bridge) && isSignedBy(cert, bridge)
		})
		if i < 0 {
			return errors.New("certificate signed by unknown authority")
		}
		cert = between[i]
		between = slices.Delete(between, i, i+1)
	}
}

// isSignedBy reports whether a CA signed a certificate.
func isSignedBy(cert, ca *x509.Certificate) bool {
	return ca.IsCA && bytes.Equal(cert.RawIssuer, ca.RawSubject) && cert.CheckSignatureFrom(ca) == nil
}

// hasEnded reports whether Now is after the end of a certificate. A certificate is never "not yet valid".
func (c Check) hasEnded(cert *x509.Certificate) bool { return c.Now.After(cert.NotAfter) }

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

// EncodeCerts returns certificates as PEM, one after the other.
func EncodeCerts(certs []*x509.Certificate) []byte {
	var text []byte
	for _, cert := range certs {
		text = append(text, EncodeCert(cert.Raw)...)
	}
	return text
}

// DecodeCerts reverses EncodeCerts. It fails for more certificates than those of MaxCAs CAs.
func DecodeCerts(text []byte) (certs []*x509.Certificate, err error) {
	for {
		b, rest := pem.Decode(text)
		switch {
		case b == nil:
			return certs, nil
		case b.Type != pemCert:
			return nil, fmt.Errorf("parse PEM: a %s among the certificates", strings.ToLower(b.Type))
		case len(certs) == maxChain:
			return nil, fmt.Errorf("parse PEM: more than %d certificates", maxChain)
		}
		cert, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parse a certificate: %w", err)
		}
		certs, text = append(certs, cert), rest
	}
}

// ParseCAs parses the CAs (DER) that a hub names. It fails if there is none, if there are more than MaxCAs, or if one is
// no CA.
func ParseCAs(ders [][]byte) ([]*x509.Certificate, error) {
	if len(ders) == 0 || len(ders) > MaxCAs {
		return nil, fleet.Errorf(fleet.CodeInvalid, "read the cluster's CAs: %d of them, and not 1 to %d", len(ders), MaxCAs)
	}
	var cas []*x509.Certificate
	for _, der := range ders {
		ca, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fleet.Errorf(fleet.CodeInvalid, "read the cluster's CAs: %w", err)
		}
		if !ca.IsCA || !isSignedBy(ca, ca) {
			return nil, fleet.Errorf(fleet.CodeInvalid, "read the cluster's CAs: %q is not a CA", ca.Subject.CommonName)
		}
		cas = append(cas, ca)
	}
	return cas, nil
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
