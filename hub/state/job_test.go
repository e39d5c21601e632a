package state_test

import (
	"fmt"
	"testing"

	"skerry/fleet"
	"skerry/hub/state"
)

func TestJobRegisterVersions(t *testing.T) {
	w := newT(t)
	first := w.register(job("shop", fleet.JobTypeService, 2))
	if first.Version != 0 || first.Eval == "" {
		t.Fatalf("first registration: %+v", first)
	}
	j := w.getJob("shop")
	if j.Status != fleet.JobStatusPending || j.CreateIndex != 1 || j.JobModifyIndex != 1 || j.SubmitTime != w.nano() {
		t.Fatalf("job: %+v", j)
	}
	spec, err := state.EncodeSpec(j)
	if err != nil {
		t.Fatal(err)
	}
	if state.SpecHash(spec) != j.SpecHash {
		t.Fatalf("hash %s of a job that has %s", state.SpecHash(spec), j.SpecHash)
	}
	w.must(state.Evals{Evals: w.ended("shop")})
	again := w.register(job("shop", fleet.JobTypeService, 2))
	if again.Version != 0 || w.getJob("shop").JobModifyIndex != 1 {
		t.Fatalf("an identical job gave version %d", again.Version)
	}
	for n := 3; n < 10; n++ {
		w.register(job("shop", fleet.JobTypeService, n))
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
	w := newT(t)
	node := w.node("n1")
	w.register(job("shop", fleet.JobTypeService, 1))
	ids := w.place("shop", node, 1)
	hash := w.getJob("shop").SpecHash
	for n := 2; n < 12; n++ {
		w.register(job("shop", fleet.JobTypeService, n))
	}
	if body, ok := w.store.View().JobBody(hash); !ok || body.TaskGroups[0].Count != 1 {
		t.Fatal("the body that an allocation runs is gone")
	}
	w.must(state.JobDeregister{Namespace: fleet.DefaultNamespace, ID: "shop", Purge: true, Now: w.nano()})
	if _, ok := w.store.View().Job(fleet.DefaultNamespace, "shop"); ok {
		t.Fatal("a purged job is there")
	}
	if a := w.getAlloc(ids[0]); a.Job == nil || a.Job.TaskGroups[0].Count != 1 {
		t.Fatalf("allocation of a purged job: %+v", a.Job)
	}
	w.report(node, fleet.ClientComplete, ids[0])
	w.must(state.Evals{Evals: w.ended("shop")})
	w.must(state.EvalDelete{Allocs: ids})
	if _, ok := w.store.View().JobBody(hash); ok {
		t.Fatal("a body without allocations is kept")
	}
}

func TestJobRegisterRefused(t *testing.T) {
	w := newT(t)
	j := job("shop", fleet.JobTypeService, 1)
	w.refused(fleet.CodeConflict, state.JobRegister{Job: j, EnforceIndex: true, CheckIndex: 7, Now: w.nano()})
	w.must(state.JobRegister{Job: j, EnforceIndex: true, Now: w.nano()})
	w.refused(fleet.CodeConflict, state.JobRegister{Job: j, EnforceIndex: true, Now: w.nano()})
	right := w.getJob("shop").JobModifyIndex
	w.refused(fleet.CodeConflict, state.JobRegister{Job: j, EnforceIndex: true, CheckIndex: right + 1, Now: w.nano()})
	w.must(state.JobRegister{Job: job("shop", fleet.JobTypeService, 2), EnforceIndex: true, CheckIndex: right, Now: w.nano()})
	w.refused(fleet.CodeInvalid, state.JobRegister{Job: job("shop", fleet.JobTypeBatch, 2), Now: w.nano()})
	w.refused(fleet.CodeInvalid, state.JobRegister{})
	w.refused(fleet.CodeNotFound, state.JobDeregister{Namespace: fleet.DefaultNamespace, ID: "nosuch"})
}

// Status is pending until something runs, running as long as something does, and
// dead when all is over (H19).
func TestJobStatus(t *testing.T) {
	w := newT(t)
	node := w.node("n1")
	want := func(status string) {
		t.Helper()
		if got := w.getJob("shop").Status; got != status {
			t.Fatalf("job is %s, want %s", got, status)
		}
	}
	w.must(state.JobRegister{Job: job("shop", fleet.JobTypeBatch, 1), Now: w.nano()})
	want(fleet.JobStatusPending)
	w.register(job("shop", fleet.JobTypeBatch, 1))
	want(fleet.JobStatusPending)
	ids := w.place("shop", node, 1)
	want(fleet.JobStatusRunning)
	w.report(node, fleet.ClientRunning, ids...)
	want(fleet.JobStatusRunning)
	w.must(state.JobDeregister{Namespace: fleet.DefaultNamespace, ID: "shop", Now: w.nano()})
	want(fleet.JobStatusRunning)
	w.report(node, fleet.ClientComplete, ids...)
	w.must(state.Evals{Evals: w.ended("shop")})
	want(fleet.JobStatusDead)
	stopped := w.getJob("shop")
	if !stopped.Stop || stopped.Version != 0 {
		t.Fatalf("stopped job: stop %t, version %d", stopped.Stop, stopped.Version)
	}
	res := w.register(job("shop", fleet.JobTypeBatch, 1))
	want(fleet.JobStatusPending)
	if w.getJob("shop").Stop || res.Version != 1 {
		t.Fatalf("registered again: stop %t, version %d", w.getJob("shop").Stop, res.Version)
	}
}

func TestJobsByPrefixAndNamespace(t *testing.T) {
	w := newT(t)
	for _, id := range []fleet.JobID{"shop-b", "shop-a", "till"} {
		w.register(job(id, fleet.JobTypeService, 1))
	}
	other := job("shop-a", fleet.JobTypeService, 1)
	other.Namespace = "lab"
	w.must(state.NamespaceStore{Namespace: fleet.Namespace{Name: "lab"}})
	w.register(other)
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

// A54, I9: what is out of sight counts as unknown, and as nothing else.
func TestJobSummaryOfUnknown(t *testing.T) {
	w := newT(t)
	node := w.node("n1")
	w.register(job("shop", fleet.JobTypeService, 3))
	ids := w.place("shop", node, 3)
	w.report(node, fleet.ClientRunning, ids...)
	w.miss(node)
	w.unknown(ids[:2]...)
	got, _ := w.store.View().JobSummary(fleet.DefaultNamespace, "shop")
	if want := (state.GroupCount{Running: 1, Unknown: 2}); got.Groups["web"] != want {
		t.Fatalf("summary %+v, want %+v", got.Groups["web"], want)
	}
}

func TestJobSummary(t *testing.T) {
	w := newT(t)
	node := w.node("n1")
	w.register(job("shop", fleet.JobTypeService, 6))
	ids := w.place("shop", node, 5)
	w.must(state.Evals{Now: w.nano(), Evals: []fleet.Evaluation{{
		ID: "e-blocked", Namespace: "default", JobID: "shop", Status: fleet.EvalBlocked, QueuedAllocations: map[string]int{"web": 2},
	}}})
	w.report(node, fleet.ClientRunning, ids[:4]...)
	w.report(node, fleet.ClientFailed, ids[0])
	w.report(node, fleet.ClientComplete, ids[1])
	got, ok := w.store.View().JobSummary(fleet.DefaultNamespace, "shop")
	want := state.GroupCount{Queued: 2, Starting: 1, Running: 2, Failed: 1, Complete: 1}
	if !ok || got.Groups["web"] != want {
		t.Fatalf("summary %+v, want %+v", got.Groups["web"], want)
	}
	if got.ModifyIndex != w.index {
		t.Fatalf("summary changed at %d, want %d", got.ModifyIndex, w.index)
	}
	w.place("shop", node, 1)
	got, _ = w.store.View().JobSummary(fleet.DefaultNamespace, "shop")
	if got.Groups["web"].Queued != 0 {
		t.Fatalf("%d queued after all was placed", got.Groups["web"].Queued)
	}
	w.miss(node)
	w.update(w.concluded(fleet.ClientLost, ids[2])...)
	if got, _ = w.store.View().JobSummary(fleet.DefaultNamespace, "shop"); got.Groups["web"].Lost != 1 {
		t.Fatalf("%d lost, want 1", got.Groups["web"].Lost)
	}
}
