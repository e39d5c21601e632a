package identities

import (
	"testing"

	"skerry/internal/codec"
	"skerry/syncproto"
)

// FuzzDecodeRecord: no bytes make it panic, and it accepts no record of another task.
func FuzzDecodeRecord(f *testing.F) {
	good, err := codec.Marshal(record{1, syncproto.DeliveredIdentity{Alloc: "a", Task: "t", Name: "n", Token: "x", KeyID: "k", Issued: 1, Expires: 2}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Fuzz(func(t *testing.T, plain []byte) {
		d, err := decodeRecord("identity/a/n/t", plain)
		if err == nil && (d.Alloc != "a" || d.Name != "n" || d.Task != "t") {
			t.Fatalf("%+v", d)
		}
	})
}
