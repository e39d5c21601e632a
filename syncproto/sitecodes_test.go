package syncproto_test

import (
	"reflect"
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/syncproto"
)

func TestSiteCodesGolden(t *testing.T) {
	held := []syncproto.DeliveredSiteCode{{ID: "k7m2", ModifyIndex: 9}, {ID: "a1b2", ModifyIndex: 3, Name: "Ann", Expires: 2}}
	b, err := syncproto.EncodeSiteCodes(held)
	if want := `[{"ID":"k7m2","ModifyIndex":9},{"ID":"a1b2","ModifyIndex":3,"Name":"Ann","Expires":2}]`; err != nil || string(b) != want {
		t.Fatalf("%s, %v", b, err)
	}
	if back, err := syncproto.DecodeSiteCodes(b); err != nil || !reflect.DeepEqual(back, held) {
		t.Fatalf("%+v, %v", back, err)
	}
	for _, bad := range []string{"", "[", `{"ID": 1}`, strings.Repeat(" ", syncproto.MaxHeldSiteCodes+1)} {
		if _, err := syncproto.DecodeSiteCodes([]byte(bad)); fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
	if _, err := syncproto.DecodeSiteCodes([]byte(strings.Repeat(" ", syncproto.MaxHeldSiteCodes-2) + "[]")); err != nil {
		t.Errorf("as many bytes as may be: %v", err)
	}
	for _, bad := range []syncproto.DeliveredSiteCode{
		{}, {ID: strings.Repeat("k", 200)}, {ID: "k7m2", Name: strings.Repeat("n", 200)}, {ID: "k7m2", Capabilities: make([]string, 20)}, {ID: "k7m2", Capabilities: []string{strings.Repeat("c", 200)}},
	} {
		if err := bad.Check(); fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// FuzzDecodeSiteCodes: no bytes make it panic, and what it accepts comes back the same.
func FuzzDecodeSiteCodes(f *testing.F) {
	f.Add([]byte(`[{"ID":"k7m2","ModifyIndex":9,"Name":"Ann"}]`))
	f.Add([]byte(`[[[[`))
	f.Fuzz(func(t *testing.T, b []byte) {
		held, err := syncproto.DecodeSiteCodes(b)
		if err != nil {
			return
		}
		again, err := syncproto.EncodeSiteCodes(held)
		if err != nil {
			t.Fatal(err)
		}
		back, err := syncproto.DecodeSiteCodes(again)
		if third, failed := syncproto.EncodeSiteCodes(back); err != nil || failed != nil || string(third) != string(again) {
			t.Fatalf("%v came back as %v, %v", held, back, err)
		}
	})
}
