package sealing_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"skerry/internal/sealing"
)

func mustKey(tb testing.TB, raw []byte) sealing.Key {
	tb.Helper()
	k, err := sealing.NewKey(raw)
	if err != nil {
		tb.Fatal(err)
	}
	return k
}

// TestSeal opens what was sealed, and refuses everything else: other keys, other purposes, changed or short bytes.
func TestSeal(t *testing.T) {
	key, other := mustKey(t, sealing.DrawKey()), mustKey(t, sealing.DrawKey())
	for _, plain := range []string{"", "s3cret"} {
		sealed := key.Seal([]byte(plain), []byte("purpose"))
		if bytes.Equal(sealed, key.Seal([]byte(plain), []byte("purpose"))) {
			t.Error("two seals are equal: the nonce is not drawn")
		}
		if got, err := key.Open(sealed, []byte("purpose")); err != nil || string(got) != plain {
			t.Errorf("%q came back as %q, %v", plain, got, err)
		}
		if _, err := key.Open(sealed, []byte("another")); !errors.Is(err, sealing.ErrChanged) {
			t.Errorf("for another purpose: %v", err)
		}
		if _, err := other.Open(sealed, []byte("purpose")); !errors.Is(err, sealing.ErrChanged) {
			t.Errorf("with another key: %v", err)
		}
		for i := range sealed {
			changed := bytes.Clone(sealed)
			changed[i] ^= 1
			if _, err := key.Open(changed, []byte("purpose")); err == nil || (i == 0) != errors.Is(err, sealing.ErrVersion) {
				t.Errorf("byte %d was changed: %v", i, err)
			}
			if _, err := key.Open(sealed[:i], []byte("purpose")); err == nil {
				t.Errorf("cut to %d bytes: it opens", i)
			}
		}
		nonce, data := key.SealApart([]byte(plain), []byte("purpose"))
		if got, err := key.OpenApart(nonce, data, []byte("purpose")); err != nil || string(got) != plain {
			t.Errorf("apart %q came back as %q, %v", plain, got, err)
		}
		if _, err := key.OpenApart(nonce[1:], data, []byte("purpose")); !errors.Is(err, sealing.ErrCutShort) {
			t.Errorf("a short nonce: %v", err)
		}
		if got, err := key.OpenOnly(key.SealOnly([]byte(plain))); err != nil || string(got) != plain {
			t.Errorf("only %q came back as %q, %v", plain, got, err)
		}
	}
	for _, n := range []int{0, 16, 31, 33} {
		if _, err := sealing.NewKey(make([]byte, n)); err == nil {
			t.Errorf("a key of %d bytes is accepted", n)
		}
	}
}

// TestFormats opens what another implementation sealed in the formats of earlier releases, which never change.
func TestFormats(t *testing.T) {
	key := mustKey(t, bytes.Repeat([]byte{7}, sealing.KeyBytes))
	sealed, err := hex.DecodeString(earlierSeal)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := key.Open(sealed, []byte("purpose")); err != nil || string(got) != "s3cret" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := key.OpenApart(sealed[1:13], sealed[13:], []byte("purpose")); err != nil || string(got) != "s3cret" {
		t.Errorf("apart: %q, %v", got, err)
	}
	if got := hex.EncodeToString(key.SealOnly([]byte("s3cret"))); got != earlierOnly {
		t.Errorf("the only text is sealed as %s", got)
	}
}

func FuzzOpen(f *testing.F) {
	key := mustKey(f, bytes.Repeat([]byte{7}, sealing.KeyBytes))
	f.Add(key.Seal([]byte("plain"), nil))
	f.Fuzz(func(t *testing.T, sealed []byte) {
		if plain, err := key.Open(sealed, []byte("bound")); err == nil {
			t.Errorf("opened %q", plain)
		}
	})
}

// Texts that another implementation of AES-256-GCM sealed: "s3cret" with a key of 32 sevens.
const (
	earlierSeal = "01000102030405060708090a0b6bb28a02787de8f4d05b0bf68ba5312913cdc78118d3" // bound to "purpose"
	earlierOnly = "12ebc7c09ee6114e346bfbb7315fdfe0f12380e1d4aa"
)
