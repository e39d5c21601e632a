//go:build !race

package consensus_test

import (
	"slices"
	"testing"

	"skerry/hub/state"
)

// Not for the race detector: raft 1.8.0 reads the peer that it replicates to
// without its lock where it logs and counts, and writes it here. The two that
// may get mixed are equal but for the address in a line of the log.
func TestAHubMovesToAnotherAddress(t *testing.T) {
	c := newCluster(t, nil)
	one, two, three := c.mustThree()
	two.stop()
	moved := c.mustStart("two", "", false)
	moved.mustJoin(t, one)
	one.mustApply(t, "after the move")
	mustHave(t, "after the move", moved, three)
	want := state.HubPeer{ID: "two", Addr: moved.addr, Voter: true}
	if peers, err := three.Peers(); err != nil || len(peers) != 3 || !slices.Contains(peers, want) {
		t.Fatalf("peers %+v, %v", peers, err)
	}
}
