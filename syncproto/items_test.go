package syncproto_test

import (
	"maps"
	"strconv"
	"testing"

	"skerry/syncproto"
)

// TestItems: a variable may have as many items as its 64 KiB hold.
func TestItems(t *testing.T) {
	items := map[string]string{}
	for i := range 13_000 {
		items[strconv.Itoa(i)] = ""
	}
	b, err := syncproto.EncodeItems(items)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := syncproto.DecodeItems(b); err != nil || !maps.Equal(back, items) {
		t.Fatal(len(back), err)
	}
}

func FuzzDecodeItems(f *testing.F) {
	f.Add([]byte{0xa1, 0x61, 0x61, 0x61, 0x31})
	f.Add([]byte{0xba, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		items, err := syncproto.DecodeItems(b)
		if err != nil {
			return
		}
		again, err := syncproto.EncodeItems(items)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := syncproto.DecodeItems(again); err != nil || !maps.Equal(back, items) {
			t.Fatalf("%v came back as %v, %v", items, back, err)
		}
	})
}
