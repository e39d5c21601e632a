package secrets

import (
	"maps"
	"testing"

	"skerry/fleet"
	"skerry/internal/codec"
)

// FuzzDecodeItems: no bytes make it panic, and what it accepts comes back the same.
func FuzzDecodeItems(f *testing.F) {
	f.Add(codec.AppendLean(nil, fleet.VariableItems{"user": "a", "password": ""}))
	f.Add([]byte{0xbf, 0xff})
	f.Add([]byte{0xba, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, plain []byte) {
		items, err := decodeItems(plain)
		if err != nil {
			return
		}
		if again, err := decodeItems(codec.AppendLean(nil, items)); err != nil || !maps.Equal(again, items) {
			t.Fatalf("%v came back as %v, %v", items, again, err)
		}
	})
}
