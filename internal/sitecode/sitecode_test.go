package sitecode_test

import (
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/internal/sitecode"
)

// TestCodes draws codes, and reads them as people type them. Only the secret of a code matches its hash.
func TestCodes(t *testing.T) {
	t.Parallel()
	text, id, hash, err := sitecode.Draw()
	if err != nil {
		t.Fatal(err)
	}
	other, otherID, otherHash, err := sitecode.Draw()
	if err != nil || other == text || !sitecode.IsID(id) || !sitecode.IsID(otherID) || string(hash.Salt) == string(otherHash.Salt) {
		t.Fatalf("%q and %q, %v", text, other, err)
	}
	if err := sitecode.CheckHash(hash); err != nil {
		t.Fatal(err)
	}
	for _, typed := range []string{text, strings.ToUpper(text), strings.ReplaceAll(text, "-", ""), " " + strings.ReplaceAll(text, "-", " ") + "\n",
		strings.NewReplacer("0", "o", "1", "L").Replace(text)} {
		got, secret, err := sitecode.Parse(typed)
		if err != nil || got != id || !sitecode.Matches(secret, hash) {
			t.Errorf("%q: id %q, %v", typed, got, err)
		}
		if sitecode.Matches(secret, otherHash) {
			t.Errorf("%q matches the hash of %q", typed, other)
		}
	}
	for _, bad := range []string{"", "k7m2", "k7m2-9fqh-x3w", "k7m2-9fqh-x3werr", "k7m2-9fqh-x3w\u00e9", "k7m2_9fqh_x3wr", strings.Repeat("k", 1<<16)} {
		if _, _, err := sitecode.Parse(bad); fleet.CodeOf(err) != fleet.CodeInvalid || strings.Contains(err.Error(), "9fqh-x3we") {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
}

// TestHashes refuses hashes that cost more than they may, or are cut short; and knows an id.
func TestHashes(t *testing.T) {
	t.Parallel()
	salt, sum := make([]byte, 16), make([]byte, 32)
	for _, bad := range []fleet.SiteCodeHash{
		{}, {Salt: salt, Hash: sum}, {Salt: salt, Hash: sum, Rounds: sitecode.MaxRounds + 1}, {Salt: salt[:8], Hash: sum, Rounds: 1}, {Salt: salt, Hash: sum[:31], Rounds: 1},
	} {
		if err := sitecode.CheckHash(bad); fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if !sitecode.IsID("k7m2") || sitecode.IsID("k7m") || sitecode.IsID("k7mo") || sitecode.IsID("K7M2") {
		t.Error("the ids")
	}
}

// FuzzParse: no text makes it panic, and what it accepts is the same again without dashes.
func FuzzParse(f *testing.F) {
	f.Add("k7m2-9fqh-x3wr")
	f.Add("K7M2 9FQH X3WR")
	f.Fuzz(func(t *testing.T, text string) {
		id, secret, err := sitecode.Parse(text)
		if err != nil {
			return
		}
		if again, same, err := sitecode.Parse(id + secret); err != nil || again != id || same != secret || !sitecode.IsID(id) {
			t.Fatalf("%q: %q and %q, then %q and %q, %v", text, id, secret, again, same, err)
		}
	})
}
