package state_test

import (
	"slices"
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/hub/state"
)

// An allocation that an edge keeps and the cluster does not know stands in the node's record until it has ended there,
// or until the edge lists its allocations again.
func TestOrphansAreShownWhileTheyRun(t *testing.T) {
	w := newTestHarness(t)
	id := w.addReadyNode("n1")
	w.mustApply(state.NodeResync{NodeID: id, Epoch: 1, Reason: "keeps 2 allocations: a, b", Orphans: []fleet.AllocID{"a", "b"}, Now: w.nowNanos()})
	want := func(when string, orphans ...fleet.AllocID) {
		t.Helper()
		if n := w.getNode(id); !slices.Equal(n.Orphans, orphans) || n.StatusDescription != "" {
			t.Fatalf("%s: orphans %v, want %v; status description %q", when, n.Orphans, orphans, n.StatusDescription)
		}
	}
	want("listed", "a", "b")
	if e := w.getNode(id).Events; strings.Contains(e[len(e)-1].Message, "Resync") || !strings.Contains(e[len(e)-1].Message, "Node keeps 2") {
		t.Errorf("event %q", e[len(e)-1].Message)
	}
	before := w.getNode(id).ModifyIndex
	w.appendJournalRows(id,
		fleet.Transition{Kind: fleet.TransitionOperator, Alloc: "a", Message: "stopped on site"},
		fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: "b", ClientStatus: fleet.ClientRunning})
	w.applyRowBatches(w.unappliedBatch(id))
	want("while they run", "a", "b")
	w.appendJournalRows(id, fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: "a", ClientStatus: fleet.ClientComplete})
	w.applyRowBatches(w.unappliedBatch(id))
	want("one has ended", "b")
	if n := w.getNode(id); n.ModifyIndex == before {
		t.Error("who watches the node is not told")
	}
	w.openNextSession(id)
	want("a new session")
}
