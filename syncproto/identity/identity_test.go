package identity_test

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/syncproto/identity"
)

var start = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

const (
	nodeID = "3f0c9f62-1111-4222-8333-444455556666"
	year   = 365 * 24 * time.Hour
)

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func mustAuthority(tb testing.TB) authority {
	tb.Helper()
	key := mustKey(tb)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA"},
		NotBefore: start, NotAfter: start.Add(10 * year),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		tb.Fatal(err)
	}
	return authority{mustParse(tb, der), key}
}

func (a authority) mustIssue(tb testing.TB, cn string) (der []byte, key *ecdsa.PrivateKey) {
	tb.Helper()
	key = mustKey(tb)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: cn},
		NotBefore: start, NotAfter: start.Add(year),
	}, a.cert, &key.PublicKey, a.key)
	if err != nil {
		tb.Fatal(err)
	}
	return der, key
}

func mustKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := identity.NewKey()
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func mustParse(tb testing.TB, der []byte) *x509.Certificate {
	tb.Helper()
	c, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func TestLoadReadsWhatWasEncoded(t *testing.T) {
	ca := mustAuthority(t)
	der, key := ca.mustIssue(t, "edge:"+nodeID)
	keyPEM, err := identity.EncodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	id, err := identity.Load(identity.EncodeCert(der), keyPEM, identity.EncodeCert(ca.cert.Raw))
	if err != nil {
		t.Fatal(err)
	}
	if id.Role != fleet.RoleEdge || id.Name != nodeID || !id.Key.Equal(key) {
		t.Fatalf("loaded %s:%s", id.Role, id.Name)
	}
	if _, err := identity.Load(keyPEM, keyPEM, keyPEM); err == nil {
		t.Fatal("a key was taken for a certificate")
	}
}

func TestNewRefuses(t *testing.T) {
	ca, other := mustAuthority(t), mustAuthority(t)
	der, key := ca.mustIssue(t, "edge:"+nodeID)
	nobody, nobodysKey := ca.mustIssue(t, "gateway:x")
	for name, try := range map[string]struct {
		cert, ca []byte
		key      *ecdsa.PrivateKey
	}{
		"another CA":     {der, other.cert.Raw, key},
		"another key":    {der, ca.cert.Raw, mustKey(t)},
		"no role":        {nobody, ca.cert.Raw, nobodysKey},
		"no certificate": {[]byte("x"), ca.cert.Raw, key},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := identity.New(try.cert, try.ca, try.key); err == nil {
				t.Fatal("it was taken")
			}
		})
	}
}

func TestCheckTakesWrongClocks(t *testing.T) {
	ca := mustAuthority(t)
	der, _ := ca.mustIssue(t, "hub:one")
	leaf := mustParse(t, der)
	for name, try := range map[string]struct {
		now time.Time
		ok  bool
	}{
		"in its validity":           {now: start.Add(time.Hour), ok: true},
		"no time at all":            {ok: true},
		"a board that wakes 1970":   {now: time.Unix(12, 0), ok: true},
		"surely over":               {now: start.Add(year + time.Hour)},
		"the CA is over, too":       {now: start.Add(11 * year)},
		"last moment, to the point": {now: start.Add(year), ok: true},
	} {
		t.Run(name, func(t *testing.T) {
			err := identity.Check{CA: ca.cert, Role: fleet.RoleHub, Now: try.now}.Verify([]*x509.Certificate{leaf})
			if (err == nil) != try.ok {
				t.Fatalf("got %v, want ok=%t", err, try.ok)
			}
			if err != nil && fleet.CodeOf(err) != fleet.CodeForbidden {
				t.Fatalf("got code %s", fleet.CodeOf(err))
			}
		})
	}
}

func TestCheckRefuses(t *testing.T) {
	ca, other := mustAuthority(t), mustAuthority(t)
	edge, _ := ca.mustIssue(t, "edge:"+nodeID)
	foreign, _ := other.mustIssue(t, "hub:one")
	for name, chain := range map[string][]*x509.Certificate{
		"nobody":          nil,
		"an edge":         {mustParse(t, edge)},
		"another cluster": {mustParse(t, foreign), other.cert},
		"the CA itself":   {ca.cert},
	} {
		t.Run(name, func(t *testing.T) {
			err := identity.Check{CA: ca.cert, Role: fleet.RoleHub, Now: start}.Verify(chain)
			if fleet.CodeOf(err) != fleet.CodeForbidden {
				t.Fatalf("got %v", err)
			}
		})
	}
}

func TestEnrollTLSPinsTheCA(t *testing.T) {
	ca, other := mustAuthority(t), mustAuthority(t)
	hub, _ := ca.mustIssue(t, "hub:one")
	edge, _ := ca.mustIssue(t, "edge:"+nodeID)
	foreign, _ := other.mustIssue(t, "hub:one")
	verify := identity.NewToken(ca.cert.Raw).EnrollTLS(func() time.Time { return time.Unix(0, 0) }).VerifyConnection
	for name, try := range map[string]struct {
		chain []*x509.Certificate
		want  fleet.Code
	}{
		"the hub and its CA":            {[]*x509.Certificate{mustParse(t, hub), ca.cert}, ""},
		"another cluster":               {[]*x509.Certificate{mustParse(t, foreign), other.cert}, fleet.CodeCAMismatch},
		"another hub with our CA shown": {[]*x509.Certificate{mustParse(t, foreign), ca.cert}, fleet.CodeForbidden},
		"an edge as a hub":              {[]*x509.Certificate{mustParse(t, edge), ca.cert}, fleet.CodeForbidden},
		"no CA":                         {[]*x509.Certificate{mustParse(t, hub)}, fleet.CodeCAMismatch},
	} {
		t.Run(name, func(t *testing.T) {
			if got := fleet.CodeOf(verify(tls.ConnectionState{PeerCertificates: try.chain})); got != try.want {
				t.Fatalf("got %q, want %q", got, try.want)
			}
		})
	}
}

func TestValidName(t *testing.T) {
	for _, try := range []struct {
		role, name string
		ok         bool
	}{
		{"edge", nodeID, true},
		{"edge", "shop-1", false},
		{"edge", "3F0C9F62-1111-4222-8333-444455556666", false},
		{"hub", "dc1.hub_1-a", true},
		{"hub", "-dc1", false},
		{"hub", "dc1.", false},
		{"hub", "", false},
		{"hub", "a/b", false},
		{"operator", "x", false},
	} {
		if identity.ValidName(try.role, try.name) != try.ok {
			t.Errorf("%s %q: want %t", try.role, try.name, try.ok)
		}
	}
}

// Whatever the three files hold, they are taken as one identity of one CA, or not
// at all.
func FuzzLoad(f *testing.F) {
	ca, other := mustAuthority(f), mustAuthority(f)
	der, key := ca.mustIssue(f, "hub:one")
	pem, err := identity.EncodeKey(key)
	if err != nil {
		f.Fatal(err)
	}
	cert, caPEM := identity.EncodeCert(der), identity.EncodeCert(ca.cert.Raw)
	f.Add(cert, pem, caPEM)
	f.Add(cert, pem, identity.EncodeCert(other.cert.Raw))
	f.Add(caPEM, pem, caPEM)
	f.Add(pem, cert, []byte("-----BEGIN CERTIFICATE-----\n"))
	f.Add(cert[:40], []byte{}, []byte{0xff})
	f.Fuzz(func(t *testing.T, cert, key, caText []byte) {
		id, err := identity.Load(cert, key, caText)
		if err != nil {
			return
		}
		check := identity.Check{CA: id.CA, Role: id.Role}
		if err := check.Verify([]*x509.Certificate{id.Cert}); err != nil || !id.Key.PublicKey.Equal(id.Cert.PublicKey) {
			t.Fatalf("taken as %s %s: %v", id.Role, id.Name, err)
		}
	})
}
