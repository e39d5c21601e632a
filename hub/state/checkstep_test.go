package state_test

import (
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/hub/state"
)

// TestCheckStepNoticesRowsOfANodeThatIsAway compares two states between which rows of a node
// were applied, though it was away all the time.
func TestCheckStepNoticesRowsOfANodeThatIsAway(t *testing.T) {
	away := func(rows int) *state.View {
		w := newTestHarness(t)
		id := w.addReadyNode("n1")
		for range rows {
			w.appendJournalRows(id, fleet.Transition{Kind: fleet.TransitionAgent})
		}
		if rows > 0 {
			w.applyRowBatches(w.unappliedBatch(id))
		}
		w.missHeartbeats(id)
		return w.store.View()
	}
	if err := state.CheckStep(away(0), away(2)); err == nil || !strings.Contains(err.Error(), "were applied while it was down") {
		t.Errorf("rows of a node that is down: %v", err)
	}
	if err := state.CheckStep(away(2), away(2)); err != nil {
		t.Errorf("nothing happened: %v", err)
	}
}
