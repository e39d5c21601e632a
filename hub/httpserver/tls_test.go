package httpserver_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/hub/httpserver"
	"skerry/syncproto/identity"
)

// certified is a certificate that signed itself, and its key, as files have them.
type certified struct {
	leaf      *x509.Certificate
	key       *ecdsa.PrivateKey
	cert, pem []byte
}

func mustCertify(tb testing.TB, name string, end time.Time) certified {
	tb.Helper()
	key, err := identity.NewKey()
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name, "*." + name}, IPAddresses: []net.IP{net.IPv4(192, 0, 2, 1)}, NotBefore: end.Add(-100 * 24 * time.Hour), NotAfter: end,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		tb.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	text, err := identity.EncodeKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	return certified{leaf, key, identity.EncodeCert(der), text}
}

func mustWrite(tb testing.TB, path string, text []byte) {
	tb.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		tb.Fatal(err)
	}
}

// logText is what a log has, for several goroutines.
type logText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logText) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// tlsServer is an HTTPS server in virtual time whose handler says who the client is.
type tlsServer struct {
	*httpserver.TLS
	cfg    httpserver.TLSConfig
	log    logText
	dialed chan net.Conn
}

// serveTLSInBubble runs f beside a server with the files of a pair, and with client authorities where clients is not nil.
func serveTLSInBubble(t *testing.T, clients []byte, f func(t *testing.T, s *tlsServer)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := &tlsServer{dialed: make(chan net.Conn)}
		s.cfg = httpserver.TLSConfig{
			CertFile: filepath.Join(dir, "hub.pem"), KeyFile: filepath.Join(dir, "hub-key.pem"), Now: time.Now,
			Log: slog.New(slog.NewTextHandler(&s.log, nil)),
		}
		s.mustReplace(t, "first", time.Hour)
		if clients != nil {
			s.cfg.ClientCAFile = filepath.Join(dir, "clients.pem")
			mustWrite(t, s.cfg.ClientCAFile, clients)
		}
		var err error
		if s.TLS, err = httpserver.OpenTLS(s.cfg); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		server := httpserver.New(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			name := "nobody"
			if len(r.TLS.VerifiedChains) > 0 {
				name = r.TLS.PeerCertificates[0].Subject.CommonName
			}
			io.WriteString(w, name)
		}), slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})))
		p := &pipeListener{dialed: s.dialed, closed: make(chan struct{})}
		ended := make(chan error, 2)
		go func() { ended <- server.Serve(s.Listener(httpserver.Listen(p))) }()
		go func() { ended <- s.Run(ctx) }()
		f(t, s)
		cancel()
		if err := errors.Join(server.Close(), <-ended, <-ended); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// mustReplace replaces the files by a new certificate, which ends after a time.
func (s *tlsServer) mustReplace(tb testing.TB, name string, left time.Duration) {
	tb.Helper()
	c := mustCertify(tb, name, time.Now().Add(left))
	mustWrite(tb, s.cfg.CertFile, c.cert)
	mustWrite(tb, s.cfg.KeyFile, c.pem)
}

// ask sends a request on a new connection, or on conn, and returns the certificate of the server and its answer.
func (s *tlsServer) ask(conn *tls.Conn, own ...tls.Certificate) (c *tls.Conn, cert, answer string, err error) {
	if conn == nil {
		mine, its := net.Pipe()
		s.dialed <- its
		// The test looks at the certificate, and does not verify it.
		conn = tls.Client(mine, &tls.Config{InsecureSkipVerify: true, Certificates: own})
	}
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return nil, "", "", err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil, "", "", err
	}
	b, err := io.ReadAll(resp.Body)
	return conn, conn.ConnectionState().PeerCertificates[0].Subject.CommonName, string(b), err
}

// mustShow checks which certificate the server shows after the next read of the files.
func (s *tlsServer) mustShow(t *testing.T, want string) *tls.Conn {
	t.Helper()
	time.Sleep(httpserver.ReloadInterval + time.Second)
	conn, cert, _, err := s.ask(nil)
	if err != nil || cert != want {
		t.Errorf("it shows %q, %v, want %q", cert, err, want)
	}
	return conn
}

func TestFilesAreReadAgain(t *testing.T) {
	serveTLSInBubble(t, nil, func(t *testing.T, s *tlsServer) {
		open := s.mustShow(t, "first")
		defer open.Close()
		s.mustReplace(t, "second", time.Hour)
		s.mustShow(t, "second").Close()
		if _, cert, answer, err := s.ask(open); err != nil || cert != "first" || answer != "nobody" {
			t.Errorf("the open connection: %q, %q, %v", cert, answer, err)
		}
		if !s.IsFor("second") || s.IsFor("first") || s.IsFor("*.second") || s.IsFor("a.second") || !s.IsFor("192.0.2.1") || s.NeedsClientCertificate() {
			t.Error("it is for other hosts than its certificate")
		}
		third := mustCertify(t, "third", time.Now().Add(time.Hour))
		mustWrite(t, s.cfg.CertFile, third.cert)
		s.mustShow(t, "second").Close()
		if strings.Contains(s.log.String(), "level=ERROR") {
			t.Errorf("it complains of a pair of which one file is new:\n%s", &s.log)
		}
		mustWrite(t, s.cfg.KeyFile, third.pem)
		s.mustShow(t, "third").Close()
		if got := s.End(); !got.Equal(third.leaf.NotAfter) {
			t.Errorf("it ends %s", got)
		}
	})
}

func TestBadFilesChangeNothing(t *testing.T) {
	for name, bad := range map[string]struct {
		change func(t *testing.T, s *tlsServer)
		says   string
	}{
		"another key":        {func(t *testing.T, s *tlsServer) { mustWrite(t, s.cfg.KeyFile, mustCertify(t, "x", time.Now()).pem) }, "does not match"},
		"no certificate":     {func(t *testing.T, s *tlsServer) { mustWrite(t, s.cfg.CertFile, []byte("hello")) }, "use the HTTPS certificate"},
		"no file":            {func(t *testing.T, s *tlsServer) { os.Remove(s.cfg.CertFile) }, "no such file"},
		"a file without end": {func(t *testing.T, s *tlsServer) { mustWrite(t, s.cfg.CertFile, make([]byte, 2<<20)) }, "more than"},
		"one that has ended": {func(t *testing.T, s *tlsServer) { s.mustReplace(t, "old", -time.Hour) }, "it ended at"},
	} {
		t.Run(name, func(t *testing.T) {
			serveTLSInBubble(t, nil, func(t *testing.T, s *tlsServer) {
				bad.change(t, s)
				for range 5 {
					s.mustShow(t, "first").Close()
				}
				if log := s.log.String(); strings.Count(log, "level=ERROR") != 1 || !strings.Contains(log, bad.says) {
					t.Errorf("it says:\n%s", log)
				}
				s.mustReplace(t, "good", time.Hour)
				s.mustShow(t, "good").Close()
			})
		})
	}
}

// A client's certificate is taken where its authority is in the file. Without one the handler is asked all the same.
func TestClientCertificates(t *testing.T) {
	known, other := mustCertify(t, "known", time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC)), mustCertify(t, "other", time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC))
	pair := func(c certified) tls.Certificate {
		return tls.Certificate{Certificate: [][]byte{c.leaf.Raw}, PrivateKey: c.key, Leaf: c.leaf}
	}
	serveTLSInBubble(t, known.cert, func(t *testing.T, s *tlsServer) {
		mustAnswer := func(want string, own ...tls.Certificate) {
			t.Helper()
			conn, _, answer, err := s.ask(nil, own...)
			if err != nil || answer != want {
				t.Errorf("it takes the client for %q, %v, want %q", answer, err, want)
				return
			}
			conn.Close()
		}
		if time.Now().After(known.leaf.NotAfter) || !s.NeedsClientCertificate() {
			t.Fatal("the test is wrong")
		}
		mustAnswer("nobody")
		mustAnswer("known", pair(known))
		mustAnswer("nobody", pair(other)) // which the client does not show to this server
		mustWrite(t, s.cfg.ClientCAFile, other.cert)
		time.Sleep(httpserver.ReloadInterval + time.Second)
		mustAnswer("nobody", pair(known))
		mustAnswer("other", pair(other))
	})
}

func TestFilesThatAreRefused(t *testing.T) {
	dir := t.TempDir()
	good, now := mustCertify(t, "good", time.Now().Add(time.Hour)), time.Now
	path := func(name string, text []byte) string {
		file := filepath.Join(dir, name)
		mustWrite(t, file, text)
		return file
	}
	cert, key := path("cert", good.cert), path("key", good.pem)
	for name, try := range map[string]struct {
		cfg  httpserver.TLSConfig
		says string
	}{
		"no file":        {httpserver.TLSConfig{CertFile: filepath.Join(dir, "none"), KeyFile: key}, "read the HTTPS certificate"},
		"no key":         {httpserver.TLSConfig{CertFile: cert, KeyFile: filepath.Join(dir, "none")}, "read the key of the HTTPS certificate"},
		"swapped":        {httpserver.TLSConfig{CertFile: key, KeyFile: cert}, "use the HTTPS certificate " + key},
		"no authorities": {httpserver.TLSConfig{CertFile: cert, KeyFile: key, ClientCAFile: key}, "no certificate in PEM"},
	} {
		try.cfg.Now, try.cfg.Log = now, slog.New(slog.DiscardHandler)
		if _, err := httpserver.OpenTLS(try.cfg); fleet.CodeOf(err) != fleet.CodeInvalid || !strings.Contains(err.Error(), try.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A hub whose certificate has ended does its other work.
	if _, err := httpserver.OpenTLS(httpserver.TLSConfig{CertFile: cert, KeyFile: key, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return now().Add(9 * time.Hour) }}); err != nil {
		t.Error(err)
	}
}

// Files of any content are a certificate with its key, or refused.
func FuzzOpenTLS(f *testing.F) {
	good := mustCertify(f, "good", time.Now().Add(time.Hour))
	f.Add(good.cert, good.pem, good.cert)
	f.Add(good.pem, good.cert, []byte{})
	f.Add(good.cert[:60], good.pem[:60], good.cert[:60])
	dir := f.TempDir()
	cfg := httpserver.TLSConfig{
		CertFile: filepath.Join(dir, "cert"), KeyFile: filepath.Join(dir, "key"), ClientCAFile: filepath.Join(dir, "ca"),
		Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}
	f.Fuzz(func(t *testing.T, cert, key, clients []byte) {
		mustWrite(t, cfg.CertFile, cert)
		mustWrite(t, cfg.KeyFile, key)
		mustWrite(t, cfg.ClientCAFile, clients)
		if s, err := httpserver.OpenTLS(cfg); err == nil && s.End().IsZero() {
			t.Fatal("taken without a certificate")
		}
	})
}
