package client

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"skerry/fleet"
)

// newTLS makes the TLS configuration of a Config.
func (cfg Config) newTLS() (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: cfg.ServerName}
	if cfg.CACert != nil {
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(cfg.CACert) {
			return nil, fleet.Errorf(fleet.CodeInvalid, "read the CA certificate of the hub: there is no certificate in PEM").
				WithHint("the CA of a cluster is identity/ca.pem in each hub's data directory")
		}
	}
	if cfg.ClientCert == nil && cfg.ClientKey == nil {
		return t, nil
	}
	if cfg.ClientCert == nil || cfg.ClientKey == nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "read the client certificate: it and its key have to be given together").
			WithHint("give --client-cert and --client-key")
	}
	pair, err := tls.X509KeyPair(cfg.ClientCert, cfg.ClientKey)
	if err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "read the client certificate: %w", err).
			WithHint("the certificate and its key are files in PEM that belong together")
	}
	if time.Now().After(pair.Leaf.NotAfter) {
		return nil, fleet.Errorf(fleet.CodeCertExpiry, "read the client certificate of %s: it ended at %s", pair.Leaf.Subject, utc(pair.Leaf.NotAfter)).
			WithHint("get another certificate from whoever gave you this one")
	}
	t.Certificates = []tls.Certificate{pair}
	return t, nil
}

// CAHash is the SHA-256 digest of a CA's certificate (DER), by which a client knows the right CA.
type CAHash [sha256.Size]byte

// ParseCAHash parses 64 hexadecimal digits. Colons between them, and "sha256:" before them, do not count.
func ParseCAHash(text string) (CAHash, error) {
	digits := strings.ReplaceAll(strings.TrimPrefix(strings.ToLower(strings.TrimSpace(text)), "sha256:"), ":", "")
	b, err := hex.DecodeString(digits)
	if err != nil || len(b) != sha256.Size {
		return CAHash{}, fleet.Errorf(fleet.CodeInvalid, "read the hash of a CA: %q is not 64 hexadecimal digits", text).
			WithHint("a hub with --http-tls writes it when it starts; openssl x509 -noout -fingerprint -sha256 -in ca.pem does, too")
	}
	return CAHash(b), nil
}

// HashCA returns the hash of the certificate in a text (PEM); false: there is none, or more than one.
func HashCA(text []byte) (CAHash, bool) {
	block, rest := pem.Decode(text)
	if block == nil || block.Type != pemCertificate {
		return CAHash{}, false
	}
	other, _ := pem.Decode(rest)
	return sha256.Sum256(block.Bytes), other == nil
}

const pemCertificate = "CERTIFICATE"

// String returns the hash as ParseCAHash reads it.
func (h CAHash) String() string { return "sha256:" + hex.EncodeToString(h[:]) }

// FetchCA returns the CA certificate (PEM) with a hash, as the hub of a Config shows it beside its own certificate. It
// fails unless the hub's certificate is of this CA, and for the hub's name. It sends no request.
func FetchCA(ctx context.Context, cfg Config, hash CAHash) ([]byte, error) {
	base, err := parseAddr(cfg.Addr)
	if err != nil {
		return nil, err
	}
	if base.Scheme != "https" {
		return nil, fleet.Errorf(fleet.CodeInvalid, "fetch the CA of %s: this is no address of HTTPS", base).WithHint("write it as https://%s", base.Host)
	}
	name := cfg.ServerName
	if name == "" {
		name = base.Hostname()
	}
	var ca *x509.Certificate
	cfg.CACert, cfg.ClientCert, cfg.ClientKey, cfg.Token = nil, nil, nil, ""
	c := newClient(cfg, base, &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: name,
		InsecureSkipVerify: true, // VerifyConnection does it: the CA is known by its hash
		VerifyConnection: func(cs tls.ConnectionState) (err error) {
			ca, err = findCA(cs.PeerCertificates, hash, name)
			return err
		},
	})
	transport := c.http.Transport.(*http.Transport)
	raw, err := transport.DialContext(ctx, "tcp", hostPort(base))
	if err != nil {
		return nil, c.unreachableError(ctx, "its CA", err)
	}
	defer raw.Close()
	if err := tls.Client(raw, transport.TLSClientConfig).HandshakeContext(ctx); err != nil {
		return nil, c.unreachableError(ctx, "its CA", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: ca.Raw}), nil
}

// findCA returns the certificate with a hash in a chain, if it is the CA of the first one, and that is for a name.
func findCA(chain []*x509.Certificate, hash CAHash, name string) (*x509.Certificate, error) {
	between := x509.NewCertPool()
	for _, c := range chain {
		between.AddCert(c)
	}
	for _, c := range chain {
		if sha256.Sum256(c.Raw) != hash || !c.IsCA {
			continue
		}
		roots := x509.NewCertPool()
		roots.AddCert(c)
		_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, DNSName: name})
		return c, err
	}
	return nil, fleet.Errorf(fleet.CodeCAMismatch, "check the hub: it does not show the CA with the hash %s", hash).
		WithHint("the hash is of another cluster, or another machine pretends to be the hub; a hub with a certificate of its own shows the CA only if its file has it: name the CA with --ca-cert then")
}

// hostPort returns the host and port of a URL.
func hostPort(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	return net.JoinHostPort(u.Hostname(), map[string]string{"https": "443", "http": "80"}[u.Scheme])
}

// tlsError explains why a connection failed if TLS is the reason; nil: it is not.
func (c *Client) tlsError(err error) *fleet.Error {
	var (
		own       *fleet.Error
		unknown   x509.UnknownAuthorityError
		otherName x509.HostnameError
		invalid   x509.CertificateInvalidError
		other     *tls.CertificateVerificationError
		remote    *net.OpError
	)
	refuse := func(format string, args ...any) *fleet.Error {
		return fleet.Errorf(fleet.CodeForbidden, "check the hub at %s: "+format, append([]any{c.base}, args...)...)
	}
	switch {
	case errors.As(err, &own):
		return own
	case errors.Is(err, http.ErrSchemeMismatch) || errors.As(err, new(tls.RecordHeaderError)):
		return fleet.Errorf(fleet.CodeInvalid, "ask the hub at %s: it does not serve HTTPS", c.base).WithHint("write its address as http://%s", c.base.Host)
	case errors.As(err, &unknown):
		if c.ownCA {
			return refuse("its certificate is not of the CA that you trust for it").
				WithHint("it is a hub of another cluster, or another machine pretends to be the hub; the CA is identity/ca.pem in each hub's data directory")
		}
		return refuse("its certificate is of a CA that this machine does not know").
			WithHint("name the CA with --ca-cert or SKERRY_CACERT, or once with skerry context add NAME %s --ca-hash HASH; it is identity/ca.pem in each hub's data directory", c.base)
	case errors.As(err, &otherName):
		return refuse("its certificate is for %s, and not for %s", certifiedNames(otherName.Certificate), otherName.Host).
			WithHint("write one of these names in the address, or in --tls-server-name; with --http-tls the hub gets further names by --http-host")
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return refuse("its certificate is valid from %s until %s, and this machine's clock shows %s", utc(invalid.Cert.NotBefore), utc(invalid.Cert.NotAfter), utc(time.Now())).
			WithHint("set the clock if it is wrong; otherwise replace the files of --http-tls-cert on the hub")
	case errors.As(err, &other):
		return refuse("%v", other.Err)
	case errors.As(err, &remote) && remote.Op == "remote error":
		return refuse("it ended the TLS handshake: %v", remote.Err).
			WithHint("it may ask for a client certificate of another CA than that of --client-cert")
	}
	return nil
}

// certifiedNames lists the names that a certificate is for.
func certifiedNames(cert *x509.Certificate) string {
	names := cert.DNSNames
	for _, ip := range cert.IPAddresses {
		names = append(names, ip.String())
	}
	if len(names) == 0 {
		return "no name"
	}
	return strings.Join(names, ", ")
}

func utc(t time.Time) string { return t.UTC().Format(time.RFC3339) }
