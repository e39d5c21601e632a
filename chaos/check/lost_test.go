package check_test

import (
	"slices"
	"testing"

	"skerry/chaos/check"
	"skerry/fleet"
)

// TestWhatAHubLetGoIsNotLost has rows that the journal no longer holds, and that the
// hub let go at its own bound, where the edge's clock went back to 1970 in between.
func TestWhatAHubLetGoIsNotLost(t *testing.T) {
	for _, try := range []struct {
		dropped uint64
		want    int
	}{{2, 0}, {3, 0}, {1, 1}} {
		p := sound()
		e := &p.Edges[0]
		var old []fleet.Transition
		for i := range 2 {
			old = append(old, fleet.Transition{
				Seq: fleet.Seq(i + 1), BootID: "0", Wall: int64(1_000_000 + i), Kind: fleet.TransitionTask, Alloc: alloc, Task: "main",
				Event: &fleet.TaskEvent{Type: fleet.TaskTerminated},
			})
		}
		e.Before = slices.Concat(old, e.Rows)
		for i := range p.Hubs {
			p.Hubs[i].Dropped = map[fleet.AllocID]uint64{alloc: try.dropped}
		}
		found := check.Quiet(p)
		if try.want == 0 && len(found) > 0 || try.want > 0 && len(found) != len(p.Hubs) {
			t.Errorf("the hub let %d go: %v", try.dropped, found)
		}
	}
}
