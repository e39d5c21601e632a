package fleet_test

import (
	"fmt"
	"testing"

	"skerry/fleet"
)

func TestShortList(t *testing.T) {
	for n, want := range map[int]string{
		0: "", 1: "00000000", 5: "00000000, 00000001, 00000002, 00000003, 00000004",
		7: "00000000, 00000001, 00000002, 00000003, 00000004, and 2 more",
	} {
		var ids []fleet.NodeID
		for i := range n {
			ids = append(ids, fleet.NodeID(fmt.Sprintf("%08d-aaaa", i)))
		}
		if got := fleet.ShortList(ids); got != want {
			t.Errorf("%d ids: %q, want %q", n, got, want)
		}
	}
}
