package client_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"skerry/client"
	"skerry/fleet"
)

// authority is a CA of tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func mustAuthority(tb testing.TB) authority {
	tb.Helper()
	return mustSign(tb, authority{}, x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(time.Hour)})
}

// mustSign makes a certificate of an authority, or one that signs itself where that is empty.
func mustSign(tb testing.TB, by authority, template x509.Certificate) authority {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template.SerialNumber, template.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: "test"}
	if by.cert == nil {
		by = authority{&template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, by.cert, &key.PublicKey, by.key)
	if err != nil {
		tb.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return authority{cert, key}
}

func (a authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func (a authority) mustKeyPEM(tb testing.TB) []byte {
	tb.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		tb.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// mustServeTLS serves HTTPS with a certificate of the authority, for the names, with the chain behind it.
func (a authority) mustServeTLS(tb testing.TB, h http.HandlerFunc, template x509.Certificate, clients *x509.CertPool) *httptest.Server {
	tb.Helper()
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	leaf := mustSign(tb, a, template)
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{leaf.cert.Raw, a.cert.Raw}, PrivateKey: leaf.key}}}
	if clients != nil {
		server.TLS.ClientAuth, server.TLS.ClientCAs = tls.RequireAndVerifyClientCert, clients
	}
	server.StartTLS()
	tb.Cleanup(server.Close)
	return server
}

// lasting is a certificate for 127.0.0.1 that has not ended.
func lasting() x509.Certificate {
	return x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"hub.example"}, NotAfter: time.Now().Add(time.Hour)}
}

func answerEmptyList(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "[]") }

// An error of TLS between a client and a hub says what to do.
func TestTLSErrorsHelp(t *testing.T) {
	ca, other := mustAuthority(t), mustAuthority(t)
	ended := lasting()
	ended.NotBefore, ended.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	good, old := ca.mustServeTLS(t, answerEmptyList, lasting(), nil), ca.mustServeTLS(t, answerEmptyList, ended, nil)
	clear := httptest.NewServer(http.HandlerFunc(answerEmptyList))
	t.Cleanup(clear.Close)
	host := strings.TrimPrefix(good.URL, "https://")
	for name, try := range map[string]struct {
		cfg        client.Config
		says, hint string
		code       fleet.Code
	}{
		"the right CA":         {cfg: client.Config{Addr: good.URL, CACert: ca.pem()}},
		"another of its names": {cfg: client.Config{Addr: good.URL, CACert: ca.pem(), ServerName: "hub.example"}},
		"HTTP to HTTPS":        {client.Config{Addr: "http://" + host}, "ask the hub at " + host + ": it serves HTTPS alone", "https://" + host, fleet.CodeInvalid},
		"HTTPS to HTTP":        {client.Config{Addr: strings.Replace(clear.URL, "http", "https", 1)}, "does not serve HTTPS", "http://127", fleet.CodeInvalid},
		"no CA":                {client.Config{Addr: good.URL}, "of a CA that this machine does not know", "--ca-cert or SKERRY_CACERT", fleet.CodeForbidden},
		"another CA":           {client.Config{Addr: good.URL, CACert: other.pem()}, "not of the CA that you trust", "another cluster", fleet.CodeForbidden},
		"another name":         {client.Config{Addr: good.URL, CACert: ca.pem(), ServerName: "x.example"}, "is for hub.example, 127.0.0.1, and not for x.example", "--http-host", fleet.CodeForbidden},
		"it has ended":         {client.Config{Addr: old.URL, CACert: ca.pem()}, "valid from", "clock", fleet.CodeForbidden},
		"no PEM":               {client.Config{Addr: good.URL, CACert: []byte("x")}, "no certificate in PEM", "ca.pem", fleet.CodeInvalid},
		"a key alone":          {client.Config{Addr: good.URL, ClientKey: []byte("x")}, "given together", "--client-cert", fleet.CodeInvalid},
		"no client pair":       {client.Config{Addr: good.URL, ClientCert: ca.pem(), ClientKey: other.mustKeyPEM(t)}, "read the client certificate", "belong together", fleet.CodeInvalid},
		"a token of two lines": {client.Config{Addr: good.URL, Token: "top\nsecret"}, "read the token", "SKERRY_TOKEN", fleet.CodeTokenBad},
	} {
		c, err := client.New(try.cfg)
		if err == nil {
			_, err = c.Jobs(t.Context(), client.List{})
		}
		if try.says == "" && err == nil {
			continue
		}
		e := fleet.AsError(err)
		if e == nil || e.Code != try.code || !strings.Contains(e.Message, try.says) || !strings.Contains(e.Hint, try.hint) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A client that is refused without a token reads where one comes from. The hub's own hints stay.
func TestRefusalsWithoutAToken(t *testing.T) {
	for name, try := range map[string]struct{ text, hubsHint, token, hint string }{
		"no token":        {text: "Permission denied", hint: "SKERRY_TOKEN"},
		"a token":         {text: "Permission denied", token: "t"},
		"another refusal": {text: "refuse a request", hubsHint: "ask localhost", hint: "ask localhost"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Skerry-Code", "forbidden")
			w.Header().Set("X-Skerry-Hint", try.hubsHint)
			w.WriteHeader(http.StatusForbidden)
			io.WriteString(w, try.text)
		}))
		t.Cleanup(server.Close)
		c, err := client.New(client.Config{Addr: server.URL, Token: try.token})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Jobs(t.Context(), client.List{})
		if e := fleet.AsError(err); e == nil || e.Code != fleet.CodeForbidden || !strings.Contains(e.Hint, try.hint) || try.hint == "" && e.Hint != "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A hub that asks for a certificate gets the client's, for requests, streams and websockets alike; the token
// goes with each, and to nobody else.
func TestCredentialsGoWithEveryRequest(t *testing.T) {
	ca := mustAuthority(t)
	person := mustSign(t, ca, x509.Certificate{NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	clients := x509.NewCertPool()
	clients.AddCert(ca.cert)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("sent elsewhere: %v", r.Header) }))
	t.Cleanup(elsewhere.Close)
	asked := map[string]bool{}
	hub := ca.mustServeTLS(t, func(w http.ResponseWriter, r *http.Request) {
		asked[r.URL.Path] = true
		if r.Header.Get("X-Nomad-Token") != "s3cret" || len(r.TLS.VerifiedChains) == 0 {
			t.Errorf("%s without the credentials: %v", r.URL, r.Header)
		}
		switch {
		case strings.HasSuffix(r.URL.Path, "/exec"):
			conn, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			conn.WriteJSON(map[string]any{"exited": true, "result": map[string]int{"exit_code": 7}})
		case r.URL.Path == "/v1/nodes":
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		default:
			io.WriteString(w, "[]")
		}
	}, lasting(), clients)
	c, err := client.New(client.Config{Addr: hub.URL, CACert: ca.pem(), ClientCert: person.pem(), ClientKey: person.mustKeyPEM(t), Token: "s3cret"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.In("x").Jobs(t.Context(), client.List{}); err != nil {
		t.Error(err)
	}
	if code, err := c.ExecAlloc(t.Context(), "a1", []string{"true"}, client.ExecOptions{}, fleet.Exec{Stdin: io.NopCloser(strings.NewReader("")), Stdout: io.Discard, Stderr: io.Discard}); err != nil || code != 7 {
		t.Errorf("a command: %d, %v", code, err)
	}
	if _, err := c.Nodes(t.Context(), client.List{}); err == nil {
		t.Error("it followed a hub elsewhere")
	}
	if len(asked) != 3 {
		t.Errorf("asked: %v", asked)
	}
	stranger, err := client.New(client.Config{Addr: hub.URL, CACert: ca.pem()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stranger.Jobs(t.Context(), client.List{}); err == nil {
		t.Error("served without a certificate")
	}
}

// A CA is taken from a hub only where its hash is the known one, and where the hub's own certificate is of it.
func TestFetchCA(t *testing.T) {
	ca, other := mustAuthority(t), mustAuthority(t)
	server := ca.mustServeTLS(t, answerEmptyList, lasting(), nil)
	hash := client.CAHash(sha256.Sum256(ca.cert.Raw))
	for name, try := range map[string]struct {
		cfg  client.Config
		hash client.CAHash
		says string // "": fetched
	}{
		"the right hash":        {client.Config{Addr: server.URL}, hash, ""},
		"another hash":          {client.Config{Addr: server.URL}, sha256.Sum256(other.cert.Raw), "does not show the CA with the hash sha256:"},
		"of the hub's own":      {client.Config{Addr: server.URL}, sha256.Sum256(server.TLS.Certificates[0].Certificate[0]), "does not show the CA"},
		"another name":          {client.Config{Addr: server.URL, ServerName: "x.example"}, hash, "not for x.example"},
		"in clear":              {client.Config{Addr: "127.0.0.1:1"}, hash, "no address of HTTPS"},
		"nobody there":          {client.Config{Addr: "https://127.0.0.1:1"}, hash, "no hub answers"},
		"a CA that it only has": {client.Config{Addr: impostor(t, ca, other).URL}, hash, "certificate"},
	} {
		got, err := client.FetchCA(t.Context(), try.cfg, try.hash)
		switch {
		case try.says == "" && (err != nil || !bytes.Equal(got, ca.pem())):
			t.Errorf("%s: %s, %v", name, got, err)
		case try.says != "" && (err == nil || !strings.Contains(err.Error(), try.says)):
			t.Errorf("%s: %v", name, err)
		}
	}
	if kept, ok := client.HashCA(ca.pem()); !ok || kept != hash {
		t.Errorf("the hash of its PEM is %s, %t", kept, ok)
	}
	if _, ok := client.HashCA(append(ca.pem(), other.pem()...)); ok {
		t.Error("two certificates have one hash")
	}
}

// impostor serves with a certificate of another CA, and shows the right one beside it.
func impostor(tb testing.TB, right, own authority) *httptest.Server {
	tb.Helper()
	leaf := lasting()
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	signed := mustSign(tb, own, leaf)
	server := httptest.NewUnstartedServer(http.HandlerFunc(answerEmptyList))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{signed.cert.Raw, right.cert.Raw}, PrivateKey: signed.key}}}
	server.StartTLS()
	tb.Cleanup(server.Close)
	return server
}

func TestParseCAHash(t *testing.T) {
	want := client.CAHash(sha256.Sum256([]byte("x")))
	bare := strings.TrimPrefix(want.String(), "sha256:")
	for text, ok := range map[string]bool{
		want.String(): true, bare: true, strings.ToUpper(bare): true, " " + bare[:2] + ":" + bare[2:] + "\n": true,
		"": false, bare[:62]: false, bare + "00": false, "sha1:" + bare: false,
	} {
		if got, err := client.ParseCAHash(text); (err == nil) != ok || ok && got != want {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
}

// FuzzParseCAHash feeds what people paste.
func FuzzParseCAHash(f *testing.F) {
	f.Add("sha256:00")
	f.Add(client.CAHash{}.String())
	f.Fuzz(func(t *testing.T, text string) {
		hash, err := client.ParseCAHash(text)
		if err != nil {
			return
		}
		if again, err := client.ParseCAHash(hash.String()); err != nil || again != hash {
			t.Fatalf("%q is %s, which is %s, %v", text, hash, again, err)
		}
	})
}
