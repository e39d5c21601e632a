package placement_test

import (
	"testing"

	"skerry/fleet"
	"skerry/fleet/placement"
)

// TestQuantities compares attributes of devices in their units, as people write them for Nomad.
func TestQuantities(t *testing.T) {
	for _, tc := range []struct {
		left, op, right string
		want            bool
	}{
		{"16384 MiB", ">=", "16 GiB", true},
		{"16384 MiB", "=", "16 GiB", true},
		{"16384 MiB", "!=", "16GiB", false},
		{"16384 MiB", ">", "16 GiB", false},
		{"15360 MiB", ">=", "16 GiB", false},
		{"9 GiB", "<", "10 GiB", true},
		{"1590 MHz", ">", "1.5 GHz", true},
		{"70 W", "<=", "0.1 kW", true},
		{"15760 MB/s", ">", "15 GB/s", true},
		{"16 GiB", "=", "16 GHz", false},
		{"16 GiB", ">", "9 parsecs", false}, // by letters
		{"16", "=", "16.0", false},          // plain numbers are equal as texts
		{"GiB", "=", "GiB", true},
		{"1.2.3 GiB", "=", "1.2.3 GiB", true},
	} {
		cond, err := placement.Compile(fleet.Constraint{LTarget: "${attr.x}", Operand: tc.op, RTarget: tc.right})
		if err != nil {
			t.Fatalf("%+v: %v", tc, err)
		}
		if got := cond.Holds(&fleet.Node{Attributes: map[string]string{"x": tc.left}}); got != tc.want {
			t.Errorf("%s %s %s: %v", tc.left, tc.op, tc.right, got)
		}
	}
}
