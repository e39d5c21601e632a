package syncproto_test

import (
	"reflect"
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/syncproto"
)

func TestIdentitiesGolden(t *testing.T) {
	held := []syncproto.DeliveredIdentity{{Alloc: "a", Task: "t", Name: "n", KeyID: "k", Issued: 1, Expires: 2}, {Alloc: "a", Task: "t", Name: "m"}}
	b, err := syncproto.EncodeIdentities(held)
	if want := `[{"Alloc":"a","Task":"t","Name":"n","KeyID":"k","Issued":1,"Expires":2},{"Alloc":"a","Task":"t","Name":"m"}]`; err != nil || string(b) != want {
		t.Fatalf("%s, %v", b, err)
	}
	if back, err := syncproto.DecodeIdentities(b); err != nil || !reflect.DeepEqual(back, held) {
		t.Fatalf("%+v, %v", back, err)
	}
	for _, bad := range []string{"", "[", `{"Alloc": 1}`, strings.Repeat(" ", syncproto.MaxHeldIdentities+1)} {
		if _, err := syncproto.DecodeIdentities([]byte(bad)); fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
}

// FuzzDecodeIdentities: no bytes make it panic, and what it accepts comes back the same.
func FuzzDecodeIdentities(f *testing.F) {
	f.Add([]byte(`[{"Alloc":"a","Task":"t","Name":"n","KeyID":"k","Issued":1}]`))
	f.Add([]byte(`[[[[`))
	f.Fuzz(func(t *testing.T, b []byte) {
		held, err := syncproto.DecodeIdentities(b)
		if err != nil {
			return
		}
		again, err := syncproto.EncodeIdentities(held)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := syncproto.DecodeIdentities(again); err != nil || !reflect.DeepEqual(back, held) {
			t.Fatalf("%v came back as %v, %v", held, back, err)
		}
	})
}
