package state_test

import (
	"bytes"
	"slices"
	"testing"

	"skerry/fleet"
	"skerry/hub/state"
)

// A node that is revoked is down for good: nothing that its edge says or asks for is
// taken any more, and what it had is given up.
func TestRevokeExpelsANode(t *testing.T) {
	w := clustered(newT(t))
	n, other := w.node("a"), w.node("b")
	w.must(state.Certificate{Serial: "1a", Subject: "edge:" + string(n), NotAfter: 1})
	w.must(state.Certificate{Serial: "2b", Subject: "edge:" + string(other), NotAfter: 1})
	w.register(job("web", fleet.JobTypeService, 3))
	ids := w.place("web", n, 3)
	w.report(n, fleet.ClientRunning, ids[:2]...)
	w.report(n, fleet.ClientComplete, ids[2])
	w.journal(n, says(ids[0], fleet.ClientFailed))
	late := w.pending(n)
	w.refused(fleet.CodeNotFound, state.NodeRevoke{NodeID: "none", Now: w.nano()})

	before := w.getNode(n)
	res := w.must(state.NodeRevoke{NodeID: n, Reason: "stolen", EvalSeed: w.seed(), Now: w.nano()})
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
	if res := w.send(late); res[0].Code != fleet.CodeStaleEpoch {
		t.Fatalf("its session's rows: %+v", res[0])
	}
	everythingRefused := func() {
		t.Helper()
		d := description(n, "a")
		w.refused(fleet.CodeRevoked, state.NodeRegister{Node: d, Now: w.nano()})
		w.refused(fleet.CodeRevoked, state.SessionOpen{NodeID: n, Session: 99, Node: &d, Now: w.nano()})
		w.refused(fleet.CodeRevoked, state.Certificate{Serial: "9f", Subject: "edge:" + string(n), NotAfter: 1, Replaces: "1a"})
	}
	everythingRefused()
	w.update(w.concluded(fleet.ClientLost, running...)...)
	w.must(state.NodeRevoke{NodeID: n, Reason: "once more", Now: w.nano()})
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
	w.must(state.NodePurge{NodeID: n, EvalSeed: w.seed(), Now: w.nano()})
	everythingRefused()
}

// A node that was purged can be revoked for the certificate that it has.
func TestRevokeOfAPurgedNode(t *testing.T) {
	w := clustered(newT(t))
	n := w.node("a")
	w.must(state.Certificate{Serial: "1a", Subject: "edge:" + string(n), NotAfter: 1})
	w.miss(n)
	w.must(state.NodePurge{NodeID: n, EvalSeed: w.seed(), Now: w.nano()})
	w.must(state.NodeRevoke{NodeID: n, EvalSeed: w.seed(), Now: w.nano()})
	w.refused(fleet.CodeRevoked, state.NodeRegister{Node: description(n, "a"), Now: w.nano()})
}

// A snapshot of before does not let a node in again.
func TestRestoreKeepsRevocations(t *testing.T) {
	w := clustered(newT(t))
	n := w.node("a")
	w.register(job("web", fleet.JobTypeService, 1))
	ids := w.place("web", n, 1)
	w.report(n, fleet.ClientRunning, ids...)
	snapshot := mustPersist(t, w.store)
	w.must(state.NodeRevoke{NodeID: n, EvalSeed: w.seed(), Now: w.nano()})
	w.restore(snapshot)
	if got := w.getNode(n); got.Status != fleet.NodeDown || got.Revoked == nil || !slices.Equal(got.Orphans, ids) {
		t.Fatalf("node after the restore: %+v", got)
	}
	d := description(n, "a")
	w.refused(fleet.CodeRevoked, state.SessionOpen{NodeID: n, Session: 99, Node: &d, Now: w.nano()})
}
