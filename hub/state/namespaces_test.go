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

func (w *world) namespaces() (names []string) {
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
	w := newT(t)
	if got := w.namespaces(); !slices.Equal(got, []string{"default"}) {
		t.Fatalf("at first: %v", got)
	}
	w.must(state.NamespaceStore{Namespace: fleet.Namespace{Name: "ships", Description: "at sea", Meta: map[string]string{"by": "me"}}})
	w.must(state.NamespaceStore{Namespace: fleet.Namespace{Name: "farms"}})
	made := w.index - 1
	w.must(state.NamespaceStore{Namespace: fleet.Namespace{Name: "ships", Description: "in port"}})
	w.must(state.NamespaceStore{Namespace: fleet.Namespace{Name: "default", Description: "ours"}})
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
	if got := w.namespaces(); !slices.Equal(got, []string{"default", "farms", "ships"}) {
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
		w.refused(fleet.CodeInvalid, state.NamespaceStore{Namespace: bad})
	}
	for i := range state.MaxNamespaces - 2 {
		w.index++
		w.store.Apply(w.index, state.NamespaceStore{Namespace: fleet.Namespace{Name: fmt.Sprintf("n%d", i)}})
	}
	w.refused(fleet.CodeConflict, state.NamespaceStore{Namespace: fleet.Namespace{Name: "one-too-many"}})
	w.must(state.NamespaceStore{Namespace: fleet.Namespace{Name: "ships"}}) // a change is no new one
}

func TestJobsAreOfANamespaceThatExists(t *testing.T) {
	w := newT(t)
	stranger := inNamespace("ships", "shop", 1)
	w.refused(fleet.CodeInvalid, state.JobRegister{Job: stranger, Now: w.nano()})
	w.must(state.NamespaceStore{Namespace: fleet.Namespace{Name: "ships", Capabilities: &fleet.NamespaceCapabilities{DisabledTaskDrivers: []string{"sim"}}}})
	w.refused(fleet.CodeInvalid, state.JobRegister{Job: stranger, Now: w.nano()})
	w.must(state.NamespaceStore{Namespace: fleet.Namespace{Name: "ships", Capabilities: &fleet.NamespaceCapabilities{EnabledTaskDrivers: []string{"raw_exec"}}}})
	w.refused(fleet.CodeInvalid, state.JobRegister{Job: stranger, Now: w.nano()})
	w.must(state.NamespaceStore{Namespace: fleet.Namespace{Name: "ships", Capabilities: &fleet.NamespaceCapabilities{EnabledTaskDrivers: []string{"raw_exec", "sim"}}}})
	w.must(state.JobRegister{Job: stranger, Now: w.nano()})
	if _, ok := w.store.View().Job(fleet.DefaultNamespace, "shop"); ok {
		t.Error("the job is also in the default namespace")
	}
}

// TestANamespaceInUseStays deletes one while a job of it waits, runs, and has been
// stopped on an edge that is away, and then for good.
func TestANamespaceInUseStays(t *testing.T) {
	w := newT(t)
	node := w.node("n1")
	w.must(state.NamespaceStore{Namespace: fleet.Namespace{Name: "ships"}})
	w.refused(fleet.CodeInvalid, state.NamespaceDelete{Name: "default"})
	w.refused(fleet.CodeNotFound, state.NamespaceDelete{Name: "farms"})
	kept := func(why string) {
		t.Helper()
		if err := w.refused(fleet.CodeConflict, state.NamespaceDelete{Name: "ships"}).Err; !strings.Contains(err.Message, why) {
			t.Errorf("refused with %q, want %q", err.Message, why)
		}
	}
	w.register(inNamespace("ships", "shop", 1))
	kept("job shop (pending)")
	stored, _ := w.store.View().Job("ships", "shop")
	a := fleet.Alloc{
		ID: fleet.AllocID(w.id("alloc")), Namespace: "ships", Name: "shop.web[0]", NodeID: node, JobID: "shop",
		JobVersion: stored.Version, JobHash: stored.SpecHash, TaskGroup: "web", DesiredStatus: fleet.DesiredRun,
	}
	w.must(state.Plan{Result: fleet.PlanResult{NodeAllocation: byNode(a)}, Now: w.nano()})
	w.report(node, fleet.ClientRunning, a.ID)
	kept("job shop (running)")
	w.must(state.JobDeregister{Namespace: "ships", ID: "shop", Purge: true, Now: w.nano()})
	kept("allocation " + fleet.Short(a.ID))
	w.miss(node)
	w.unknown(a.ID)
	kept("(unknown)")
	w.must(state.Plan{Result: fleet.PlanResult{NodeUpdate: byNode(w.concluded(fleet.ClientLost, a.ID)...)}, Now: w.nano()})
	kept("(lost)") // it may still run there
	w.session(node)
	w.report(node, fleet.ClientComplete, a.ID)
	for e := range w.store.View().EvalsByJob("ships", "shop") {
		done := *e
		done.Status = fleet.EvalComplete
		w.must(state.Evals{Evals: []fleet.Evaluation{done}, Now: w.nano()})
	}
	w.must(state.NamespaceDelete{Name: "ships"})
	if got := w.namespaces(); !slices.Equal(got, []string{"default"}) {
		t.Errorf("left: %v", got)
	}
	w.refused(fleet.CodeInvalid, state.JobRegister{Job: inNamespace("ships", "shop", 1), Now: w.nano()})
}

// A job that is dead does not keep its namespace, and does not come back in it.
func TestADeadJobOfADeletedNamespace(t *testing.T) {
	w := newT(t)
	w.must(state.NamespaceStore{Namespace: fleet.Namespace{Name: "ships"}})
	w.must(state.JobRegister{Job: inNamespace("ships", "shop", 1), Now: w.nano()})
	w.must(state.JobDeregister{Namespace: "ships", ID: "shop", Now: w.nano()})
	w.must(state.NamespaceDelete{Name: "ships"})
	w.refused(fleet.CodeInvalid, state.JobEvaluate{Namespace: "ships", ID: "shop", Eval: w.eval(fleet.TriggerJobRegister), Now: w.nano()})
	w.refused(fleet.CodeInvalid, state.JobRegister{Job: inNamespace("ships", "shop", 1), Now: w.nano()})
	w.must(state.JobDeregister{Namespace: "ships", ID: "shop", Purge: true, Now: w.nano()})
}
