package nodekey_test

import (
	"strings"
	"testing"

	jose "github.com/go-jose/go-jose/v4"

	"skerry/fleet"
	"skerry/syncproto/nodekey"
)

const node = fleet.NodeID("11111111-1111-4111-8111-111111111111")

func mustKey(tb testing.TB) *nodekey.Key {
	tb.Helper()
	key, err := nodekey.New()
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

// TestTokensOfKeys: a JWT library verifies a token with the public key that the node tells, and with no other. The key is
// the same after it was on a disk.
func TestTokensOfKeys(t *testing.T) {
	key := mustKey(t)
	secret, err := key.Secret()
	if err != nil {
		t.Fatal(err)
	}
	again, err := nodekey.Parse(secret)
	if err != nil || again.Public() != key.Public() {
		t.Fatalf("read again: %v", err)
	}
	token, err := again.Sign(node, []byte(`{"sub":"a"}`))
	if err != nil {
		t.Fatal(err)
	}
	signed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{nodekey.Algorithm})
	if err != nil {
		t.Fatal(err)
	}
	if h := signed.Signatures[0].Header; h.KeyID != nodekey.ID(node, key.Public()) || h.ExtraHeaders["typ"] != "JWT" {
		t.Errorf("the header: %+v", h)
	}
	public, err := nodekey.ParsePublic(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	if claims, err := signed.Verify(public); err != nil || string(claims) != `{"sub":"a"}` {
		t.Errorf("verified as %s, %v", claims, err)
	}
	other, err := nodekey.ParsePublic(mustKey(t).Public())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := signed.Verify(other); err == nil {
		t.Error("another key has signed it, too")
	}
}

func TestNames(t *testing.T) {
	key := mustKey(t)
	id := nodekey.ID(node, key.Public())
	if of, ok := nodekey.NodeOf(id); !ok || of != node || len(id) > 64 {
		t.Errorf("%s is of %s, %v", id, of, ok)
	}
	if id == nodekey.ID("22222222-1111-4111-8111-111111111111", key.Public()) || id == nodekey.ID(node, mustKey(t).Public()) {
		t.Error("another key has the same id")
	}
	for _, none := range []string{"", "node/", "node//x", "node/x", "5c6328f7-48c5-4d03-bada-91ef2e904d0d", "x/node/a/b"} {
		if of, ok := nodekey.NodeOf(none); ok || of != "" {
			t.Errorf("%q is of node %s", none, of)
		}
	}
	for hubs, want := range map[string]string{"https://h/": "https://h/v1/node/n", "https://h": "https://h/v1/node/n", "": "/v1/node/n"} {
		if got := nodekey.Issuer(hubs, "n"); got != want {
			t.Errorf("below %q: %s", hubs, got)
		}
	}
	for _, bad := range []string{"", "x", strings.Repeat("A", 87), strings.Repeat("A", 4<<20), key.Public() + "=", key.Public()[1:], " " + key.Public()} {
		if _, err := nodekey.ParsePublic(bad); err == nil {
			t.Errorf("%.100q is accepted", bad)
		}
	}
	for _, bad := range [][]byte{nil, make([]byte, 32), make([]byte, 33)} {
		if _, err := nodekey.Parse(bad); err == nil {
			t.Errorf("%x is accepted", bad)
		}
	}
}

// FuzzParsePublic: no text makes it panic, and no two texts are the same key.
func FuzzParsePublic(f *testing.F) {
	f.Add(mustKey(f).Public())
	f.Add("BAAA")
	f.Fuzz(func(t *testing.T, text string) {
		public, err := nodekey.ParsePublic(text)
		if err != nil {
			return
		}
		point, err := public.Bytes()
		if err != nil || len(point) != 65 || len(text) != 87 {
			t.Fatalf("%q is the point %x, %v", text, point, err)
		}
	})
}
