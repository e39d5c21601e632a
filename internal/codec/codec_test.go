package codec_test

import (
	"bytes"
	"encoding/hex"
	"testing"
	"time"

	"skerry/internal/codec"
)

type sample struct {
	B string
	A map[string]int
	T time.Time
	F float64
}

var value = sample{"b", map[string]int{"bb": 1, "a": 2}, time.Date(2026, 5, 1, 12, 0, 0, 5, time.UTC), 0.5}

func mustHex(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestMarshalGolden keeps the bytes of each encoding.
func TestMarshalGolden(t *testing.T) {
	sorted, err := codec.Marshal(value)
	if want := mustHex(t, "a46141a2616102626262016142616261"+"46f93800"+"61541a69f495c0"); err != nil || !bytes.Equal(sorted, want) {
		t.Errorf("deterministic: %x, %v; want %x", sorted, err, want)
	}
	one := value
	one.A = map[string]int{"a": 2}
	unsorted, err := codec.MarshalUnsorted(one)
	if want := mustHex(t, "a4614261626141a16161026154781e"+hex.EncodeToString([]byte("2026-05-01T12:00:00.000000005Z"))+"6146fb3fe0000000000000"); err != nil || !bytes.Equal(unsorted, want) {
		t.Errorf("unsorted: %x, %v; want %x", unsorted, err, want)
	}
	if got, want := codec.AppendLean([]byte{1}, sample{B: "b"}), mustHex(t, "01a161426162"); !bytes.Equal(got, want) {
		t.Errorf("lean: %x; want %x", got, want)
	}
}

// TestAppendLeanKeepsEarlierResults encodes twice: the second call must not write into what the first returned.
func TestAppendLeanKeepsEarlierResults(t *testing.T) {
	first := codec.AppendLean(nil, sample{B: "b"})
	codec.AppendLean(nil, sample{B: "c"})
	if want := mustHex(t, "a161426162"); !bytes.Equal(first, want) {
		t.Errorf("after a second call the first result is %x; want %x", first, want)
	}
}

// TestDecoderRefuses has each limit refuse what is just beyond it, and each form that could
// be read in two ways.
func TestDecoderRefuses(t *testing.T) {
	small := codec.Limits{Nesting: 4, Elements: 16, Pairs: 16, Items: 40}
	strict := small
	strict.RefuseUnknown = true
	anyText := small
	anyText.AnyText = true
	for _, c := range []struct {
		name, item string
		limits     codec.Limits
		refused    bool
	}{
		{"four deep", "81818180", small, false},
		{"five deep", "8181818180", small, true},
		{"sixteen elements", "90" + "00000000000000000000000000000000", small, false},
		{"seventeen elements", "91" + "0000000000000000000000000000000000", small, true},
		{"many items in all", "84" + "90000000000000000000000000000000009000000000000000000000000000000000900000000000000000000000000000000080", small, true},
		{"a key twice", "a2616101616102", small, true},
		{"an indefinite length", "9fff", small, true},
		{"a tag", "c100", small, true},
		{"text that is not UTF-8", "61ff", small, true},
		{"any text", "61ff", anyText, false},
		{"trailing bytes", "0000", small, true},
	} {
		var into any
		if err := codec.NewDecoder(c.limits).Unmarshal(mustHex(t, c.item), &into); (err != nil) != c.refused {
			t.Errorf("%s: %v, refused should be %t", c.name, err, c.refused)
		}
	}
	var into sample
	unknown := mustHex(t, "a1615a01")
	if err := codec.NewDecoder(small).Unmarshal(unknown, &into); err != nil {
		t.Errorf("an unknown field is not skipped: %v", err)
	}
	if err := codec.NewDecoder(strict).Unmarshal(unknown, &into); !codec.IsUnknownField(err) {
		t.Errorf("an unknown field gives %v", err)
	}
}
