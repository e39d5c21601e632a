package state_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/hub/state"
)

// A node that is revoked is down for good: each report and request of its edge is refused, and its allocations are
// given up.
func TestRevokeExpelsANode(t *testing.T) {
	w := clustered(newTestHarness(t))
	n, other := w.addReadyNode("a"), w.addReadyNode("b")
	w.mustApply(state.Certificate{Serial: "1a", Subject: "edge:" + string(n), NotAfter: 1})
	w.mustApply(state.Certificate{Serial: "2b", Subject: "edge:" + string(other), NotAfter: 1})
	w.registerJob(job("web", fleet.JobTypeService, 3))
	ids := w.placeAllocs("web", n, 3)
	w.reportStatus(n, fleet.ClientRunning, ids[:2]...)
	w.reportStatus(n, fleet.ClientComplete, ids[2])
	w.appendJournalRows(n, statusTransition(ids[0], fleet.ClientFailed))
	late := w.unappliedBatch(n)
	w.mustRefuse(fleet.CodeNotFound, state.NodeRevoke{NodeID: "none", Now: w.nowNanos()})

	before := w.getNode(n)
	res := w.mustApply(state.NodeRevoke{NodeID: n, Reason: "stolen", EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()})
	if len(res.Evals) != 1 {
		t.Fatalf("it gave %d evaluations, want one of its job", len(res.Evals))
	}
	got := w.getNode(n)
	if got.Status != fleet.NodeDown || got.StatusDescription != "revoked: stolen" || got.Epoch != before.Epoch+1 ||
		got.SchedulingEligibility != fleet.NodeIneligible || got.Revoked == nil || !slices.Equal(got.Revoked.Serials, []string{"1a"}) {
		t.Fatalf("node: %+v, %+v", got, got.Revoked)
	}
	running := slices.Sorted(slices.Values(ids[:2]))
	if !slices.Equal(got.Orphans, running) {
		t.Fatalf("orphans %v, want %v", got.Orphans, running)
	}
	if res := w.applyRowBatches(late); res[0].Code != fleet.CodeStaleEpoch {
		t.Fatalf("its session's rows: %+v", res[0])
	}
	everythingRefused := func() {
		t.Helper()
		d := description(n, "a")
		w.mustRefuse(fleet.CodeRevoked, state.NodeRegister{Node: d, Now: w.nowNanos()})
		w.mustRefuse(fleet.CodeRevoked, state.SessionOpen{NodeID: n, Session: 99, Node: &d, Now: w.nowNanos()})
		w.mustRefuse(fleet.CodeRevoked, state.Certificate{Serial: "9f", Subject: "edge:" + string(n), NotAfter: 1, Replaces: "1a"})
	}
	everythingRefused()
	w.updateAllocs(w.allocsWithStatus(fleet.ClientLost, running...)...)
	w.mustApply(state.NodeRevoke{NodeID: n, Reason: "once more", Now: w.nowNanos()})
	if r, _ := w.store.View().Revocation(n); r.Reason != "stolen" {
		t.Fatalf("revoked once more: %+v", r)
	}
	if w.getNode(other).Status != fleet.NodeReady {
		t.Fatal("the other node is not ready any more")
	}

	reopened := state.New()
	if err := reopened.Restore(bytes.NewReader(mustPersist(t, w.store))); err != nil {
		t.Fatal(err)
	}
	if a, b := describe(t, w.store.View()), describe(t, reopened.View()); a != b {
		t.Fatalf("a snapshot lost something:\n%s", diff(a, b))
	}
	w.mustApply(state.NodePurge{NodeID: n, EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()})
	everythingRefused()
}

// TestCheckNoticesHalfARevocation changes the record of a node so that it and the list of revocations differ.
func TestCheckNoticesHalfARevocation(t *testing.T) {
	for name, c := range map[string]struct {
		other  bool // change the other node, which is not revoked
		change func(*fleet.Node)
	}{
		"not in the record": {false, func(n *fleet.Node) { n.Revoked = nil }},
		"not in the list":   {true, func(n *fleet.Node) { n.Revoked = &fleet.Revocation{Reason: "stolen"} }},
		"still ready":       {false, func(n *fleet.Node) { n.Status, n.DisconnectedAt = fleet.NodeReady, 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			w := clustered(newTestHarness(t))
			id, other := w.addReadyNode("a"), w.addReadyNode("b")
			w.mustApply(state.NodeRevoke{NodeID: id, Reason: "stolen", EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()})
			if c.other {
				id = other
			}
			w.store.ChangeNode(w.index+1, id, c.change)
			if err := w.store.View().Check(); err == nil || !strings.Contains(err.Error(), "revoked by its record") {
				t.Errorf("the check says %v", err)
			}
		})
	}
}

// A node that was purged can be revoked for the certificate that it has.
func TestRevokeOfAPurgedNode(t *testing.T) {
	w := clustered(newTestHarness(t))
	n := w.addReadyNode("a")
	w.mustApply(state.Certificate{Serial: "1a", Subject: "edge:" + string(n), NotAfter: 1})
	w.missHeartbeats(n)
	w.mustApply(state.NodePurge{NodeID: n, EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()})
	w.mustApply(state.NodeRevoke{NodeID: n, EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()})
	w.mustRefuse(fleet.CodeRevoked, state.NodeRegister{Node: description(n, "a"), Now: w.nowNanos()})
}

// The restore of a snapshot from before the revocation does not admit the node again.
func TestRestoreKeepsRevocations(t *testing.T) {
	w := clustered(newTestHarness(t))
	n := w.addReadyNode("a")
	w.registerJob(job("web", fleet.JobTypeService, 1))
	ids := w.placeAllocs("web", n, 1)
	w.reportStatus(n, fleet.ClientRunning, ids...)
	snapshot := mustPersist(t, w.store)
	w.mustApply(state.NodeRevoke{NodeID: n, EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()})
	w.restoreSnapshot(snapshot)
	if got := w.getNode(n); got.Status != fleet.NodeDown || got.Revoked == nil || !slices.Equal(got.Orphans, ids) {
		t.Fatalf("node after the restore: %+v", got)
	}
	d := description(n, "a")
	w.mustRefuse(fleet.CodeRevoked, state.SessionOpen{NodeID: n, Session: 99, Node: &d, Now: w.nowNanos()})
}
