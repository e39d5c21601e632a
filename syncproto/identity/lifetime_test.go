package identity_test

import (
	"crypto/x509"
	"testing"
	"time"

	"skerry/syncproto/identity"
)

func TestRenewAt(t *testing.T) {
	for _, try := range []struct{ lifetime, left time.Duration }{
		{year, year / 3},
		{3 * time.Hour, time.Hour},
		{time.Minute, 20 * time.Second},
	} {
		cert := &x509.Certificate{NotBefore: start, NotAfter: start.Add(try.lifetime)}
		if got := cert.NotAfter.Sub(identity.RenewAt(cert)); got != try.left {
			t.Errorf("lifetime %s: renewed with %s left, want %s", try.lifetime, got, try.left)
		}
	}
}

func TestDue(t *testing.T) {
	ca := mustAuthority(t)
	der, key := ca.mustIssue(t, "edge:"+nodeID)
	id, err := identity.New(der, ca.cert.Raw, key)
	if err != nil {
		t.Fatal(err)
	}
	for name, try := range map[string]struct {
		now  time.Time
		want bool
	}{
		"no time is known": {},
		"1970":             {now: time.Unix(12, 0)},
		"new":              {now: start.Add(time.Hour)},
		"a moment before":  {now: identity.RenewAt(id.Cert).Add(-1)},
		"a third is left":  {now: identity.RenewAt(id.Cert), want: true},
		"it has ended":     {now: start.Add(2 * year), want: true},
	} {
		if got := id.Due(try.now); got != try.want {
			t.Errorf("%s: due is %t", name, got)
		}
	}
	last := *id
	last.Cert = &x509.Certificate{NotBefore: start, NotAfter: ca.cert.NotAfter}
	if last.Due(start.Add(20 * year)) {
		t.Error("due, though no certificate lasts longer than the CA")
	}
}
