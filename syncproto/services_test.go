package syncproto_test

import (
	"reflect"
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/syncproto"
)

func TestServicesGolden(t *testing.T) {
	held := []syncproto.DeliveredService{{ID: "a", Sum: []byte{1, 2}}, {ID: "b", Name: "till", Port: 80, TCP: true}}
	b, err := syncproto.EncodeServices(held)
	if want := `[{"ID":"a","Sum":"AQI="},{"ID":"b","Name":"till","Port":80,"TCP":true}]`; err != nil || string(b) != want {
		t.Fatalf("%s, %v", b, err)
	}
	if back, err := syncproto.DecodeServices(b); err != nil || !reflect.DeepEqual(back, held) {
		t.Fatalf("%+v, %v", back, err)
	}
	for _, bad := range []string{"", "[", `{"ID": 1}`, strings.Repeat(" ", syncproto.MaxHeldServices+1)} {
		if _, err := syncproto.DecodeServices([]byte(bad)); fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
}

// TestServicesAreBound: each bound of a delivered service refuses one beyond it, and one at the bound is accepted.
func TestServicesAreBound(t *testing.T) {
	good := syncproto.DeliveredService{ID: "a", Name: "till", Namespace: "default", Node: "n", Port: fleet.MaxPort}
	rest := syncproto.MaxService - len("a"+"till"+"default"+"n")
	for name, change := range map[string]func(*syncproto.DeliveredService){
		"no id":        func(d *syncproto.DeliveredService) { d.ID = "" },
		"no name":      func(d *syncproto.DeliveredService) { d.Name = "" },
		"no DNS name":  func(d *syncproto.DeliveredService) { d.Name = "a.b" },
		"no node":      func(d *syncproto.DeliveredService) { d.Node = "" },
		"no namespace": func(d *syncproto.DeliveredService) { d.Namespace = "" },
		"port":         func(d *syncproto.DeliveredService) { d.Port++ },
		"minus":        func(d *syncproto.DeliveredService) { d.Port = -1 },
		"sum":          func(d *syncproto.DeliveredService) { d.Sum = make([]byte, 33) },
		"tags":         func(d *syncproto.DeliveredService) { d.Tags = make([]string, 65) },
		"long tags":    func(d *syncproto.DeliveredService) { d.Tags = []string{"x", strings.Repeat("t", rest)} },
		"long address": func(d *syncproto.DeliveredService) { d.Address = strings.Repeat("a", rest+1) },
	} {
		d := good
		change(&d)
		if err := d.Check(); fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	good.Tags = []string{strings.Repeat("t", rest)}
	for _, d := range []syncproto.DeliveredService{good, {ID: "a", Removed: true}} {
		if err := d.Check(); err != nil {
			t.Error(err)
		}
	}
}

// FuzzDecodeServices: no bytes make it panic, and what it accepts comes back the same.
func FuzzDecodeServices(f *testing.F) {
	f.Add([]byte(`[{"ID":"a","Sum":"AQI=","Name":"till","Tags":["x"]}]`))
	f.Add([]byte(`[[[[`))
	f.Fuzz(func(t *testing.T, b []byte) {
		held, err := syncproto.DecodeServices(b)
		if err != nil {
			return
		}
		for i := range held {
			_ = held[i].Check()
		}
		again, err := syncproto.EncodeServices(held)
		if err != nil {
			t.Fatal(err)
		}
		back, err := syncproto.DecodeServices(again)
		if third, failed := syncproto.EncodeServices(back); err != nil || failed != nil || string(third) != string(again) {
			t.Fatalf("%v came back as %v, %v", held, back, err)
		}
	})
}
