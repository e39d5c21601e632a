package vault

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"skerry/edge/logins"
)

// FuzzAnswers: no answer of a server makes its decoders panic.
func FuzzAnswers(f *testing.F) {
	for _, s := range []string{`{"version":"1.18.3"}`, `{"errors":["no"]}`, `{"data":{"a":1},"lease_id":"x","lease_duration":9223372036854775807}`, `{"lease_duration":-1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if attributes, err := decodeHealth(b); (err == nil) != (attributes != nil) {
			t.Fatalf("%q, %v", attributes, err)
		}
		if s, err := decodeSecret(b); err == nil {
			if s.LeaseDuration < 0 {
				t.Fatalf("%+v", s)
			}
			if pause := new(Client).ContentPause(logins.Content{Body: bytes.Clone(b)}); pause < 5*time.Second {
				t.Fatalf("%s: pause %v", b, pause)
			}
			s.Keys()
		}
	})
}

// FuzzParsePath: what is taken stays below /v1/, and is the same when it is read from the journal.
func FuzzParsePath(f *testing.F) {
	for _, s := range []string{"kv/data/a", "/kv/a?version=2", "a/../b", "a//b", "%2e%2e/b", "a b", "ä", "a#b"} {
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, path string, list bool) {
		q, err := parsePath(path, list)
		if err != nil {
			return
		}
		if got := parseName(q.requestName()); got != q || q.path == "" || strings.HasPrefix(q.path, "/") || strings.ContainsAny(q.path, "?# \n") {
			t.Fatalf("%q: %+v, %+v", path, q, got)
		}
		for _, part := range strings.Split(q.path, "/") {
			if part == ".." || part == "." {
				t.Fatalf("%q: %+v", path, q)
			}
		}
	})
}
