package engine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"skerry/fleet"
)

// A mark is found wherever it begins and ends, unless its kind is allowed.
func TestMarksAreFound(t *testing.T) {
	m := NewSecretMarks()
	m.AddToken(SecretToken, "0f0e0d0c-1111-4222-8333-444455556666")
	m.AddToken(SecretOneTime, "0f0e0d0c-1111-4222-8333-aaaabbbbcccc") // it begins as the other
	m.AddJoinToken("skr1.hash.id.secret-of-a-join-token\n")
	m.AddIdentity("header.claims.signature")
	m.AddSiteCode("k7m2-9fqh-x3wr")
	m.AddSiteCode("")
	for text, want := range map[string]SecretKind{
		managementSecret: SecretToken, variableMark + "5": SecretVariable,
		"0f0e0d0c-1111-4222-8333-444455556666": SecretToken, "0f0e0d0c-1111-4222-8333-aaaabbbbcccc": SecretOneTime,
		"0f0e0d0c-1111-4222-8333-444455556667": "", "0f0e0d0c-1111-4222-8333-44445555666": "",
		"skr1.hash.id.secret-of-a-join-token": SecretJoinToken, "skr1.hash.id": "",
		"header.claims.signature": SecretIdentity, "header.claims.": "",
		"k7m2-9fqh-x3wr": SecretSiteCode, "k7m29fqhx3wr": SecretSiteCode, "k7m2": "",
		"": "",
	} {
		for before := range 2 * blocksOfMark {
			b := []byte(strings.Repeat("s", before) + text)
			if got := m.Find(b); got != want {
				t.Errorf("%q after %d bytes: %q, want %q", text, before, got, want)
			}
			if got := m.Find(append(b, managementSecret...), want); want != SecretToken && got != SecretToken {
				t.Errorf("%q after %d bytes, with a token: %q", text, before, got)
			}
			if got := m.Find(b, want); got != "" {
				t.Errorf("%q after %d bytes, which is allowed: %q", text, before, got)
			}
		}
	}
	if none := (*SecretMarks)(nil); none.Find([]byte(managementSecret)) != "" {
		t.Error("no marks find something")
	}
}

// In a long run the older half of the marks of one kind is forgotten, but for the management token's.
func TestOldMarksAreForgotten(t *testing.T) {
	m := NewSecretMarks()
	m.AddSiteCode("k7m2-9fqh-x3wr")
	text := func(i int) string { return fmt.Sprintf("a-token-%08d", i) }
	for i := range 2 * marksOfKind {
		m.AddToken(SecretToken, text(i))
	}
	for text, found := range map[string]bool{managementSecret: true, "9fqhx3wr": true, text(0): false, text(marksOfKind): false, text(2*marksOfKind - 1): true, text(3*marksOfKind/2 + 1): true} {
		if got := m.Find([]byte(text)); (got != "") != found {
			t.Errorf("%s: %q", text, got)
		}
	}
	if len(m.marks) > marksOfKind+4 || len(m.known) != len(m.marks) {
		t.Errorf("%d marks, %d known", len(m.marks), len(m.known))
	}
}

// BenchmarkFind searches text like that of logs and journals for some hundred marks.
func BenchmarkFind(b *testing.B) {
	m := NewSecretMarks()
	for range 300 {
		m.AddToken(SecretToken, fleet.NewUUID(nil))
	}
	var text bytes.Buffer
	rng := rand.New(rand.NewPCG(1, 2))
	for text.Len() < 1<<20 {
		fmt.Fprintf(&text, "time=2026-01-01T00:00:00Z level=INFO msg=%q alloc_id=%s\n", "the allocation runs", fleet.NewUUID(nil))
		for range 64 {
			text.WriteByte(byte(rng.Uint32()))
		}
	}
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		if m.Find(text.Bytes()) != "" {
			b.Fatal("it has a secret")
		}
	}
}
