package httpserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"skerry/fleet"
)

const (
	// ReloadInterval is the time between two reads of the files of a TLS.
	ReloadInterval = 10 * time.Second
	// maxPEM bounds a file of certificates, in bytes: the largest bundles of authorities have about 250 KB.
	maxPEM = 1 << 20
)

// TLSConfig of a TLS. The files are PEM.
type TLSConfig struct {
	// CertFile and KeyFile have the certificate with its chain, and its key; "": Issued returns them for each handshake.
	CertFile, KeyFile string
	Issued            func(context.Context) (*tls.Certificate, error)
	// ClientCAFile has the authorities of clients' certificates; "": clients are not asked for one. A handshake without
	// a certificate succeeds, so that the handler can refuse the request and say why.
	ClientCAFile string
	Now          func() time.Time
	Log          *slog.Logger
}

// TLS is the certificate of an HTTPS server. It reads its files again when they change; connections stay open.
type TLS struct {
	cfg     TLSConfig
	current atomic.Pointer[credentials]

	// Of the goroutine that runs Run.
	problem string // of the last read
	said    bool   // problem is in the log
}

// credentials are the content of the files, and what it means.
type credentials struct {
	cert, key, clients []byte
	leaf               *x509.Certificate // nil: the certificate is issued
	server             *tls.Config
}

// OpenTLS reads the files. It fails if they cannot be used, but not if the certificate has ended: that is logged.
func OpenTLS(cfg TLSConfig) (*TLS, error) {
	t := &TLS{cfg: cfg}
	c, err := t.readFiles()
	if err == nil {
		err = c.parseFiles(cfg)
	}
	if err != nil {
		return nil, err
	}
	if err := c.checkEnd(cfg.Now()); err != nil {
		cfg.Log.Error("clients will not connect", "error", err)
	}
	t.current.Store(&c)
	return t, nil
}

// Run reads the files every ReloadInterval, until ctx ends. Files that cannot be used change nothing, and are logged
// once.
func (t *TLS) Run(ctx context.Context) error {
	tick := time.NewTicker(ReloadInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			t.reloadFiles()
		}
	}
}

// reloadFiles uses the files if they have changed and are in order. A problem is logged at the second read that finds
// it: a certificate and its key are replaced one after the other.
func (t *TLS) reloadFiles() {
	err := t.useChangedFiles()
	switch {
	case err == nil:
		t.problem, t.said = "", false
	case err.Error() != t.problem:
		t.problem, t.said = err.Error(), false
	case !t.said:
		t.said = true
		t.cfg.Log.Error("changed HTTPS certificate not usable, the one before it stays in use", "error", err)
	}
}

func (t *TLS) useChangedFiles() error {
	old := t.current.Load()
	c, err := t.readFiles()
	if err != nil || bytes.Equal(c.cert, old.cert) && bytes.Equal(c.key, old.key) && bytes.Equal(c.clients, old.clients) {
		return err
	}
	if err := c.parseFiles(t.cfg); err != nil {
		return err
	}
	if err := c.checkEnd(t.cfg.Now()); err != nil && !bytes.Equal(c.cert, old.cert) {
		return err
	}
	t.current.Store(&c)
	t.cfg.Log.Info("HTTPS certificate reloaded", "until", t.End())
	return nil
}

// Listener returns a listener whose connections speak TLS.
func (t *TLS) Listener(l net.Listener) net.Listener {
	return tls.NewListener(l, &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return t.current.Load().server, nil },
	})
}

// NeedsClientCertificate reports whether the handler must refuse requests of clients without a verified certificate.
func (t *TLS) NeedsClientCertificate() bool { return t.cfg.ClientCAFile != "" }

// IsFor reports whether the certificate of the files names a host: a name in lower case, or an IP address. A name with
// a wildcard is for hosts of others, too, and names none.
func (t *TLS) IsFor(host string) bool {
	leaf := t.current.Load().leaf
	if leaf == nil || strings.Contains(host, "*") {
		return false
	}
	ip := net.ParseIP(host)
	return slices.ContainsFunc(leaf.DNSNames, func(name string) bool { return strings.ToLower(name) == host }) ||
		ip != nil && slices.ContainsFunc(leaf.IPAddresses, ip.Equal)
}

// End returns the end of the certificate; zero: none has been issued yet.
func (t *TLS) End() time.Time {
	leaf := t.current.Load().leaf
	if leaf == nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // there is nothing to wait for
		cert, err := t.cfg.Issued(ctx)
		if err != nil {
			return time.Time{}
		}
		leaf = cert.Leaf
	}
	return leaf.NotAfter
}

func (t *TLS) readFiles() (c credentials, err error) {
	for _, f := range []struct {
		what, path string
		text       *[]byte
	}{
		{"HTTPS certificate", t.cfg.CertFile, &c.cert}, {"key of the HTTPS certificate", t.cfg.KeyFile, &c.key},
		{"authorities of client certificates", t.cfg.ClientCAFile, &c.clients},
	} {
		if f.path == "" {
			continue
		}
		if *f.text, err = readPEM(f.path); err != nil {
			return credentials{}, fleet.Errorf(fleet.CodeInvalid, "read the %s: %w", f.what, err)
		}
	}
	return c, nil
}

func readPEM(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxPEM+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if len(text) > maxPEM {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxPEM)
	}
	return text, nil
}

// parseFiles makes the TLS configuration of the files' content.
func (c *credentials) parseFiles(cfg TLSConfig) error {
	c.server = &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"}, // the bounds of slow clients are of connections
		// A resumed session would keep a client's certificate whose authority was removed.
		SessionTicketsDisabled: true,
	}
	if cfg.CertFile == "" {
		c.server.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) { return cfg.Issued(hello.Context()) }
	} else {
		pair, err := tls.X509KeyPair(c.cert, c.key)
		if err != nil {
			return fleet.Errorf(fleet.CodeInvalid, "use the HTTPS certificate %s with the key %s: %w", cfg.CertFile, cfg.KeyFile, err).
				WithHint("the certificate's file has the hub's own certificate first, then those of the authorities between; both files are PEM")
		}
		c.leaf, c.server.Certificates = pair.Leaf, []tls.Certificate{pair}
	}
	if cfg.ClientCAFile == "" {
		return nil
	}
	c.server.ClientCAs, c.server.ClientAuth = x509.NewCertPool(), tls.VerifyClientCertIfGiven
	if !c.server.ClientCAs.AppendCertsFromPEM(c.clients) {
		return fleet.Errorf(fleet.CodeInvalid, "read the authorities of client certificates: %s has no certificate in PEM", cfg.ClientCAFile)
	}
	return nil
}

// checkEnd returns an error if the certificate of the files has ended.
func (c *credentials) checkEnd(now time.Time) error {
	if c.leaf == nil || !now.After(c.leaf.NotAfter) {
		return nil
	}
	return fleet.Errorf(fleet.CodeInvalid, "use the HTTPS certificate of %s: it ended at %s", c.leaf.Subject, c.leaf.NotAfter.UTC().Format(time.RFC3339)).
		WithHint("replace the files; the hub reads them again by itself")
}
