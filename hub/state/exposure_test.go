package state_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/hub/state"
)

// exposureOf returns the allocations and variables of a node's exposure as text, "gone" if there is none.
func exposureOf(v *state.View, id fleet.NodeID) string {
	e, ok := v.Exposure(id)
	if !ok {
		return "gone"
	}
	var lines []string
	for _, a := range e.Allocs {
		lines = append(lines, fmt.Sprintf("%s %s reads %v with %d identities", a.JobID, a.ClientStatus, a.Variables, len(a.Identities)))
	}
	return fmt.Sprintf("%s at %s since %d: %s", e.Name, e.Site, e.Since, strings.Join(lines, "; "))
}

// exposedNode is a harness with a node whose allocation may read a variable, and a deleted one.
func exposedNode(t *testing.T) (w *storeHarness, n fleet.NodeID, ids []fleet.AllocID) {
	w = clustered(newTestHarness(t))
	w.mustApply(state.RootKeyStore{Key: rootKey("k1")})
	n = w.addReadyNode("a")
	w.mustApply(state.Certificate{Serial: "1a", Subject: "edge:" + string(n), NotAfter: 1})
	deleteVariable := func(path string) {
		w.storeVariable(path, "k1")
		w.mustApply(state.VariableDelete{Namespace: fleet.DefaultNamespace, Path: path, TellEdges: true})
	}
	deleteVariable("nomad/jobs") // before the allocation: its edge never had it
	j := job("web", fleet.JobTypeService, 1)
	j.TaskGroups[0].Tasks[0].Identities = []fleet.WorkloadIdentity{{Name: "vault", Audience: []string{"vault.io"}, File: true}}
	w.registerJob(j)
	ids = w.placeAllocs("web", n, 1)
	w.reportStatus(n, fleet.ClientRunning, ids...)
	w.storeVariable("nomad/jobs/web", "k1")
	deleteVariable("nomad/jobs/web/" + j.TaskGroups[0].Name)
	return w, n, ids
}

// The list of what a revoked edge knew stays when its variables, its allocations and the node itself are gone, and over
// a snapshot and a restore.
func TestExposureOutlivesItsNode(t *testing.T) {
	w, n, ids := exposedNode(t)
	earlier := mustPersist(t, w.store)
	if got := exposureOf(w.store.View(), n); !strings.Contains(got, "since 0: web running reads [nomad/jobs/web nomad/jobs/web/") {
		t.Fatalf("connected: %s", got)
	}
	now := w.nowNanos()
	w.mustApply(state.NodeRevoke{NodeID: n, KeepExposure: true, EvalSeed: w.nextEvalSeed(), Now: now})
	group := w.getAlloc(ids[0]).TaskGroup
	want := fmt.Sprintf("a at dc1 since %d: web running reads [nomad/jobs/web nomad/jobs/web/%s] with 1 identities", now, group)
	expect := func(when string, v *state.View) {
		t.Helper()
		if got := exposureOf(v, n); got != want {
			t.Fatalf("%s:\n%s\nwant\n%s", when, got, want)
		}
	}
	expect("revoked", w.store.View())
	w.mustApply(state.VariableDelete{Namespace: fleet.DefaultNamespace, Path: "nomad/jobs/web", TellEdges: true})
	w.updateAllocs(w.allocsWithStatus(fleet.ClientLost, ids...)...)
	w.mustApply(state.Collect{Allocs: ids, Nodes: []state.CollectedNode{{ID: n, Epoch: w.getNode(n).Epoch}}, Now: w.nowNanos()})
	if _, known := w.store.View().Node(n); known {
		t.Fatal("the node was not collected")
	}
	expect("collected", w.store.View())
	w.mustApply(state.NodeRevoke{NodeID: n, KeepExposure: true, EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()})
	expect("revoked once more", w.store.View())

	reopened := state.New()
	if err := reopened.Restore(bytes.NewReader(mustPersist(t, w.store))); err != nil {
		t.Fatal(err)
	}
	expect("in a snapshot", reopened.View())
	w.restoreSnapshot(earlier)
	expect("restored from an earlier snapshot", w.store.View())
}

// An entry of an older release keeps no exposure: hubs that have applied it keep the same state.
func TestExposureOfOlderEntries(t *testing.T) {
	w, n, ids := exposedNode(t)
	w.mustApply(state.NodeRevoke{NodeID: n, EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()})
	if got := exposureOf(w.store.View(), n); !strings.Contains(got, "web running") {
		t.Errorf("revoked: %s", got)
	}
	w.updateAllocs(w.allocsWithStatus(fleet.ClientLost, ids...)...)
	w.mustApply(state.NodePurge{NodeID: n, EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()})
	if got := exposureOf(w.store.View(), n); got != "gone" {
		t.Errorf("purged: %s", got)
	}
}

// A node that was purged before it was revoked has left allocations, which its exposure has.
func TestExposureOfAPurgedNode(t *testing.T) {
	w, n, _ := exposedNode(t)
	w.missHeartbeats(n)
	w.mustApply(state.NodePurge{NodeID: n, EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()})
	w.mustApply(state.NodeRevoke{NodeID: n, KeepExposure: true, EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()})
	if got := exposureOf(w.store.View(), n); !strings.Contains(got, "web running reads [nomad/jobs/web ") {
		t.Error(got)
	}
}
