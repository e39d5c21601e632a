package hub_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub"
	"skerry/syncproto/identity"
)

// mustRefuse opens a hub, which has to fail with a code, and with a text that
// contains what a person needs to know.
func mustRefuse(t *testing.T, cfg hub.Config, code fleet.Code, texts ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	h, err := hub.Open(ctx, cfg)
	if err == nil {
		h.Close()
		t.Fatalf("opened, want %s", code)
	}
	if got := fleet.CodeOf(err); got != code {
		t.Errorf("code %s of %v, want %s", got, err, code)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q does not say %q", err, text)
		}
	}
}

func TestConfigurationThatIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*hub.Config)
		code   fleet.Code
		text   string
	}{
		"no data directory":          {func(c *hub.Config) { c.DataDir = "" }, fleet.CodeInvalid, "data directory"},
		"bad name":                   {func(c *hub.Config) { c.Name = "a b" }, fleet.CodeInvalid, `"a b"`},
		"bootstrap and join":         {func(c *hub.Config) { c.Join = []string{"x:1"} }, fleet.CodeInvalid, "not both"},
		"a hub without its port":     {func(c *hub.Config) { c.Bootstrap, c.Join = false, []string{"192.0.2.1"} }, fleet.CodeInvalid, "not HOST:PORT"},
		"a port that is none":        {func(c *hub.Config) { c.QUICPort = 70000 }, fleet.CodeInvalid, "70000"},
		"a bind that is no IP":       {func(c *hub.Config) { c.Bind = "localhost" }, fleet.CodeInvalid, "localhost"},
		"HTTP for everybody":         {func(c *hub.Config) { c.Bind = "0.0.0.0" }, fleet.CodeForbidden, "--http-insecure"},
		"HTTP on another address":    {func(c *hub.Config) { c.HTTPBind = "192.0.2.1" }, fleet.CodeForbidden, "192.0.2.1"},
		"HTTPS for everybody":        {func(c *hub.Config) { c.HTTPBind, c.HTTPTLS = "192.0.2.1", true }, fleet.CodeForbidden, "--http-tls-client-ca"},
		"tokens in clear":            {func(c *hub.Config) { c.HTTPBind, c.ACLEnabled = "192.0.2.1", true }, fleet.CodeForbidden, "refuse to serve tokens over unencrypted HTTP on 192.0.2.1"},
		"HTTPS and tokens, no route": {func(c *hub.Config) { c.HTTPBind, c.ACLEnabled, c.HTTPTLS = "192.0.2.1", true, true }, fleet.CodeInvalid, "listen for HTTP on 192.0.2.1"},
		"a certificate without key":  {func(c *hub.Config) { c.HTTPTLSCert = "hub.pem" }, fleet.CodeInvalid, "--http-tls-key"},
		"clients' CA without HTTPS":  {func(c *hub.Config) { c.HTTPTLSClientCA = "ca.pem" }, fleet.CodeInvalid, "--http-tls"},
		"a certificate that is none": {func(c *hub.Config) { c.HTTPTLSCert, c.HTTPTLSKey = "/none.pem", "/none-key.pem" }, fleet.CodeInvalid, "read the HTTPS certificate"},
		"a collector in clear":       {func(c *hub.Config) { c.AuditCollector = "http://192.0.2.1/in" }, fleet.CodeInvalid, "HTTP is not encrypted"},
		"a collector's CA alone":     {func(c *hub.Config) { c.AuditCollectorCA = "ca.pem" }, fleet.CodeInvalid, "no destination"},
		"a collector's missing CA":   {func(c *hub.Config) { c.AuditCollector, c.AuditCollectorCA = "https://192.0.2.1/in", "/none.pem" }, fleet.CodeInvalid, "read the CA file of the collector"},
		"a syslog server by name":    {func(c *hub.Config) { c.AuditSyslog = "192.0.2.1:514" }, fleet.CodeInvalid, "not an address of one"},
		"advertising all of them":    {func(c *hub.Config) { c.Advertise = "0.0.0.0" }, fleet.CodeInvalid, "0.0.0.0"},
		"neither bootstrap nor join": {func(c *hub.Config) { c.Bootstrap = false }, fleet.CodeInvalid, "--bootstrap"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t, "hub-1")
			cfg.Bootstrap = true
			c.change(&cfg)
			mustRefuse(t, cfg, c.code, c.text)
		})
	}
}

func TestEverythingWrongAtOnce(t *testing.T) {
	mustRefuse(t, hub.Config{Name: "-", QUICPort: -1}, fleet.CodeInvalid, "data directory", `"-"`, "-1")
}

func TestDataDirectoryThatIsRefused(t *testing.T) {
	t.Run("in use", func(t *testing.T) {
		cfg := config(t, "hub-1")
		cfg.Bootstrap = true
		mustStart(t, cfg)
		mustRefuse(t, cfg, fleet.CodeConflict, cfg.DataDir, "in use")
	})
	t.Run("of a newer version", func(t *testing.T) {
		cfg := config(t, "hub-1")
		cfg.Bootstrap = true
		mustWrite(t, filepath.Join(cfg.DataDir, "version"), "99\n")
		mustRefuse(t, cfg, fleet.CodeVersion, "99")
		if entries, err := os.ReadDir(cfg.DataDir); err != nil || len(entries) > 2 {
			t.Errorf("the directory holds %v (%v): something was written to it", entries, err)
		}
	})
	t.Run("not a hub's", func(t *testing.T) {
		cfg := config(t, "hub-1")
		cfg.Bootstrap = true
		mustWrite(t, filepath.Join(cfg.DataDir, "version"), "hello")
		mustRefuse(t, cfg, fleet.CodeInvalid, "hello")
	})
	t.Run("not writable", func(t *testing.T) {
		cfg := config(t, "hub-1")
		cfg.Bootstrap = true
		mustWrite(t, cfg.DataDir, "a file, where a directory should be")
		mustRefuse(t, cfg, fleet.CodeForbidden, cfg.DataDir, "not writable")
	})
	t.Run("another hub's", func(t *testing.T) {
		cfg := config(t, "hub-1")
		cfg.Bootstrap = true
		h := mustStart(t, cfg)
		h.mustBeReady()
		h.stopHub()
		cfg.Name = "hub-2"
		mustRefuse(t, cfg, fleet.CodeConflict, `"hub-1"`, "--name hub-1")
	})
}

// What says who a hub is cannot be made anew: a hub that cannot read it starts
// nothing and changes nothing.
func TestDamagedIdentityIsRefused(t *testing.T) {
	cfg := config(t, "hub-1")
	cfg.Bootstrap = true
	first := mustStart(t, cfg)
	first.mustBeReady()
	first.stopHub()
	folder := filepath.Join(cfg.DataDir, "identity")
	for file, damage := range map[string]string{
		"hub.pem": "not a certificate", "hub-key.pem": "", "ca.pem": "-----BEGIN CERTIFICATE-----", "gossip-key": "short", "pending.json": "{",
	} {
		t.Run(file, func(t *testing.T) {
			path := filepath.Join(folder, file)
			whole, err := os.ReadFile(path)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			mustWrite(t, path, damage)
			mustRefuse(t, cfg, fleet.CodeInvalid, "read the hub's identity", "restore")
			if now, err := os.ReadFile(path); err != nil || string(now) != damage {
				t.Errorf("the file was changed: %q, %v", now, err)
			}
			if mustWrite(t, path, string(whole)); whole == nil {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	again := mustStart(t, cfg)
	again.mustBeReady()
}

func TestAnEdgesDirectoryIsRefused(t *testing.T) {
	cfg := config(t, "hub-1")
	cfg.Bootstrap = true
	mustWrite(t, filepath.Join(cfg.DataDir, "identity", "node-id"), "x")
	mustRefuse(t, cfg, fleet.CodeConflict, "it belongs to an edge")
}

// A hub signs certificates by its clock: one that stands before the cluster was
// made starts nothing, and loses nothing.
func TestAClockOf1970IsRefused(t *testing.T) {
	at1970 := func() time.Time { return time.Unix(40, 0) }
	cfg := config(t, "hub-1")
	cfg.Bootstrap, cfg.Now = true, at1970
	mustRefuse(t, cfg, fleet.CodeInvalid, "clock", "1970-01-01T00:00:40Z")
	cfg.Now = nil
	first := mustStart(t, cfg)
	first.mustBeReady()
	first.mustRegister(job("shop"))

	joining := config(t, "hub-2")
	joining.Join, joining.Token, joining.Now = []string{first.QUICAddr()}, first.HubJoinToken(), at1970
	mustRefuse(t, joining, fleet.CodeInvalid, "clock", "1970")
	joining.Now = func() time.Time { return time.Now().Add(-24 * time.Hour) } // seen when the CA is
	mustRefuse(t, joining, fleet.CodeInvalid, "clock")

	first.stopHub()
	cfg.Now = at1970
	mustRefuse(t, cfg, fleet.CodeInvalid, "clock", "1970")
	cfg.Now = nil
	again := mustStart(t, cfg)
	again.mustBeReady()
	if _, ok := again.State().View().Job(fleet.DefaultNamespace, "shop"); !ok {
		t.Errorf("the job is gone:\n%s", again.describeState())
	}
}

func mustWrite(tb testing.TB, path, text string) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
}

func TestPortInUse(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	port := func(addr net.Addr) int {
		_, p, _ := net.SplitHostPort(addr.String())
		n, _ := strconv.Atoi(p)
		return n
	}
	cfg := config(t, "hub-1")
	cfg.Bootstrap, cfg.HTTPPort = true, port(tcp.Addr())
	mustRefuse(t, cfg, fleet.CodeConflict, tcp.Addr().String(), "in use")
	cfg.HTTPPort, cfg.QUICPort = 0, port(udp.LocalAddr())
	mustRefuse(t, cfg, fleet.CodeConflict, udp.LocalAddr().String(), "in use")
	cfg.QUICPort, cfg.GossipPort = 0, port(tcp.Addr())
	mustRefuse(t, cfg, fleet.CodeConflict, "listen for gossip on "+tcp.Addr().String()+": the port is in use", "--gossip-port")
	cfg.GossipPort = port(udp.LocalAddr())
	mustRefuse(t, cfg, fleet.CodeConflict, udp.LocalAddr().String(), "in use")
	cfg.GossipPort = 0
	mustStart(t, cfg).mustBeReady() // nothing was left behind
}

// TestTokensAreKnownBeforeTheCluster looks at the state while a hub makes a cluster: from the moment in which it lets others
// join, it knows the tokens with which they do.
func TestTokensAreKnownBeforeTheCluster(t *testing.T) {
	cfg := config(t, "hub-1")
	cfg.Bootstrap = true
	h := mustStart(t, cfg)
	for ready := false; !ready; {
		select {
		case <-h.Ready():
			ready = true
		default:
		}
		v := h.State().View()
		_, known := v.Cluster()
		tokens := 0
		for range v.Tokens() {
			tokens++
		}
		if known && tokens != 2 {
			t.Fatalf("there is a cluster, and it has %d of 2 join tokens", tokens)
		}
	}
}

func TestTokensThatAreRefused(t *testing.T) {
	first := mustCluster(t, 1)[0]
	other := mustCluster(t, 1)[0]
	token := first.HubJoinToken()
	joining := func(token string) hub.Config {
		cfg := config(t, "hub-2")
		cfg.Join, cfg.Token = []string{first.QUICAddr()}, token
		return cfg
	}
	mustRefuse(t, joining(""), fleet.CodeTokenBad, "--token-file")
	mustRefuse(t, joining("skr1.x"), fleet.CodeTokenBad)
	tampered := []byte(token)
	tampered[len(tampered)-8] ^= 1
	mustRefuse(t, joining(string(tampered)), fleet.CodeTokenBad)
	mustRefuse(t, joining(other.HubJoinToken()), fleet.CodeCAMismatch)
	cluster, _ := first.State().View().Cluster()
	mustRefuse(t, joining(identity.NewToken(cluster.CACert).String()), fleet.CodeTokenBad, "does not know")

	cfg := joining("")
	cfg.TokenFile = filepath.Join(t.TempDir(), "missing")
	mustRefuse(t, cfg, fleet.CodeTokenBad, cfg.TokenFile)

	cfg = joining(token)
	cfg.Name = "hub-1" // is taken
	mustRefuse(t, cfg, fleet.CodeConflict, "hub-1")
}

// A hub that nobody answers tries until its context ends.
func TestJoinTriesUntilItMayNot(t *testing.T) {
	first := mustCluster(t, 1)[0]
	token := first.HubJoinToken()
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	cfg := config(t, "hub-2")
	cfg.Join, cfg.Token = []string{silent.LocalAddr().String()}, token
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := hub.Open(ctx, cfg); err == nil || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Errorf("open with nobody to join: %v; the context: %v", err, ctx.Err())
	}
	cfg.Join = append(cfg.Join, first.QUICAddr())
	mustStart(t, cfg).mustBeReady()
}
