package machinekey_test

import (
	"bytes"
	"testing"

	"skerry/edge/machinekey"
	"skerry/fleet"
)

func TestSealAndOpen(t *testing.T) {
	k, text := machinekey.New()
	again, err := machinekey.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	sealed := k.Seal([]byte("geheim"), []byte("a"))
	if plain, err := again.Open(sealed, []byte("a")); err != nil || string(plain) != "geheim" || bytes.Contains(sealed, plain) {
		t.Fatalf("%q, %v", plain, err)
	}
	other, _ := machinekey.New()
	for name, open := range map[string]func() ([]byte, error){
		"another key":     func() ([]byte, error) { return other.Open(sealed, []byte("a")) },
		"something else":  func() ([]byte, error) { return k.Open(sealed, []byte("b")) },
		"changed":         func() ([]byte, error) { return k.Open(append(bytes.Clone(sealed[:20]), 1), []byte("a")) },
		"cut short":       func() ([]byte, error) { return k.Open(sealed[:5], []byte("a")) },
		"another version": func() ([]byte, error) { return k.Open(append([]byte{2}, sealed[1:]...), []byte("a")) },
	} {
		if plain, err := open(); fleet.CodeOf(err) != fleet.CodeInvalid || plain != nil {
			t.Errorf("%s: %q, %v", name, plain, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	_, text := machinekey.New()
	f.Add(text)
	f.Add([]byte("skerry-machine-key-1 AAAA"))
	f.Add([]byte("skerry-machine-key-2 tpm AAAA"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if k, err := machinekey.Parse(text); (k == nil) == (err == nil) {
			t.Fatal(k, err)
		}
	})
}
