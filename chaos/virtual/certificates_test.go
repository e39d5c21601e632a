package virtual_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/chaos/virtual"
	"skerry/edge/local"
	"skerry/fleet"
	"skerry/hub/pki"
)

const day = 24 * time.Hour

// mustCluster starts hubs and edges, and waits until they are ready.
func mustCluster(t *testing.T, dir string, hubs int, edges ...string) *virtual.Cluster {
	t.Helper()
	cfg := virtual.Config{Dir: dir, Hubs: []string{"hub-1", "hub-2", "hub-3"}[:hubs], Seed: 1, Tuning: virtual.Stretched}
	for _, name := range edges {
		cfg.Edges = append(cfg.Edges, virtual.EdgeConfig{Name: name, Datacenter: "dc1"})
	}
	c, err := virtual.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range c.Edges {
		mustBecome(t, e, "ready", time.Minute, ready)
	}
	return c
}

func mustClose(t *testing.T, c *virtual.Cluster) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func ready(s local.Status) bool {
	return s.Link.State == "connected" && s.Link.Status == string(fleet.NodeReady)
}

// mustBecome waits in virtual time, and says how an edge stands where it gives up.
func mustBecome(t *testing.T, e *virtual.Edge, what string, within time.Duration, is func(local.Status) bool) local.Status {
	t.Helper()
	for give := time.Now().Add(within); ; time.Sleep(time.Second) {
		s, err := e.Agent().Agent().Status(context.Background())
		if err == nil && is(s) {
			return s
		}
		if time.Now().After(give) {
			t.Fatalf("%s is not %s after %s: link %+v, certificate %+v, %v", e.Name, what, within, s.Link, s.Cert, err)
		}
	}
}

// certificateOf is until when a hub's certificate is valid.
func certificateOf(t *testing.T, h *virtual.Hub) time.Time {
	t.Helper()
	id, ok, err := pki.Load(filepath.Join(h.Dir, "identity"))
	if err != nil || !ok {
		t.Fatalf("%s: %t, %v", h.Name, ok, err)
	}
	return id.Cert.NotAfter
}

// mustRestart ends all hubs at once, lets their clocks jump, and starts them.
func mustRestart(t *testing.T, c *virtual.Cluster, by time.Duration) {
	t.Helper()
	for _, h := range c.Hubs {
		if err := h.Crash(); err != nil {
			t.Fatal(err)
		}
		h.Clock.Jump(by)
	}
	for _, h := range c.Hubs {
		if err := h.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// What runs renews its certificates with a third of their time left, without a
// restart and without a connection that ends, whatever the clocks of boards say.
func TestCertificatesAreRenewedWhileRunning(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := mustCluster(t, dir, 1, "edge-a", "edge-b")
		defer mustClose(t, c)
		c.Edge("edge-a").Clock.Set(time.Unix(90, 0))
		c.Edge("edge-b").Clock.Set(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))
		began := time.Now()
		sessions := map[string]uint64{}
		for _, e := range c.Edges {
			sessions[e.Name] = mustBecome(t, e, "ready", time.Minute, ready).Link.Session
		}
		for _, h := range c.Hubs {
			h.Clock.Jump(200 * day)
		}
		time.Sleep(5 * time.Minute)
		for _, h := range c.Hubs {
			if end := certificateOf(t, h); end.After(began.Add(pki.CertValidity)) {
				t.Errorf("%s renewed its certificate on day 200: until %s", h.Name, end)
			}
			h.Clock.Jump(50 * day)
		}
		time.Sleep(5 * time.Minute)
		for _, h := range c.Hubs {
			if end := certificateOf(t, h); end.Before(began.Add(250*day + pki.CertValidity)) {
				t.Errorf("%s has not renewed its certificate on day 250: until %s", h.Name, end)
			}
		}
		for _, e := range c.Edges {
			s := mustBecome(t, e, "renewed", 2*time.Hour, func(s local.Status) bool {
				return ready(s) && !s.Cert.NotAfter.Before(began.Add(250*day+pki.CertValidity))
			})
			if s.Cert.LastError != "" {
				t.Errorf("%s says of its certificate: %s", e.Name, s.Cert.LastError)
			}
			if s.Link.Session != sessions[e.Name] {
				t.Errorf("%s had %d sessions more", e.Name, s.Link.Session-sessions[e.Name])
			}
		}
		mustRecord(t, c)
	})
}

// mustRecord checks that the state has the newest certificate of everybody, and no
// older one.
func mustRecord(t *testing.T, c *virtual.Cluster) {
	t.Helper()
	var b strings.Builder
	if err := c.Hubs[0].State().View().Describe(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, h := range c.Hubs {
		id, _, err := pki.Load(filepath.Join(h.Dir, "identity"))
		if err != nil {
			t.Fatal(err)
		}
		if r := pki.Record(id.Cert); !strings.Contains(text, r.Serial) {
			t.Errorf("the certificate %s of %s is not recorded", r.Serial, h.Name)
		}
	}
	for _, e := range c.Edges {
		if n := strings.Count(text, fmt.Sprintf(`,"Subject":"edge:%s"`, e.Agent().NodeID())); n != 1 { // admissions begin with it
			t.Errorf("%d certificates of %s are recorded", n, e.Name)
		}
	}
}

// Hubs that were all off until their certificates had ended long ago start as they
// do on any other day.
func TestHubsOutliveTheirCertificates(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := mustCluster(t, dir, 3, "edge-a")
		defer mustClose(t, c)
		e := c.Edge("edge-a")
		before := mustBecome(t, e, "ready", 0, ready).Link.Session
		mustRestart(t, c, 700*day)
		mustBecome(t, e, "back", 5*time.Minute, func(s local.Status) bool { return ready(s) && s.Link.Session > before })
	})
}

// An edge that was away for longer than the grace says so, and what to do; a join
// token makes it the same node again.
func TestAwayForLongerThanTheGrace(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := mustCluster(t, dir, 3, "edge-a")
		defer mustClose(t, c)
		e := c.Edge("edge-a")
		token := filepath.Join(dir, "hub-1", "join-token")
		text, err := os.ReadFile(token)
		if err == nil {
			err = os.Remove(token)
		}
		if err != nil {
			t.Fatal(err)
		}
		node := e.Agent().NodeID()
		mustRestart(t, c, 800*day)
		s := mustBecome(t, e, "told", 5*time.Minute, func(s local.Status) bool { return s.Cert.LastError != "" })
		for _, want := range []string{"was accepted until", "--token-file"} {
			if !strings.Contains(s.Link.LastError, want) {
				t.Errorf("the link says %q, without %q", s.Link.LastError, want)
			}
		}
		if !strings.Contains(s.Cert.LastError, "join-token") {
			t.Errorf("the certificate's error does not name the file: %q", s.Cert.LastError)
		}
		if err := os.WriteFile(token, text, 0o600); err != nil {
			t.Fatal(err)
		}
		s = mustBecome(t, e, "back", 10*time.Minute, ready)
		if s.NodeID != node || s.Cert.LastError != "" {
			t.Fatalf("back as %s: %+v", s.NodeID, s.Cert)
		}
		mustRecord(t, c)
	})
}
