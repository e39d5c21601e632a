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

func TestIsName(t *testing.T) {
	for text, want := range map[string]bool{
		"a": true, "Zz09": true, "a-b": true, "": false, "a_b": false, "a b": false, "a\n": false, "ä": false, "@": false, "[": false, "`": false, "{": false, "/": false, ":": false,
		"12345678": true, "123456789": false, "1234567ä": false,
	} {
		if got := fleet.IsName(text, 8, "-"); got != want {
			t.Errorf("%q: %t, want %t", text, got, want)
		}
	}
}
