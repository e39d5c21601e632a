package pki

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto/identity"
)

// Validity of certificates that the CA signs.
const (
	CAValidity   = 10 * 365 * 24 * time.Hour
	CertValidity = 365 * 24 * time.Hour // of a hub's; of an edge's where nothing else is set
	// EdgeGrace is the default of how long an edge's certificate is accepted after its end: an edge
	// may be away for long, and needs a connection to renew it.
	EdgeGrace = 365 * 24 * time.Hour

	// backdate is how long before its issue a certificate is valid, since the clocks of hubs differ.
	// It is at most an eighth of the validity, so that renewal is hardly earlier.
	backdate = time.Hour
	// GossipKeyBytes makes memberlist use AES-256.
	GossipKeyBytes = 32
	// maxRequest bounds a certificate request: ours have about 250 bytes.
	maxRequest = 4 << 10
)

// earliestClock is a time in the past: a clock that shows an earlier one is wrong.
var earliestClock = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// CheckClock returns an error if a hub's clock must be wrong: it shows a time before the validity of
// the cluster's CA (nil: not known yet), or after it. Certificates that a hub signs and the expiry of
// join tokens depend on its clock. Edges' clocks are not checked.
func CheckClock(now time.Time, ca *x509.Certificate) error {
	after := earliestClock
	if ca != nil && ca.NotBefore.After(after) {
		after = ca.NotBefore
	}
	if now.Before(after) {
		return fleet.Errorf(fleet.CodeInvalid, "check the clock: this machine's shows %s, but it is later than %s", formatTime(now), formatTime(after)).
			WithHint("set the clock of this machine, then start again: certificates and join tokens depend on it")
	}
	if ca != nil && now.After(ca.NotAfter) {
		return fleet.Errorf(fleet.CodeInvalid, "check the clock: this machine's shows %s, but the cluster's CA ends at %s", formatTime(now), formatTime(ca.NotAfter)).
			WithHint("set the clock of this machine, then start again; if the clock is right, the CA has expired: it has to be replaced before, with skerry operator ca rotate")
	}
	return nil
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// NewCluster makes the identity of a new cluster: id, CA, gossip key. It is
// refused while the clock is obviously wrong, since the CA's validity starts now.
func NewCluster(region string, now time.Time) (state.Cluster, error) {
	if err := CheckClock(now, nil); err != nil {
		return state.Cluster{}, err
	}
	id := fleet.NewUUID(nil)
	key, err := identity.NewKey()
	if err != nil {
		return state.Cluster{}, err
	}
	template, err := newCATemplate("Skerry CA "+fleet.Short(id), now)
	if err != nil {
		return state.Cluster{}, err
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return state.Cluster{}, fmt.Errorf("make a CA: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return state.Cluster{}, fmt.Errorf("encode the CA's key: %w", err)
	}
	gossip := make([]byte, GossipKeyBytes)
	rand.Read(gossip) // never fails
	return state.Cluster{
		ID: id, Region: region, CACert: cert, CAKey: keyDER, GossipKey: gossip, CreatedAt: now.UnixNano(),
	}, nil
}

// newCATemplate returns the certificate of a new CA, still without its key.
func newCATemplate(name string, now time.Time) (*x509.Certificate, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	return &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(CAValidity),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}, nil
}

// NewToken draws a join token, and returns it with the record that the cluster keeps: its id and the
// hash of its secret. ttl 0: it never expires.
func NewToken(c state.Cluster, roles []string, ttl time.Duration, now time.Time) (identity.Token, state.JoinToken) {
	t := identity.NewToken(c.CACert)
	kept := state.JoinToken{ID: t.ID, Hash: identity.HashSecret(t.Secret), Roles: roles, CreatedAt: now.UnixNano()}
	if ttl > 0 {
		kept.ExpiresAt = now.Add(ttl).UnixNano()
	}
	return t, kept
}

// Authority is a CA of a cluster. It is immutable.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority reads the CA of a cluster.
func NewAuthority(c state.Cluster) (*Authority, error) {
	return parseAuthority(c.CACert, c.CAKey)
}

func parseAuthority(certDER, keyDER []byte) (*Authority, error) {
	cert, err := x509.ParseCertificate(certDER)
	if err != nil {
		return nil, fmt.Errorf("parse the CA's certificate: %w", err)
	}
	k, err := x509.ParsePKCS8PrivateKey(keyDER)
	if err != nil {
		return nil, fmt.Errorf("parse the CA's key: %w", err)
	}
	key, ok := k.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("parse the CA's key: it is a %T, not ECDSA", k)
	}
	return newAuthority(cert, key)
}

func newAuthority(cert *x509.Certificate, key *ecdsa.PrivateKey) (*Authority, error) {
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, fmt.Errorf("check %s: the key is not for its certificate", cert.Subject.CommonName)
	}
	return &Authority{cert: cert, key: key}, nil
}

// Issue draws a key and signs a certificate for it, for the first hub, which has no hub to enrol with.
func (a *Authority) Issue(role, name string, now time.Time) (*identity.Identity, state.Certificate, error) {
	key, err := identity.NewKey()
	if err != nil {
		return nil, state.Certificate{}, err
	}
	csr, err := identity.NewRequest(key, role, name)
	if err != nil {
		return nil, state.Certificate{}, err
	}
	cert, record, err := a.Sign(Request{Role: role, Name: name, CSR: csr}, now)
	if err != nil {
		return nil, state.Certificate{}, err
	}
	id, err := identity.New(cert, a.cert.Raw, key)
	return id, record, err
}

// Request asks for a certificate.
type Request struct {
	Role, Name string
	// CSR (PKCS #10, DER) has the key. Its common name must be that of role and name.
	CSR      []byte
	Validity time.Duration // 0: CertValidity
}

// Renew returns a hub's identity with a new certificate for its old key. It fails if the clock is
// obviously wrong.
func (a *Authority) Renew(id *identity.Identity, now time.Time) (*identity.Identity, error) {
	if err := CheckClock(now, a.cert); err != nil {
		return nil, err
	}
	csr, err := identity.NewRequest(id.Key, id.Role, id.Name)
	if err != nil {
		return nil, err
	}
	cert, _, err := a.Sign(Request{Role: id.Role, Name: id.Name, CSR: csr}, now)
	if err != nil {
		return nil, err
	}
	return id.Renewed(cert)
}

// Sign returns a certificate (DER) for a request, and the record that the cluster keeps of it.
// CodeInvalid: the request is malformed, or its signature, name or key is wrong.
func (a *Authority) Sign(req Request, now time.Time) ([]byte, state.Certificate, error) {
	key, err := checkRequest(req.CSR, req.Role, req.Name)
	if err != nil {
		return nil, state.Certificate{}, err
	}
	number, err := newSerial()
	if err != nil {
		return nil, state.Certificate{}, err
	}
	validity := cmp.Or(req.Validity, CertValidity)
	template := &x509.Certificate{
		SerialNumber: number,
		Subject:      pkix.Name{CommonName: identity.CommonName(req.Role, req.Name)},
		DNSNames:     []string{req.Name + "." + req.Role + ".skerry"},
		NotBefore:    now.Add(-min(backdate, validity/8)),
		NotAfter:     now.Add(validity),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if req.Role == fleet.RoleHub {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, a.cert, key, a.key)
	if err != nil {
		return nil, state.Certificate{}, fmt.Errorf("sign a certificate for %s: %w", template.Subject.CommonName, err)
	}
	return cert, Record(template), nil
}

// Record returns the record of a certificate that the cluster keeps.
func Record(cert *x509.Certificate) state.Certificate {
	return state.Certificate{Serial: serial(cert), Subject: cert.Subject.CommonName, NotAfter: cert.NotAfter.UnixNano()}
}

// requestedKey returns the SHA-256 of the public key in a certificate request.
func requestedKey(csr []byte) ([]byte, error) {
	if len(csr) > maxRequest {
		return nil, fleet.Errorf(fleet.CodeInvalid, "parse a certificate request: %d bytes, more than %d", len(csr), maxRequest)
	}
	req, err := x509.ParseCertificateRequest(csr)
	if err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "parse a certificate request: %w", err)
	}
	sum := sha256.Sum256(req.RawSubjectPublicKeyInfo)
	return sum[:], nil
}

// checkRequest returns the public key of a certificate request, or CodeInvalid: see Sign.
func checkRequest(csr []byte, role, name string) (*ecdsa.PublicKey, error) {
	invalid := func(format string, args ...any) error {
		return fleet.Errorf(fleet.CodeInvalid, "check a certificate request: "+format, args...)
	}
	if !identity.ValidName(role, name) {
		return nil, invalid("%q is not a valid name of a role %q", name, role)
	}
	if len(csr) > maxRequest {
		return nil, invalid("%d bytes, more than %d", len(csr), maxRequest)
	}
	req, err := x509.ParseCertificateRequest(csr)
	if err != nil {
		return nil, invalid("%v", err)
	}
	if err := req.CheckSignature(); err != nil {
		return nil, invalid("%v", err)
	}
	if want := identity.CommonName(role, name); req.Subject.CommonName != want {
		return nil, invalid("it is for %q, not for %q", req.Subject.CommonName, want)
	}
	key, ok := req.PublicKey.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, invalid("its key is not ECDSA P-256")
	}
	return key, nil
}

// serial returns a certificate's serial number in the form that the state has it in.
func serial(cert *x509.Certificate) string { return cert.SerialNumber.Text(16) }

func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("draw a serial number: %w", err)
	}
	return serial, nil
}
