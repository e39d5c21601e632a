package identity_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/syncproto/identity"
)

// mustSuccessor returns another CA of a name that ends at a time, and the bridge to it that a signed.
func (a authority) mustSuccessor(tb testing.TB, name string, end time.Time) (authority, *x509.Certificate) {
	tb.Helper()
	key := mustKey(tb)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(3), Subject: pkix.Name{CommonName: name}, NotBefore: start, NotAfter: end,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	own, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		tb.Fatal(err)
	}
	bridge, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	if err != nil {
		tb.Fatal(err)
	}
	return authority{mustParse(tb, own), key}, mustParse(tb, bridge)
}

// mustBridgeByAnEdge returns what looks like a bridge to a CA, signed with the key of an edge.
func mustBridgeByAnEdge(tb testing.TB, ca authority, to authority) []*x509.Certificate {
	tb.Helper()
	der, key := ca.mustIssue(tb, "edge:"+nodeID)
	edge := mustParse(tb, der)
	forged, err := x509.CreateCertificate(rand.Reader, to.cert, edge, to.cert.PublicKey, key)
	if err != nil {
		tb.Fatal(err)
	}
	return []*x509.Certificate{mustParse(tb, forged), edge}
}

// A peer that knows only an old CA accepts a hub of a newer one, if bridges lead there, also after the end of the old one. Nothing
// else leads there.
func TestBridgesLeadToANewerCA(t *testing.T) {
	far := start.Add(20 * year)
	first := mustAuthority(t) // ends after 10 years
	second, toSecond := first.mustSuccessor(t, "CA 2", far)
	third, toThird := second.mustSuccessor(t, "CA 3", far)
	stranger := mustAuthority(t)
	_, fromStranger := stranger.mustSuccessor(t, "CA 3", far)
	ending, toEnding := first.mustSuccessor(t, "CA 2", start.Add(year/2))
	of := func(a authority) *x509.Certificate {
		der, _ := a.mustIssue(t, "hub:one")
		return mustParse(t, der)
	}
	forged := mustBridgeByAnEdge(t, first, stranger)
	var long []*x509.Certificate
	for range 17 {
		long = append(long, toSecond)
	}
	for name, try := range map[string]struct {
		chain []*x509.Certificate
		also  []*x509.Certificate
		now   time.Time
		ok    bool
	}{
		"one bridge":                    {chain: []*x509.Certificate{of(second), toSecond}, ok: true},
		"two":                           {chain: []*x509.Certificate{of(third), toThird, toSecond}, ok: true},
		"in another order":              {chain: []*x509.Certificate{of(third), toSecond, toThird}, ok: true},
		"beside the CAs themselves":     {chain: []*x509.Certificate{of(third), third.cert, second.cert, toThird, toSecond}, ok: true},
		"after the end of the old CA":   {chain: []*x509.Certificate{of(second), toSecond}, now: start.Add(year), ok: true},
		"one is missing":                {chain: []*x509.Certificate{of(third), toThird}},
		"the new CA alone":              {chain: []*x509.Certificate{of(second), second.cert}},
		"the new CA is known as well":   {chain: []*x509.Certificate{of(third)}, also: []*x509.Certificate{third.cert}, ok: true},
		"a bridge of another cluster":   {chain: []*x509.Certificate{of(third), fromStranger}},
		"an edge as a CA":               {chain: append([]*x509.Certificate{of(stranger)}, forged...)},
		"a bridge whose time is over":   {chain: []*x509.Certificate{of(ending), toEnding}, now: start.Add(year - time.Hour)},
		"the same before":               {chain: []*x509.Certificate{of(ending), toEnding}, now: start.Add(time.Hour), ok: true},
		"far more than there can be":    {chain: append([]*x509.Certificate{of(second)}, long...)},
		"the hub's certificate is over": {chain: []*x509.Certificate{of(second), toSecond}, now: start.Add(2 * year)},
	} {
		t.Run(name, func(t *testing.T) {
			check := identity.Check{CA: first.cert, Also: try.also, Role: fleet.RoleHub, Now: try.now}
			if err := check.Verify(try.chain); (err == nil) != try.ok || err != nil && fleet.CodeOf(err) != fleet.CodeForbidden {
				t.Fatalf("got %v, want ok=%t", err, try.ok)
			}
		})
	}
	check := identity.Check{CA: first.cert}
	chain := []*x509.Certificate{of(third), toThird, toSecond, fromStranger}
	for name, try := range map[string]struct {
		ca *x509.Certificate
		ok bool
	}{"its own": {first.cert, true}, "the next": {second.cert, true}, "the one after": {third.cert, true}, "a stranger's": {stranger.cert, false}} {
		if check.Vouches(try.ca, chain) != try.ok {
			t.Errorf("vouches for %s: %t", name, !try.ok)
		}
	}
}

// The file of an identity has several CAs, in any order: the one that signed the certificate is found.
func TestIdentityOfSeveralCAs(t *testing.T) {
	first := mustAuthority(t)
	second, _ := first.mustSuccessor(t, "CA 2", start.Add(10*year))
	der, key := second.mustIssue(t, "edge:"+nodeID)
	text, err := identity.EncodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, cas := range map[string][]*x509.Certificate{
		"own first": {second.cert, first.cert}, "own last": {first.cert, second.cert},
	} {
		id, err := identity.Load(identity.EncodeCert(der), text, identity.EncodeCerts(cas))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !id.CA.Equal(second.cert) || len(id.Also) != 1 || !id.Also[0].Equal(first.cert) {
			t.Errorf("%s: of %s, and also %d", name, id.CA.Subject, len(id.Also))
		}
		if alone := id.WithAuthorities([]*x509.Certificate{second.cert}); len(alone.Also) != 0 || len(id.Also) != 1 {
			t.Errorf("%s: %d CAs stay, of %d", name, len(alone.Also), len(id.Also))
		}
		renewed, err := id.Renewed(mustIssueFor(t, first, key))
		if err != nil || !renewed.CA.Equal(first.cert) || len(renewed.Also) != 1 {
			t.Errorf("%s: renewed by the other one: %v", name, err)
		}
	}
	if _, err := identity.Load(identity.EncodeCert(der), text, identity.EncodeCert(first.cert.Raw)); err == nil {
		t.Error("a certificate of a CA that is not in the file was taken")
	}
	if _, err := identity.Load(identity.EncodeCert(der), text, nil); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("without a CA: %v", err)
	}
}

func mustIssueFor(tb testing.TB, a authority, key *ecdsa.PrivateKey) []byte {
	tb.Helper()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(4), Subject: pkix.Name{CommonName: "edge:" + nodeID}, NotBefore: start, NotAfter: start.Add(year),
	}, a.cert, &key.PublicKey, a.key)
	if err != nil {
		tb.Fatal(err)
	}
	return der
}

// Whatever a hub names as CAs, they are CAs, and few.
func FuzzParseCAs(f *testing.F) {
	first := mustAuthority(f)
	edge, _ := first.mustIssue(f, "edge:"+nodeID)
	f.Add(first.cert.Raw, first.cert.Raw)
	f.Add(first.cert.Raw, edge)
	f.Add([]byte{}, []byte{0x30, 0x80})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		cas, err := identity.ParseCAs([][]byte{a, b})
		if err != nil {
			if fleet.CodeOf(err) != fleet.CodeInvalid {
				t.Fatal(err)
			}
			return
		}
		for i, ca := range cas {
			if !ca.IsCA || !bytes.Equal(ca.Raw, [][]byte{a, b}[i]) {
				t.Fatalf("%s was taken", ca.Subject)
			}
		}
	})
}

// Whatever the file of the CAs has, it is read back as it was written, or refused.
func FuzzDecodeCerts(f *testing.F) {
	first := mustAuthority(f)
	second, bridge := first.mustSuccessor(f, "CA 2", start.Add(year))
	f.Add(identity.EncodeCerts([]*x509.Certificate{first.cert, second.cert, bridge}))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n\n-----END CERTIFICATE-----\n"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, text []byte) {
		certs, err := identity.DecodeCerts(text)
		if err != nil {
			return
		}
		again, err := identity.DecodeCerts(identity.EncodeCerts(certs))
		if err != nil || len(again) != len(certs) {
			t.Fatalf("%d certificates, and again %d, %v", len(certs), len(again), err)
		}
	})
}
