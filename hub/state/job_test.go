package state_test

import (
	"fmt"
	"testing"

	"skerry/fleet"
	"skerry/hub/state"
)

func TestJobRegisterVersions(t *testing.T) {
	w := newTestHarness(t)
	first := w.registerJob(job("shop", fleet.JobTypeService, 2))
	if first.Version != 0 || first.Eval == "" {
		t.Fatalf("first registration: %+v", first)
	}
	j := w.getJob("shop")
	if j.Status != fleet.JobStatusPending || j.CreateIndex != 1 || j.JobModifyIndex != 1 || j.SubmitTime != w.nowNanos() {
		t.Fatalf("job: %+v", j)
	}
	spec, err := state.EncodeSpec(j)
	if err != nil {
		t.Fatal(err)
	}
	if state.SpecHash(spec) != j.SpecHash {
		t.Fatalf("hash %s of a job that has %s", state.SpecHash(spec), j.SpecHash)
	}
	w.mustApply(state.Evals{Evals: w.completedEvals("shop")})
	again := w.registerJob(job("shop", fleet.JobTypeService, 2))
	if again.Version != 0 || w.getJob("shop").JobModifyIndex != 1 {
		t.Fatalf("an identical job gave version %d", again.Version)
	}
	for n := 3; n < 10; n++ {
		w.registerJob(job("shop", fleet.JobTypeService, n))
	}
	versions := w.store.View().JobVersions(fleet.DefaultNamespace, "shop")
	if len(versions) != fleet.JobVersionsKept || versions[0].Version != 7 || versions[5].Version != 2 {
		t.Fatalf("%d versions from %d", len(versions), versions[0].Version)
	}
	if versions[0].CreateIndex != 1 {
		t.Fatalf("create index %d", versions[0].CreateIndex)
	}
	if _, ok := w.store.View().JobBody(j.SpecHash); ok {
		t.Fatal("the body of a version that nothing refers to is kept")
	}
	if _, ok := w.store.View().JobBody(versions[5].SpecHash); !ok {
		t.Fatal("the body of a kept version is gone")
	}
}

// A body lives as long as an allocation runs it, across versions and a purge.
func TestJobBodyKeptForAllocations(t *testing.T) {
	w := newTestHarness(t)
	node := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	ids := w.placeAllocs("shop", node, 1)
	hash := w.getJob("shop").SpecHash
	for n := 2; n < 12; n++ {
		w.registerJob(job("shop", fleet.JobTypeService, n))
	}
	if body, ok := w.store.View().JobBody(hash); !ok || body.TaskGroups[0].Count != 1 {
		t.Fatal("the body that an allocation runs is gone")
	}
	w.mustApply(state.JobDeregister{Namespace: fleet.DefaultNamespace, ID: "shop", Purge: true, Now: w.nowNanos()})
	if _, ok := w.store.View().Job(fleet.DefaultNamespace, "shop"); ok {
		t.Fatal("a purged job is there")
	}
	if a := w.getAlloc(ids[0]); a.Job == nil || a.Job.TaskGroups[0].Count != 1 {
		t.Fatalf("allocation of a purged job: %+v", a.Job)
	}
	w.reportStatus(node, fleet.ClientComplete, ids[0])
	w.mustApply(state.Evals{Evals: w.completedEvals("shop")})
	w.mustApply(state.EvalDelete{Allocs: ids})
	if _, ok := w.store.View().JobBody(hash); ok {
		t.Fatal("a body without allocations is kept")
	}
}

func TestJobStableRefused(t *testing.T) {
	w := newTestHarness(t)
	w.mustRefuse(fleet.CodeNotFound, state.JobStable{Namespace: fleet.DefaultNamespace, ID: "shop", Stable: true, Now: w.nowNanos()})
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	w.mustRefuse(fleet.CodeNotFound, state.JobStable{Namespace: fleet.DefaultNamespace, ID: "shop", Version: 1, Stable: true, Now: w.nowNanos()})
	w.mustApply(state.JobStable{Namespace: fleet.DefaultNamespace, ID: "shop", Version: 0, Stable: true, Now: w.nowNanos()})
	if !w.getJob("shop").Stable {
		t.Error("the version is not stable")
	}
}

func TestJobRegisterRefused(t *testing.T) {
	w := newTestHarness(t)
	j := job("shop", fleet.JobTypeService, 1)
	w.mustRefuse(fleet.CodeConflict, state.JobRegister{Job: j, EnforceIndex: true, CheckIndex: 7, Now: w.nowNanos()})
	w.mustApply(state.JobRegister{Job: j, EnforceIndex: true, Now: w.nowNanos()})
	w.mustRefuse(fleet.CodeConflict, state.JobRegister{Job: j, EnforceIndex: true, Now: w.nowNanos()})
	right := w.getJob("shop").JobModifyIndex
	w.mustRefuse(fleet.CodeConflict, state.JobRegister{Job: j, EnforceIndex: true, CheckIndex: right + 1, Now: w.nowNanos()})
	w.mustApply(state.JobRegister{Job: job("shop", fleet.JobTypeService, 2), EnforceIndex: true, CheckIndex: right, Now: w.nowNanos()})
	w.mustRefuse(fleet.CodeInvalid, state.JobRegister{Job: job("shop", fleet.JobTypeBatch, 2), Now: w.nowNanos()})
	w.mustRefuse(fleet.CodeInvalid, state.JobRegister{})
	w.mustRefuse(fleet.CodeNotFound, state.JobDeregister{Namespace: fleet.DefaultNamespace, ID: "nosuch"})
}

// Status is pending until something runs, running as long as something does, and
// dead when all is over (H19).
func TestJobStatus(t *testing.T) {
	w := newTestHarness(t)
	node := w.addReadyNode("n1")
	want := func(status string) {
		t.Helper()
		if got := w.getJob("shop").Status; got != status {
			t.Fatalf("job is %s, want %s", got, status)
		}
	}
	w.mustApply(state.JobRegister{Job: job("shop", fleet.JobTypeBatch, 1), Now: w.nowNanos()})
	want(fleet.JobStatusPending)
	w.registerJob(job("shop", fleet.JobTypeBatch, 1))
	want(fleet.JobStatusPending)
	ids := w.placeAllocs("shop", node, 1)
	want(fleet.JobStatusRunning)
	w.reportStatus(node, fleet.ClientRunning, ids...)
	want(fleet.JobStatusRunning)
	w.mustApply(state.JobDeregister{Namespace: fleet.DefaultNamespace, ID: "shop", Now: w.nowNanos()})
	want(fleet.JobStatusRunning)
	w.reportStatus(node, fleet.ClientComplete, ids...)
	w.mustApply(state.Evals{Evals: w.completedEvals("shop")})
	want(fleet.JobStatusDead)
	stopped := w.getJob("shop")
	if !stopped.Stop || stopped.Version != 0 {
		t.Fatalf("stopped job: stop %t, version %d", stopped.Stop, stopped.Version)
	}
	res := w.registerJob(job("shop", fleet.JobTypeBatch, 1))
	want(fleet.JobStatusPending)
	if w.getJob("shop").Stop || res.Version != 1 {
		t.Fatalf("registered again: stop %t, version %d", w.getJob("shop").Stop, res.Version)
	}
}

func TestJobsByPrefixAndNamespace(t *testing.T) {
	w := newTestHarness(t)
	for _, id := range []fleet.JobID{"shop-b", "shop-a", "till"} {
		w.registerJob(job(id, fleet.JobTypeService, 1))
	}
	other := job("shop-a", fleet.JobTypeService, 1)
	other.Namespace = "lab"
	w.mustApply(state.NamespaceStore{Namespace: fleet.Namespace{Name: "lab"}})
	w.registerJob(other)
	list := func(ns, prefix string) string {
		var out []string
		for j := range w.store.View().Jobs(ns, prefix) {
			out = append(out, j.Namespace+"/"+string(j.ID))
		}
		return fmt.Sprint(out)
	}
	for _, c := range []struct{ ns, prefix, want string }{
		{"default", "", "[default/shop-a default/shop-b default/till]"},
		{"default", "shop", "[default/shop-a default/shop-b]"},
		{"*", "shop", "[default/shop-a default/shop-b lab/shop-a]"},
		{"lab", "", "[lab/shop-a]"},
		{"la", "", "[]"},
	} {
		if got := list(c.ns, c.prefix); got != c.want {
			t.Errorf("%s %q: %s, want %s", c.ns, c.prefix, got, c.want)
		}
	}
}

// A54, I9: an allocation that is unknown counts as unknown in its job's summary, and as nothing else.
func TestJobSummaryOfUnknown(t *testing.T) {
	w := newTestHarness(t)
	node := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 3))
	ids := w.placeAllocs("shop", node, 3)
	w.reportStatus(node, fleet.ClientRunning, ids...)
	w.missHeartbeats(node)
	w.markAllocsUnknown(ids[:2]...)
	got, _ := w.store.View().JobSummary(fleet.DefaultNamespace, "shop")
	if want := (fleet.TaskGroupSummary{Running: 1, Unknown: 2}); got.Summary["web"] != want {
		t.Fatalf("summary %+v, want %+v", got.Summary["web"], want)
	}
}

func TestJobSummary(t *testing.T) {
	w := newTestHarness(t)
	node := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 6))
	ids := w.placeAllocs("shop", node, 5)
	w.mustApply(state.Evals{Now: w.nowNanos(), Evals: []fleet.Evaluation{{
		ID: "e-blocked", Namespace: "default", JobID: "shop", Status: fleet.EvalBlocked, QueuedAllocations: map[string]int{"web": 2},
	}}})
	w.reportStatus(node, fleet.ClientRunning, ids[:4]...)
	w.reportStatus(node, fleet.ClientFailed, ids[0])
	w.reportStatus(node, fleet.ClientComplete, ids[1])
	got, ok := w.store.View().JobSummary(fleet.DefaultNamespace, "shop")
	want := fleet.TaskGroupSummary{Queued: 2, Starting: 1, Running: 2, Failed: 1, Complete: 1}
	if !ok || got.Summary["web"] != want {
		t.Fatalf("summary %+v, want %+v", got.Summary["web"], want)
	}
	if got.ModifyIndex != w.index {
		t.Fatalf("summary changed at %d, want %d", got.ModifyIndex, w.index)
	}
	w.placeAllocs("shop", node, 1)
	got, _ = w.store.View().JobSummary(fleet.DefaultNamespace, "shop")
	if got.Summary["web"].Queued != 0 {
		t.Fatalf("%d queued after all was placed", got.Summary["web"].Queued)
	}
	w.missHeartbeats(node)
	w.updateAllocs(w.allocsWithStatus(fleet.ClientLost, ids[2])...)
	if got, _ = w.store.View().JobSummary(fleet.DefaultNamespace, "shop"); got.Summary["web"].Lost != 1 {
		t.Fatalf("%d lost, want 1", got.Summary["web"].Lost)
	}
}
