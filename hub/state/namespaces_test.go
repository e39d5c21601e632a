package state_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/hub/state"
)

func (w *storeHarness) namespaceNames() (names []string) {
	for n := range w.store.View().Namespaces() {
		names = append(names, n.Name)
	}
	return names
}

// inNamespace is a job of another namespace.
func inNamespace(ns string, id fleet.JobID, count int) *fleet.Job {
	j := job(id, fleet.JobTypeService, count)
	j.Namespace = ns
	return j
}

func TestNamespacesAreMadeChangedAndKept(t *testing.T) {
	w := newTestHarness(t)
	if got := w.namespaceNames(); !slices.Equal(got, []string{"default"}) {
		t.Fatalf("at first: %v", got)
	}
	w.mustApply(state.NamespaceStore{Namespace: fleet.Namespace{Name: "ships", Description: "at sea", Meta: map[string]string{"by": "me"}}})
	w.mustApply(state.NamespaceStore{Namespace: fleet.Namespace{Name: "farms"}})
	made := w.index - 1
	w.mustApply(state.NamespaceStore{Namespace: fleet.Namespace{Name: "ships", Description: "in port"}})
	w.mustApply(state.NamespaceStore{Namespace: fleet.Namespace{Name: "default", Description: "ours"}})
	check := func(v *state.View) {
		t.Helper()
		n, ok := v.Namespace("ships")
		if !ok || n.Description != "in port" || n.Meta != nil || n.CreateIndex != made || n.ModifyIndex != made+2 {
			t.Errorf("ships: %+v", n)
		}
		if d, ok := v.Namespace("default"); !ok || d.Description != "ours" {
			t.Errorf("default: %+v", d)
		}
	}
	check(w.store.View())
	if got := w.namespaceNames(); !slices.Equal(got, []string{"default", "farms", "ships"}) {
		t.Errorf("list: %v", got)
	}
	again := state.New()
	if err := again.Restore(bytes.NewReader(mustPersist(t, w.store))); err != nil {
		t.Fatal(err)
	}
	check(again.View())
	if again.View().Digest() != w.store.View().Digest() {
		t.Error("a restored state has another digest")
	}
	for _, bad := range []fleet.Namespace{
		{}, {Name: "*"}, {Name: "a b"}, {Name: "a/b"}, {Name: strings.Repeat("n", 129)},
		{Name: "n", Description: strings.Repeat("d", 257)}, {Name: "n", Meta: map[string]string{"": "v"}},
		{Name: "n", Capabilities: &fleet.NamespaceCapabilities{EnabledTaskDrivers: []string{""}}},
		{Name: "n", Capabilities: &fleet.NamespaceCapabilities{DisabledNetworkModes: slices.Repeat([]string{"x"}, 65)}},
	} {
		w.mustRefuse(fleet.CodeInvalid, state.NamespaceStore{Namespace: bad})
	}
	for i := range state.MaxNamespaces - 2 {
		w.index++
		w.store.Apply(w.index, state.NamespaceStore{Namespace: fleet.Namespace{Name: fmt.Sprintf("n%d", i)}})
	}
	w.mustRefuse(fleet.CodeConflict, state.NamespaceStore{Namespace: fleet.Namespace{Name: "one-too-many"}})
	w.mustApply(state.NamespaceStore{Namespace: fleet.Namespace{Name: "ships"}}) // a change is no new one
}

func TestJobsAreOfANamespaceThatExists(t *testing.T) {
	w := newTestHarness(t)
	stranger := inNamespace("ships", "shop", 1)
	w.mustRefuse(fleet.CodeInvalid, state.JobRegister{Job: stranger, Now: w.nowNanos()})
	w.mustApply(state.NamespaceStore{Namespace: fleet.Namespace{Name: "ships", Capabilities: &fleet.NamespaceCapabilities{DisabledTaskDrivers: []string{"sim"}}}})
	w.mustRefuse(fleet.CodeInvalid, state.JobRegister{Job: stranger, Now: w.nowNanos()})
	w.mustApply(state.NamespaceStore{Namespace: fleet.Namespace{Name: "ships", Capabilities: &fleet.NamespaceCapabilities{EnabledTaskDrivers: []string{"raw_exec"}}}})
	w.mustRefuse(fleet.CodeInvalid, state.JobRegister{Job: stranger, Now: w.nowNanos()})
	w.mustApply(state.NamespaceStore{Namespace: fleet.Namespace{Name: "ships", Capabilities: &fleet.NamespaceCapabilities{EnabledTaskDrivers: []string{"raw_exec", "sim"}}}})
	w.mustApply(state.JobRegister{Job: stranger, Now: w.nowNanos()})
	if _, ok := w.store.View().Job(fleet.DefaultNamespace, "shop"); ok {
		t.Error("the job is also in the default namespace")
	}
}

// TestANamespaceInUseStays deletes one while a job of it waits, runs, and has been
// stopped on an edge that is away, and then for good.
func TestANamespaceInUseStays(t *testing.T) {
	w := newTestHarness(t)
	node := w.addReadyNode("n1")
	w.mustApply(state.NamespaceStore{Namespace: fleet.Namespace{Name: "ships"}})
	w.mustRefuse(fleet.CodeInvalid, state.NamespaceDelete{Name: "default"})
	w.mustRefuse(fleet.CodeNotFound, state.NamespaceDelete{Name: "farms"})
	kept := func(why string) {
		t.Helper()
		if err := w.mustRefuse(fleet.CodeConflict, state.NamespaceDelete{Name: "ships"}).Err; !strings.Contains(err.Message, why) {
			t.Errorf("refused with %q, want %q", err.Message, why)
		}
	}
	w.registerJob(inNamespace("ships", "shop", 1))
	kept("job shop (pending)")
	stored, _ := w.store.View().Job("ships", "shop")
	a := fleet.Alloc{
		ID: fleet.AllocID(w.nextTestID("alloc")), Namespace: "ships", Name: "shop.web[0]", NodeID: node, JobID: "shop",
		JobVersion: stored.Version, JobHash: stored.SpecHash, TaskGroup: "web", DesiredStatus: fleet.DesiredRun,
	}
	w.mustApply(state.Plan{Result: fleet.PlanResult{NodeAllocation: byNode(a)}, Now: w.nowNanos()})
	w.reportStatus(node, fleet.ClientRunning, a.ID)
	kept("job shop (running)")
	w.mustApply(state.JobDeregister{Namespace: "ships", ID: "shop", Purge: true, Now: w.nowNanos()})
	kept("allocation " + fleet.Short(a.ID))
	w.missHeartbeats(node)
	w.markAllocsUnknown(a.ID)
	kept("(unknown)")
	w.mustApply(state.Plan{Result: fleet.PlanResult{NodeUpdate: byNode(w.allocsWithStatus(fleet.ClientLost, a.ID)...)}, Now: w.nowNanos()})
	kept("(lost)") // it may still run there
	w.openNextSession(node)
	w.reportStatus(node, fleet.ClientComplete, a.ID)
	for e := range w.store.View().EvalsByJob("ships", "shop") {
		done := *e
		done.Status = fleet.EvalComplete
		w.mustApply(state.Evals{Evals: []fleet.Evaluation{done}, Now: w.nowNanos()})
	}
	w.mustApply(state.NamespaceDelete{Name: "ships"})
	if got := w.namespaceNames(); !slices.Equal(got, []string{"default"}) {
		t.Errorf("left: %v", got)
	}
	w.mustRefuse(fleet.CodeInvalid, state.JobRegister{Job: inNamespace("ships", "shop", 1), Now: w.nowNanos()})
}

// A job that is dead does not keep its namespace, and does not come back in it.
func TestADeadJobOfADeletedNamespace(t *testing.T) {
	w := newTestHarness(t)
	w.mustApply(state.NamespaceStore{Namespace: fleet.Namespace{Name: "ships"}})
	w.mustApply(state.JobRegister{Job: inNamespace("ships", "shop", 1), Now: w.nowNanos()})
	w.mustApply(state.JobDeregister{Namespace: "ships", ID: "shop", Now: w.nowNanos()})
	w.mustApply(state.NamespaceDelete{Name: "ships"})
	w.mustRefuse(fleet.CodeInvalid, state.JobEvaluate{Namespace: "ships", ID: "shop", Eval: w.newEvaluation(fleet.TriggerJobRegister), Now: w.nowNanos()})
	w.mustRefuse(fleet.CodeInvalid, state.JobRegister{Job: inNamespace("ships", "shop", 1), Now: w.nowNanos()})
	w.mustApply(state.JobDeregister{Namespace: "ships", ID: "shop", Purge: true, Now: w.nowNanos()})
}
