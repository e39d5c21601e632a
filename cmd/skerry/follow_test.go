package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/hub/api"
)

// TestFollowFoldsManyChanges follows a job of 400 allocations: those that change alike share a
// line, and one that fails is named with its reason.
func TestFollowFoldsManyChanges(t *testing.T) {
	var out bytes.Buffer
	s := newScreen(&out)
	allocs := make([]api.AllocStub, 400)
	for i := range allocs {
		allocs[i] = api.AllocStub{ID: fleet.AllocID(fmt.Sprintf("%08d-0", i)), Name: fmt.Sprintf("shop.till[%d]", i), TaskGroup: "till",
			NodeName: fmt.Sprintf("shop-%d", i), DesiredStatus: fleet.DesiredRun, ClientStatus: fleet.ClientPending}
	}
	s.changes(allocs)
	for i := range allocs {
		allocs[i].ClientStatus = fleet.ClientRunning
	}
	allocs[7].ClientStatus, allocs[7].ClientDescription = fleet.ClientFailed, "no such program"
	s.changes(allocs)
	s.changes(allocs)
	want := `400 allocations of group "till" are pending
399 allocations of group "till" are running
allocation 00000007 shop.till[7] on shop-7 is failed: no such program
`
	var got strings.Builder
	for line := range strings.Lines(out.String()) {
		_, text, _ := strings.Cut(line, "  ")
		got.WriteString(text)
	}
	if got.String() != want {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want)
	}
}
