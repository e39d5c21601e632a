package state_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"skerry/fleet"
	"skerry/hub/state"
)

func scale(group string, count *int, change func(*state.JobScale)) state.JobScale {
	c := state.JobScale{Namespace: fleet.DefaultNamespace, ID: "shop", Group: group, Count: count, Message: "busy", Now: 5}
	if change != nil {
		change(&c)
	}
	return c
}

func TestJobScale(t *testing.T) {
	w := newTestHarness(t)
	j := job("shop", fleet.JobTypeService, 2)
	j.TaskGroups[0].Scaling = &fleet.ScalingPolicy{Min: ptr(1), Max: ptr(100)}
	w.registerJob(j)
	res := w.mustApply(scale("web", ptr(3), func(c *state.JobScale) { c.Eval = w.newEvaluation(fleet.TriggerScaling) }))
	if got := w.getJob("shop"); got.TaskGroups[0].Count != 3 || got.Version != 1 || res.Eval == "" || res.Modify != got.JobModifyIndex {
		t.Fatalf("scaled to %d, version %d: %+v", got.TaskGroups[0].Count, got.Version, res)
	}
	events := w.store.View().ScalingEvents(fleet.DefaultNamespace, "shop")["web"]
	if len(events) != 1 || *events[0].Count != 3 || events[0].PreviousCount != 2 || *events[0].EvalID != res.Eval || events[0].Message != "busy" {
		t.Fatalf("events: %+v", events)
	}
	w.mustApply(scale("web", nil, func(c *state.JobScale) { c.Error, c.Message = true, "the scaler is confused" }))
	if got := w.getJob("shop"); got.Version != 1 {
		t.Fatalf("a message made version %d", got.Version)
	}
	for n := range fleet.ScalingEventsKept + 5 {
		w.mustApply(scale("web", ptr(10+n), nil))
	}
	events = w.store.View().ScalingEvents(fleet.DefaultNamespace, "shop")["web"]
	if len(events) != fleet.ScalingEventsKept || *events[0].Count != 34 || events[0].PreviousCount != 33 {
		t.Fatalf("%d events, the newest %+v", len(events), events[0])
	}
	w.mustRefuse(fleet.CodeNotFound, scale("web", ptr(1), func(c *state.JobScale) { c.ID = "other" }))
	w.mustRefuse(fleet.CodeInvalid, scale("nobody", ptr(1), nil))
	w.mustRefuse(fleet.CodeInvalid, scale("web", ptr(0), nil))
	w.mustRefuse(fleet.CodeInvalid, scale("web", ptr(101), nil))
	w.mustRefuse(fleet.CodeConflict, scale("web", ptr(5), func(c *state.JobScale) { c.JobModifyIndex = 1 }))
	w.mustApply(state.JobDeregister{Namespace: fleet.DefaultNamespace, ID: "shop", Now: 6})
	w.mustRefuse(fleet.CodeConflict, scale("web", ptr(5), nil))
}

// C55: during a deployment, scaling a job to another count is refused, a scaling event without a count is kept, and
// registering the job with another count is allowed.
func TestJobScaleDuringADeployment(t *testing.T) {
	w := newTestHarness(t)
	w.registerJob(job("shop", fleet.JobTypeService, 2))
	j := w.getJob("shop")
	d := &fleet.Deployment{
		ID: "d1", Namespace: fleet.DefaultNamespace, JobID: "shop", JobVersion: j.Version, JobCreateIndex: j.CreateIndex,
		Status: fleet.DeploymentRunning,
	}
	w.mustApply(state.Plan{NewDeployment: d, Now: 4})
	w.mustRefuse(fleet.CodeConflict, scale("web", ptr(5), nil))
	w.mustApply(scale("web", nil, nil))
	if res := w.registerJob(job("shop", fleet.JobTypeService, 5)); res.Version != 1 {
		t.Fatalf("registered as version %d", res.Version)
	}
	w.mustApply(state.DeploymentStatus{Update: fleet.DeploymentUpdate{DeploymentID: "d1", Status: fleet.DeploymentFailed}, Now: 5})
	w.mustApply(scale("web", ptr(6), nil))
}

func tag(version uint64, name string) state.JobTag {
	return state.JobTag{
		Namespace: fleet.DefaultNamespace, ID: "shop", Version: version,
		Tag: fleet.JobVersionTag{Name: name, Description: "good", TaggedTime: 9},
	}
}

func versionsOf(w *storeHarness) []string {
	var out []string
	for _, j := range w.store.View().JobVersions(fleet.DefaultNamespace, "shop") {
		s := fmt.Sprint(j.Version)
		if j.VersionTag != nil {
			s += ":" + j.VersionTag.Name
		}
		out = append(out, s)
	}
	return out
}

func TestJobTags(t *testing.T) {
	w := newTestHarness(t)
	register := func(from, to int) {
		for n := from; n <= to; n++ {
			w.mustApply(state.JobRegister{Job: job("shop", fleet.JobTypeService, n), Now: w.nowNanos(),
				Submission: &fleet.Submission{Source: fmt.Sprintf("count %d", n), Format: fleet.FormatHCL2}})
		}
	}
	want := func(versions ...string) {
		t.Helper()
		if got := versionsOf(w); !slices.Equal(got, versions) {
			t.Fatalf("versions %v, want %v", got, versions)
		}
	}
	register(1, 2)
	w.mustApply(tag(0, "golden"))
	w.mustApply(state.JobTag{Namespace: fleet.DefaultNamespace, ID: "shop", Latest: true, Tag: fleet.JobVersionTag{Name: "now"}})
	want("1:now", "0:golden")
	if j := w.getJob("shop"); j.VersionTag == nil || j.VersionTag.Name != "now" || j.JobModifyIndex != 2 {
		t.Fatalf("the job has %+v", j.VersionTag)
	}
	w.mustRefuse(fleet.CodeConflict, tag(1, "golden"))
	w.mustRefuse(fleet.CodeNotFound, tag(7, "x"))
	w.mustApply(tag(1, "renamed"))
	register(3, 9)
	want("8", "7", "6", "5", "4", "3", "1:renamed", "0:golden")
	if j := w.getJob("shop"); j.VersionTag != nil {
		t.Fatalf("a new version has the tag %+v", j.VersionTag)
	}
	source := func(version uint64) string {
		if s := w.store.View().Submission(fleet.DefaultNamespace, "shop", version); s != nil {
			return s.Source
		}
		return ""
	}
	if source(0) != "count 1" || source(8) != "count 9" || source(2) != "" {
		t.Fatalf("sources %q, %q and of a version that is gone %q", source(0), source(8), source(2))
	}
	again := &fleet.Submission{Source: "count 9 # with a comment", Format: fleet.FormatHCL2}
	w.mustApply(state.JobRegister{Job: job("shop", fleet.JobTypeService, 9), Now: w.nowNanos(), Submission: again})
	if want("8", "7", "6", "5", "4", "3", "1:renamed", "0:golden"); source(8) != again.Source {
		t.Fatalf("the source of an unchanged job is %q, want the newest, %q", source(8), again.Source)
	}
	var saved bytes.Buffer
	if err := w.store.Persist(&saved); err != nil {
		t.Fatal(err)
	}
	if err := w.store.Restore(&saved); err != nil {
		t.Fatal(err)
	}
	want("8", "7", "6", "5", "4", "3", "1:renamed", "0:golden")
	if source(0) != "count 1" {
		t.Fatalf("restored source %q", source(0))
	}
	unset := tag(0, "renamed")
	unset.Unset = true
	w.mustApply(unset)
	want("8", "7", "6", "5", "4", "3", "0:golden")
	w.mustRefuse(fleet.CodeNotFound, unset)
	for n := range uint64(2) {
		w.mustApply(tag(3+n, fmt.Sprint("t", n)))
	}
}

func TestTooManyTags(t *testing.T) {
	w := newTestHarness(t)
	for n := range uint64(state.MaxVersionTags) {
		w.registerJob(job("shop", fleet.JobTypeService, int(n)+1))
		w.mustApply(tag(n, fmt.Sprint("v", n)))
	}
	w.registerJob(job("shop", fleet.JobTypeService, 99))
	w.mustRefuse(fleet.CodeConflict, tag(state.MaxVersionTags, "one too many"))
	w.mustApply(tag(3, "another name for one"))
}

// H13: PreserveCounts and PreserveResources keep these values of the stored job when it is registered again.
func TestJobRegisterPreserves(t *testing.T) {
	w := newTestHarness(t)
	w.registerJob(job("shop", fleet.JobTypeService, 2))
	w.mustApply(scale("web", ptr(7), nil))
	next := job("shop", fleet.JobTypeService, 3)
	next.Meta = map[string]string{"a": "b"}
	next.TaskGroups[0].Tasks[0].Resources.CPU = 999
	was := w.getJob("shop").TaskGroups[0].Tasks[0].Resources.CPU
	w.mustApply(state.JobRegister{Job: next, PreserveCounts: true, PreserveResources: true, Now: 7})
	if got := w.getJob("shop"); got.TaskGroups[0].Count != 7 || got.TaskGroups[0].Tasks[0].Resources.CPU != was || got.Meta["a"] != "b" {
		t.Fatalf("count %d, cpu %d, meta %v", got.TaskGroups[0].Count, got.TaskGroups[0].Tasks[0].Resources.CPU, got.Meta)
	}
	w.mustApply(state.JobRegister{Job: next, Now: 8})
	if got := w.getJob("shop"); got.TaskGroups[0].Count != 3 || got.TaskGroups[0].Tasks[0].Resources.CPU != 999 {
		t.Fatalf("count %d after a registration that preserves nothing", got.TaskGroups[0].Count)
	}
	bound := job("shop", fleet.JobTypeService, 1)
	bound.TaskGroups[0].Scaling = &fleet.ScalingPolicy{Max: ptr(2)}
	w.mustRefuse(fleet.CodeInvalid, state.JobRegister{Job: bound, PreserveCounts: true, Now: 9})
	if next.TaskGroups[0].Count != 3 {
		t.Fatal("the command's own job was changed")
	}
}

func TestJobEvaluateForcesReplacements(t *testing.T) {
	w := newTestHarness(t)
	node := w.addReadyNode("n1")
	j := job("shop", fleet.JobTypeService, 2)
	j.TaskGroups[0].ReschedulePolicy = &fleet.ReschedulePolicy{Unlimited: true, Delay: 1e10, DelayFunction: fleet.DelayConstant}
	w.registerJob(j)
	ids := w.placeAllocs("shop", node, 2)
	w.reportStatus(node, fleet.ClientFailed, ids[0])
	w.mustApply(state.JobEvaluate{Namespace: fleet.DefaultNamespace, ID: "shop", Eval: w.newEvaluation(fleet.TriggerJobRegister), Now: 5})
	if w.getAlloc(ids[0]).DesiredTransition.Reschedule {
		t.Fatal("flagged without being asked for")
	}
	w.mustApply(state.JobEvaluate{Namespace: fleet.DefaultNamespace, ID: "shop", ForceReschedule: true, Eval: w.newEvaluation(fleet.TriggerJobRegister), Now: 5})
	if !w.getAlloc(ids[0]).DesiredTransition.Reschedule || w.getAlloc(ids[1]).DesiredTransition.Reschedule {
		t.Fatal("what failed is to be replaced, and nothing else")
	}
	w.mustRefuse(fleet.CodeNotFound, state.JobEvaluate{Namespace: fleet.DefaultNamespace, ID: "nope", Now: 6})
}
