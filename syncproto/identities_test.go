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

func TestDeliveredIdentityIsChecked(t *testing.T) {
	const name = 256 // how many bytes a name may have
	good := func() *syncproto.DeliveredIdentity {
		return &syncproto.DeliveredIdentity{Alloc: "a", Task: "t", Name: "n", Token: "token"}
	}
	long := func(n int) string { return strings.Repeat("x", n) }
	for what, c := range map[string]struct {
		change func(d *syncproto.DeliveredIdentity)
		bad    bool
	}{
		"as it is": {func(*syncproto.DeliveredIdentity) {}, false},
		"as long as may be": {func(d *syncproto.DeliveredIdentity) {
			d.Alloc, d.Task, d.Name, d.Token = fleet.AllocID(long(name)), long(name), long(name), long(syncproto.MaxIdentityToken)
		}, false},
		"of a service":           {func(d *syncproto.DeliveredIdentity) { d.Task, d.Name = "", "consul-service_web-80" }, false},
		"without a token":        {func(d *syncproto.DeliveredIdentity) { d.Token = "" }, true},
		"without an allocation":  {func(d *syncproto.DeliveredIdentity) { d.Alloc = "" }, true},
		"without a task":         {func(d *syncproto.DeliveredIdentity) { d.Task = "" }, true},
		"without a name":         {func(d *syncproto.DeliveredIdentity) { d.Name = "" }, true},
		"too long a token":       {func(d *syncproto.DeliveredIdentity) { d.Token = long(syncproto.MaxIdentityToken + 1) }, true},
		"too long an allocation": {func(d *syncproto.DeliveredIdentity) { d.Alloc = fleet.AllocID(long(name + 1)) }, true},
		"too long a task":        {func(d *syncproto.DeliveredIdentity) { d.Task = long(name + 1) }, true},
		"too long a name":        {func(d *syncproto.DeliveredIdentity) { d.Name = long(name + 1) }, true},
	} {
		d := good()
		c.change(d)
		if err := d.Check(); (err != nil) != c.bad || err != nil && fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Errorf("%s: %v", what, err)
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
