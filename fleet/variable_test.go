package fleet_test

import (
	"encoding/json"
	"testing"
	"time"

	"skerry/fleet"
)

func TestVariableLockAsJSON(t *testing.T) {
	l := fleet.VariableLock{ID: "x", TTL: 90 * time.Second, LockDelay: time.Second}
	b, err := json.Marshal(l)
	if err != nil || string(b) != `{"ID":"x","TTL":"1m30s","LockDelay":"1s"}` {
		t.Fatalf("%s, %v", b, err)
	}
	var back fleet.VariableLock
	if err := json.Unmarshal(b, &back); err != nil || back != l {
		t.Fatalf("%+v, %v", back, err)
	}
}

func FuzzVariableLock(f *testing.F) {
	f.Add([]byte(`{"ID":"x","TTL":"15s","LockDelay":""}`))
	f.Add([]byte(`{"TTL":15}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var l fleet.VariableLock
		if json.Unmarshal(b, &l) != nil {
			return
		}
		again, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		var back fleet.VariableLock
		if err := json.Unmarshal(again, &back); err != nil || back != l {
			t.Fatalf("%+v came back as %+v, %v", l, back, err)
		}
	})
}
