package pki_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/hub/pki"
	"skerry/hub/state"
	"skerry/syncproto/identity"
)

// verifyHTTP checks what a client checks that knows the CA.
func verifyHTTP(cert *tls.Certificate, ca *x509.Certificate, name string, now time.Time) error {
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	_, err := cert.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: now})
	return err
}

// The certificate of the HTTP API is there from the start, is renewed in time, follows the names, and
// proves no role in the cluster.
func TestHTTPCertificateIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var passed atomic.Int64 // since the start, by the hub's clock
		now := func() time.Time { return start.Add(time.Duration(passed.Load())) }
		r, dir := mustRegistry(t), t.TempDir()
		id := mustIssue(t, *r.cluster, fleet.RoleHub, "one")
		if err := pki.SaveAuthority(dir, mustCA(t, *r.cluster)); err != nil {
			t.Fatal(err)
		}
		both := []string{"hub.example", "192.0.2.10"}
		var names atomic.Pointer[[]string]
		names.Store(&both)
		own := pki.NewOwnCertificate(pki.OwnConfig{
			Dir: dir, Identity: id, Now: now, Log: slog.New(slog.DiscardHandler), HTTPNames: func() []string { return *names.Load() },
		})
		store := state.New()
		keys, err := pki.OpenStateKeys(pki.StateKeysConfig{Dir: dir, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		renewal := pki.Renewal{Own: own, Ready: make(chan struct{}), Registry: pki.StateRegistry{
			State: store, Keyring: pki.NewKeyring(pki.KeyringConfig{Keys: keys, State: store}),
		}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- renewal.Run(ctx) }()
		first, err := own.HTTPCertificate(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := (identity.Check{CA: id.CA}).Verify([]*x509.Certificate{first.Leaf}); err == nil {
			t.Error("it was taken for a hub's or an edge's")
		}
		for _, step := range []struct {
			after time.Duration
			names []string
			same  bool // as the one before
			other string
		}{
			{names: both, same: true, other: "localhost"},
			{after: 10 * day, names: both, same: true, other: "192.0.2.11"},
			{after: 12 * day, names: both},
			{names: []string{"hub.example"}, other: "192.0.2.10"},
			{after: 25 * day, names: []string{"hub.example"}},
		} {
			names.Store(&step.names)
			passed.Add(int64(step.after))
			time.Sleep(time.Minute + time.Second) // it looks at its clock
			cert, err := own.HTTPCertificate(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range step.names {
				if err := verifyHTTP(cert, id.CA, name, now()); err != nil {
					t.Errorf("after %s: %v", step.after, err)
				}
			}
			if step.other != "" && verifyHTTP(cert, id.CA, step.other, now()) == nil {
				t.Errorf("after %s: it is also for %s", step.after, step.other)
			}
			if same := cert == first; same != step.same {
				t.Errorf("after %s: it is the same: %t", step.after, same)
			}
			first = cert
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A hub without the CA's key tells clients so, after a moment.
func TestHTTPCertificateIsAwaited(t *testing.T) {
	id := mustIssue(t, *mustRegistry(t).cluster, fleet.RoleHub, "one")
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		own := pki.NewOwnCertificate(pki.OwnConfig{Dir: dir, Identity: id, Now: time.Now, Log: slog.New(slog.DiscardHandler), HTTPNames: func() []string { return nil }})
		began := time.Now()
		if _, err := own.HTTPCertificate(t.Context()); fleet.CodeOf(err) != fleet.CodeUnavailable || time.Since(began) > 10*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}
