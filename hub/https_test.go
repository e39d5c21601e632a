package hub_test

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	nomad "github.com/hashicorp/nomad/api"

	"skerry/syncproto/identity"
)

// mustNomadClient is Nomad's client of a hub, at a name that leads to it.
func mustNomadClient(tb testing.TB, url string, config nomad.TLSConfig) *nomad.Client {
	tb.Helper()
	c, err := nomad.NewClient(&nomad.Config{Address: url, TLSConfig: &config})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// Nomad's client speaks HTTPS with a hub, whose certificate is of the cluster's CA and for its names.
func TestHTTPSWithTheClustersCA(t *testing.T) {
	cfg := config(t, "hub-1")
	cfg.Bootstrap, cfg.HTTPTLS, cfg.HTTPHosts = true, true, []string{"hub.example"}
	h := mustStart(t, cfg)
	h.mustBeReady()
	ca := filepath.Join(cfg.DataDir, "identity", "ca.pem")
	if !strings.HasPrefix(h.HTTPURL(), "https://127.0.0.1:") {
		t.Fatalf("its URL is %s", h.HTTPURL())
	}
	for name, try := range map[string]struct {
		config nomad.TLSConfig
		says   string // "": served
	}{
		"its address":      {config: nomad.TLSConfig{CACert: ca}},
		"a name of it":     {config: nomad.TLSConfig{CACert: ca, TLSServerName: "hub.example"}},
		"another name":     {config: nomad.TLSConfig{CACert: ca, TLSServerName: "other.example"}, says: "valid for hub.example, localhost, not other"},
		"the name in QUIC": {config: nomad.TLSConfig{CACert: ca, TLSServerName: "hub-1.hub.skerry"}, says: "not hub-1.hub.skerry"},
		"no CA":            {config: nomad.TLSConfig{}, says: "unknown authority"},
	} {
		c := mustNomadClient(t, h.HTTPURL(), try.config)
		self, err := c.Agent().Self()
		switch {
		case (err == nil) != (try.says == "") || err != nil && !strings.Contains(err.Error(), try.says):
			t.Errorf("%s: %v", name, err)
		case err == nil && self.Config["TLSConfig"].(map[string]any)["EnableHTTP"] != true:
			t.Errorf("%s: the hub says %v", name, self.Config["TLSConfig"])
		}
	}
	job := nomad.NewServiceJob("web", "web", "global", 50).AddTaskGroup(nomad.NewTaskGroup("web", 1).
		AddTask(nomad.NewTask("web", "raw_exec").SetConfig("command", "/bin/true")))
	c := mustNomadClient(t, h.HTTPURL(), nomad.TLSConfig{CACert: ca})
	if _, _, err := c.Jobs().Register(job, nil); err != nil {
		t.Fatal(err)
	}
	events, err := c.EventStream().Stream(t.Context(), map[nomad.Topic][]string{nomad.TopicJob: {"*"}}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if e := <-events; e.Err != nil || len(e.Events) == 0 {
		t.Errorf("the event stream: %+v", e)
	}
	resp, err := http.Get("http://" + h.HTTPAddr() + "/v1/jobs") // in clear
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(text), "HTTPS server") {
		t.Errorf("in clear: %d %q, %v", resp.StatusCode, text, err)
	}
}

// A hub with files of its own serves their names, and lets in only clients with a certificate of an authority it knows.
func TestHTTPSWithFiles(t *testing.T) {
	dir := t.TempDir()
	server, person := mustCertify(t, dir, "hub.example"), mustCertify(t, dir, "anna")
	stranger := mustCertify(t, dir, "eve")
	cfg := config(t, "hub-1")
	cfg.Bootstrap = true
	cfg.HTTPTLSCert, cfg.HTTPTLSKey, cfg.HTTPTLSClientCA = server.ClientCert, server.ClientKey, person.ClientCert
	h := mustStart(t, cfg)
	h.mustBeReady()
	for name, try := range map[string]struct {
		shown nomad.TLSConfig
		says  string // "": served
	}{
		"a client that it knows": {shown: person},
		"no certificate":         {says: "403 (GET /v1/agent/self: this hub serves only clients with a certificate"},
		"another authority":      {shown: stranger, says: "403"},
	} {
		try.shown.CACert, try.shown.TLSServerName = server.ClientCert, "hub.example"
		_, err := mustNomadClient(t, h.HTTPURL(), try.shown).Agent().Self()
		if (err == nil) != (try.says == "") || err != nil && !strings.Contains(err.Error(), try.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	shown := person
	shown.CACert, shown.TLSServerName = server.ClientCert, "hub.example"
	metrics, err := mustNomadClient(t, h.HTTPURL(), shown).Raw().Response("/v1/metrics?format=prometheus", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer metrics.Close()
	if text, err := io.ReadAll(metrics); err != nil || !strings.Contains(string(text), "\nskerry_http_certificate_end_seconds 1.") {
		t.Errorf("no metric of the certificate's end: %v", err)
	}
}

// mustCertify writes a certificate that signed itself, and its key, below dir.
func mustCertify(tb testing.TB, dir, name string) nomad.TLSConfig {
	tb.Helper()
	key, err := identity.NewKey()
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		tb.Fatal(err)
	}
	text, err := identity.EncodeKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	files := nomad.TLSConfig{ClientCert: filepath.Join(dir, name+".pem"), ClientKey: filepath.Join(dir, name+"-key.pem")}
	mustWrite(tb, files.ClientCert, string(identity.EncodeCert(der)))
	mustWrite(tb, files.ClientKey, string(text))
	return files
}
