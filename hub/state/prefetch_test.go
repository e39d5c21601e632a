package state_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"skerry/fleet"
	"skerry/hub/state"
)

func prefetchOn(w *storeHarness, id fleet.JobID, version uint64, nodes ...fleet.NodeID) state.PrefetchStore {
	return state.PrefetchStore{Namespace: fleet.DefaultNamespace, JobID: id, JobVersion: version, Nodes: nodes, Now: w.nowNanos()}
}

func (w *storeHarness) prefetchOf(id fleet.JobID, node fleet.NodeID) *fleet.Prefetch {
	for p := range w.store.View().PrefetchesOn(node) {
		if p.JobID == id {
			return p
		}
	}
	return nil
}

// endPrefetch ends the prefetch of a job on a node, as of its newest request.
func (w *storeHarness) endPrefetch(id fleet.JobID, node fleet.NodeID) {
	w.Helper()
	p := w.prefetchOf(id, node)
	w.mustApply(state.PrefetchEnd{Prefetches: []state.EndedPrefetch{{ID: p.ID, RequestIndex: p.RequestIndex}}, Now: w.nowNanos()})
}

// reportPrefetch has the edge of a node say something of a request.
func (w *storeHarness) reportPrefetch(p *fleet.Prefetch, said, why string) {
	w.Helper()
	w.appendJournalRows(p.NodeID, fleet.Transition{
		Kind: fleet.TransitionPrefetch, Message: why, Prefetch: &fleet.PrefetchReport{ID: p.ID, RequestIndex: p.RequestIndex, State: said},
	})
	for _, res := range w.applyRowBatches(w.unappliedBatch(p.NodeID)) {
		if res.Code != "" {
			w.Fatalf("%s: %s", res.Code, res.Message)
		}
	}
}

func (w *storeHarness) wantPrefetch(id fleet.JobID, node fleet.NodeID, want string) {
	w.Helper()
	got := "none"
	if p := w.prefetchOf(id, node); p != nil {
		got = fmt.Sprintf("%d %s %q %t", p.JobVersion, p.State, p.StateDescription, p.Ending)
	}
	if got != want {
		w.Fatalf("prefetch of %s on %s is %s, want %s", id, node, got, want)
	}
}

func TestPrefetchIsRequestedReportedAndEnded(t *testing.T) {
	w := newTestHarness(t)
	n := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	changed := job("shop", fleet.JobTypeService, 1)
	changed.TaskGroups[0].Tasks[0].Env = map[string]string{"V": "1"}
	w.registerJob(changed)
	before := w.store.View().DesiredIndex(n)
	w.mustApply(prefetchOn(w, "shop", 0, n))
	w.wantPrefetch("shop", n, `0 pending "" false`)
	if after := w.store.View().DesiredIndex(n); after <= before {
		t.Fatalf("the edge is not told: %d", after)
	}
	first := w.prefetchOf("shop", n)
	w.reportPrefetch(first, fleet.PrefetchFetching, "")
	w.reportPrefetch(first, fleet.PrefetchFailed, "no route")
	w.wantPrefetch("shop", n, `0 failed "no route" false`)
	w.reportPrefetch(first, fleet.PrefetchDone, "artifacts: 1, images: 0")
	w.wantPrefetch("shop", n, `0 done "artifacts: 1, images: 0" false`)
	if p := w.prefetchOf("shop", n); p.RequestIndex != first.RequestIndex || p.ModifyIndex <= first.ModifyIndex {
		t.Errorf("a report: %+v", p)
	}

	w.mustApply(prefetchOn(w, "shop", 1, n))
	w.reportPrefetch(first, fleet.PrefetchDone, "late")
	w.reportPrefetch(w.prefetchOf("shop", n), "of a newer release", "")
	w.wantPrefetch("shop", n, `1 pending "" false`)
	second := w.prefetchOf("shop", n)
	if second.ID != first.ID || second.JobHash == first.JobHash || second.CreateIndex != first.CreateIndex {
		t.Errorf("the second request: %+v after %+v", second, first)
	}
	w.mustApply(state.PrefetchEnd{Prefetches: []state.EndedPrefetch{{ID: first.ID, RequestIndex: first.RequestIndex}, {ID: "none"}}})
	w.wantPrefetch("shop", n, `1 pending "" false`)

	w.endPrefetch("shop", n)
	ending := w.prefetchOf("shop", n)
	w.wantPrefetch("shop", n, `1 pending "waits for its node to let the contents go" true`)
	w.reportPrefetch(second, fleet.PrefetchDone, "late")
	w.reportPrefetch(ending, fleet.PrefetchDone, "it is not let go yet")
	w.wantPrefetch("shop", n, `1 pending "waits for its node to let the contents go" true`)
	w.endPrefetch("shop", n) // once more
	if p := w.prefetchOf("shop", n); p.RequestIndex != ending.RequestIndex {
		t.Errorf("the edge is told of an end twice: %+v", p)
	}
	w.reportPrefetch(ending, "", "let go")
	w.wantPrefetch("shop", n, "none")
	w.reportPrefetch(ending, fleet.PrefetchDone, "") // of a prefetch that is gone
	w.wantPrefetch("shop", n, "none")
}

// A node that will never say that it let the contents go is not waited for.
func TestPrefetchOfNodesThatAreGone(t *testing.T) {
	w := newTestHarness(t)
	stolen, purged := w.addReadyNode("n1"), w.addReadyNode("n2")
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	w.mustApply(prefetchOn(w, "shop", 0, stolen, purged))
	w.mustApply(state.NodeRevoke{NodeID: stolen, Reason: "stolen", EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()})
	w.missHeartbeats(purged)
	w.mustApply(state.NodePurge{NodeID: purged, EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()})
	for _, n := range []fleet.NodeID{stolen, purged} {
		w.endPrefetch("shop", n)
		w.wantPrefetch("shop", n, "none")
	}
	w.mustRefuse(fleet.CodeRevoked, prefetchOn(w, "shop", 0, stolen))
	w.mustRefuse(fleet.CodeNotFound, prefetchOn(w, "shop", 0, purged))
}

func TestPrefetchesThatAreRefused(t *testing.T) {
	w := newTestHarness(t)
	n := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	w.mustRefuse(fleet.CodeNotFound, prefetchOn(w, "other", 0, n))
	w.mustRefuse(fleet.CodeNotFound, prefetchOn(w, "shop", 7, n))
	w.mustRefuse(fleet.CodeNotFound, prefetchOn(w, "shop", 0, n, "nowhere"))
	w.wantPrefetch("shop", n, "none")
	w.mustRefuse(fleet.CodeInvalid, prefetchOn(w, "shop", 0, slices.Repeat([]fleet.NodeID{n}, state.MaxPrefetchNodes+1)...))
	for i := range state.MaxPrefetchesOnNode {
		id := fleet.JobID(fmt.Sprint("job", i))
		w.registerJob(job(id, fleet.JobTypeService, 1))
		w.mustApply(prefetchOn(w, id, 0, n))
	}
	w.mustRefuse(fleet.CodeConflict, prefetchOn(w, "shop", 0, n))
	w.mustApply(prefetchOn(w, "job3", 0, n)) // one that it has
	w.mustApply(state.JobDeregister{Namespace: fleet.DefaultNamespace, ID: "job3", Now: w.nowNanos()})
	w.mustRefuse(fleet.CodeConflict, prefetchOn(w, "job3", 0, n))
}

func TestPrefetchesInSnapshots(t *testing.T) {
	w := newTestHarness(t)
	w.mustApply(state.ClusterInit{Cluster: state.Cluster{ID: "c1", Region: "global"}})
	n := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	w.registerJob(job("till", fleet.JobTypeService, 1))
	w.mustApply(prefetchOn(w, "shop", 0, n))
	w.reportPrefetch(w.prefetchOf("shop", n), fleet.PrefetchDone, "")
	file := mustPersist(t, w.store)
	again := state.New()
	if err := again.Restore(bytes.NewReader(file)); err != nil {
		t.Fatal(err)
	}
	if again.View().Digest() != w.store.View().Digest() {
		t.Error("a restored state has another digest")
	}
	w.mustApply(prefetchOn(w, "till", 0, n))
	w.endPrefetch("shop", n)
	before := w.prefetchOf("shop", n).RequestIndex
	w.restoreSnapshot(file)
	w.wantPrefetch("shop", n, `0 done "" false`)
	w.wantPrefetch("till", n, `0 pending "" false`)
	if p := w.prefetchOf("shop", n); p.RequestIndex <= before || w.store.View().DesiredIndex(n) < p.RequestIndex {
		t.Errorf("the edge is not told again: %+v", p)
	}
	if w.replayLog().View().Digest() != w.store.View().Digest() {
		t.Error("the log leads to another state")
	}
}
