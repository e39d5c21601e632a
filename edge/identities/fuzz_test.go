package identities

import (
	"encoding/base64"
	"encoding/json"
	"testing"

	"skerry/internal/codec"
	"skerry/syncproto"
	"skerry/syncproto/nodekey"
)

// FuzzDecodeRecord: no bytes make it panic, and it accepts no record of another task.
func FuzzDecodeRecord(f *testing.F) {
	d := syncproto.DeliveredIdentity{Alloc: "a", Task: "t", Name: "n", Token: "x", KeyID: "k", Issued: 1, Expires: 2, Offline: true}
	for _, r := range []record{{Version: 1, Identity: d}, {Version: 1, Identity: d, Renewed: &d}} {
		good, err := codec.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(good)
	}
	f.Fuzz(func(t *testing.T, plain []byte) {
		r, err := decodeRecord("identity/a/n/t", plain)
		if err != nil {
			return
		}
		for _, d := range []*syncproto.DeliveredIdentity{&r.Identity, r.newestToken()} {
			if d.Alloc != "a" || d.Name != "n" || d.Task != "t" {
				t.Fatalf("%+v", d)
			}
		}
	})
}

// FuzzDecodeKeys: no bytes make it panic, and what it accepts comes back the same.
func FuzzDecodeKeys(f *testing.F) {
	key, err := nodekey.New()
	if err != nil {
		f.Fatal(err)
	}
	for _, keys := range []signingKeys{{}, {current: key}, {next: key}, {key, key}} {
		good, err := keys.encodeKeys()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(good)
	}
	f.Fuzz(func(t *testing.T, plain []byte) {
		keys, err := decodeKeys(plain)
		if err != nil {
			return
		}
		again, err := keys.encodeKeys()
		if err != nil {
			t.Fatal(err)
		}
		if back, err := decodeKeys(again); err != nil || (back.current == nil) != (keys.current == nil) || (back.next == nil) != (keys.next == nil) {
			t.Fatalf("%v came back as %v, %v", keys, back, err)
		}
	})
}

// FuzzRenewClaims: no token makes it panic, and what it returns names the edge, whatever the token says.
func FuzzRenewClaims(f *testing.F) {
	for _, claims := range []string{`{"sub":"a","aud":["b"],"iss":"https://h"}`, `null`, `{"iss":1,"x":18446744073709551616,"skerry_offline":false}`, `[]`} {
		f.Add("h." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".s")
	}
	f.Fuzz(func(t *testing.T, token string) {
		claims, err := renewClaims(token, "n", 1, 2, "id")
		if err != nil {
			return
		}
		var got map[string]any
		if err := json.Unmarshal(claims, &got); err != nil || got["jti"] != "id" || got["skerry_node_id"] != "n" || got["skerry_offline"] != true || got["exp"] != 2.0 {
			t.Fatalf("%s, %v", claims, err)
		}
	})
}
