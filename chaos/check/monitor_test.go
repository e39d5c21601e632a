package check_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"skerry/chaos/check"
	"skerry/fleet"
)

func ptr[T any](v T) *T { return &v }

// runFaultRound is a round of a fleet's life in which everything breaks and nothing goes
// wrong: a partition with a replacement and its settling, a boot without a link, a
// crash of an agent, a job that is stopped.
func (t *fleetModel) runFaultRound() {
	away, other := t.edges[0], t.edges[1]
	job := t.registerJob(fleet.JobID(fmt.Sprintf("job-%d", t.index)), 1, &fleet.Disconnect{LostAfter: ptr(time.Hour)})
	original := t.placeRunningAlloc(job, 0, away, "")
	t.advanceTime(10 * time.Second)

	heal := t.cutEdgeLink(away)
	t.advanceTime(20 * time.Second)
	t.missDeadline(away)
	replacement := t.placeRunningAlloc(job, 0, other, original)
	t.rebootEdge(away, original)
	t.observeTask(away, original, check.TaskExited) // and restarted, link or not
	t.journalRow(away, fleet.Transition{Kind: fleet.TransitionTask, Alloc: original, Task: "main",
		TaskState: &fleet.TaskState{State: fleet.TaskPending}, Event: &fleet.TaskEvent{Type: fleet.TaskTerminated}})
	t.advanceTime(time.Second)
	t.observeTask(away, original, check.TaskStarted)
	t.journalRow(away, fleet.Transition{Kind: fleet.TransitionTask, Alloc: original, Task: "main",
		TaskState: &fleet.TaskState{State: fleet.TaskRunning}, Event: &fleet.TaskEvent{Type: fleet.TaskStarted}})
	t.advanceTime(10 * time.Second)
	heal()
	t.commitEvaluation(away, job.ID)
	t.settleReconnect(original, replacement, other)

	t.observeProcess(other, check.ProcessKill)
	t.advanceTime(2 * time.Second)
	t.observeProcess(other, check.ProcessStart)
	t.openSession(other)
	t.advanceTime(70 * time.Second)

	stopped := *job
	stopped.Stop = true
	t.feedObservation(check.Observation{Job: &stopped})
	t.stopAllocation(away, original)
	t.advanceTime(5 * time.Second)
}

// rebootEdge takes a machine down and up; its task runs again.
func (t *fleetModel) rebootEdge(e *told, id fleet.AllocID) {
	t.observeProcess(e, check.ProcessPowerCut)
	t.advanceTime(5 * time.Second)
	e.booted = t.at
	t.observeProcess(e, check.ProcessStart)
	t.journalRow(e, fleet.Transition{Kind: fleet.TransitionAgent})
	t.journalStatus(e, id, fleet.ClientPending, fleet.TaskLostAtReboot)
	t.advanceTime(time.Second)
	t.observeTask(e, id, check.TaskStarted)
	t.journalStatus(e, id, fleet.ClientRunning, fleet.TaskStarted)
}

// commitEvaluation makes an evaluation as a rejoin does, and ends it a little later.
func (t *fleetModel) commitEvaluation(e *told, id fleet.JobID) {
	t.applyEntry("alloc_updates", &check.Effects{
		Batches: []check.Batch{{Node: e.node, Epoch: e.epoch, First: e.applied + 1, Applied: e.applied, Status: fleet.NodeReady}},
		Evals: []fleet.Evaluation{{
			ID: fleet.EvalID(fmt.Sprintf("eval%03d", t.index)), JobID: id, NodeID: e.node, TriggeredBy: fleet.TriggerReconnect, Status: fleet.EvalPending,
		}},
	})
	t.advanceTime(2 * time.Second)
	t.evals = nil
}

func TestLongCleanRunHasNoViolation(t *testing.T) {
	tale := newFleetModel(t, 3)
	var after int
	for i := range 60 {
		tale.runFaultRound()
		if i%10 == 9 {
			tale.reapEndedAllocs()
		}
		if i == 30 {
			after = tale.m.Remembered()
		}
	}
	tale.mustFindNothing()
	if now := tale.m.Remembered(); now > 2*after {
		t.Errorf("the monitor remembers %d things after 60 rounds, and %d after 30", now, after)
	}
	for _, v := range tale.m.Verdicts() {
		if v.Broken > 0 || v.Undecided > 0 {
			t.Errorf("%+v", v)
		}
	}
	reached := tale.m.Reached()
	for _, b := range []check.Branch{
		check.BranchDisconnected, check.BranchUnknown, check.BranchReplacedAway, check.BranchKeptOriginal,
		check.BranchBootedAway, check.BranchRestartedAway,
	} {
		if reached[b] == 0 {
			t.Errorf("never reached: %s", b)
		}
	}
}

// TestRunIsJudgedAgainFromItsRecord feeds the record of a run with violations to a second Monitor.
func TestRunIsJudgedAgainFromItsRecord(t *testing.T) {
	tale := newFleetModel(t, 3)
	tale.runFaultRound()
	tale.applyEntry("job_register", nil)
	tale.index-- // the same entry again, another one on each hub
	tale.term++
	tale.applyEntry("job_register", nil)
	tale.advanceTime(time.Second)
	first := tale.finishRun()
	if len(first) == 0 {
		t.Fatal("the run went well")
	}
	again := check.NewMonitor(allLimits)
	for _, o := range tale.all {
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		var read check.Observation
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatalf("read %s: %v", text, err)
		}
		again.Observe(read)
	}
	second := again.Finish(tale.at, check.FleetSnapshot{})
	if fmt.Sprint(first) != fmt.Sprint(second) {
		t.Fatalf("judged first:\n%v\nand then:\n%v", first, second)
	}
	text, err := json.Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	var read []check.Violation
	if err := json.Unmarshal(text, &read); err != nil || fmt.Sprint(read) != fmt.Sprint(first) {
		t.Fatalf("violations come back as %v, %v", read, err)
	}
}

// TestObservedFromEverywhere feeds one Monitor from several goroutines, as hubs do.
func TestObservedFromEverywhere(t *testing.T) {
	tale := newFleetModel(t, 3)
	tale.runFaultRound()
	again := check.NewMonitor(allLimits)
	var feeders sync.WaitGroup
	for i := range 4 {
		feeders.Go(func() {
			for k := i; k < len(tale.all); k += 4 {
				if o := tale.all[k]; o.Edge != nil || o.Hub != nil {
					again.Observe(o)
				}
				again.Wants(1)
				again.Reached()
			}
		})
	}
	feeders.Wait()
	if vs := again.Verdicts(); len(vs) != len(check.All()) {
		t.Errorf("%d verdicts", len(vs))
	}
}

func TestInvariantsAreNamed(t *testing.T) {
	seen := map[string]bool{}
	for _, i := range check.All() {
		found, ok := check.InvariantNamed(i.Slug())
		if !ok || found != i || seen[i.Slug()] || i.Statement() == "" {
			t.Errorf("invariant %d: slug %q, statement %q", int(i), i.Slug(), i.Statement())
		}
		seen[i.Slug()] = true
	}
	if _, ok := check.InvariantNamed("no-such"); ok {
		t.Error("an invariant has any name")
	}
	var i check.Invariant
	if err := i.UnmarshalText([]byte("no-such")); err == nil {
		t.Error("an invariant of any name is read")
	}
	if _, err := check.Invariant(99).MarshalText(); err == nil {
		t.Error("an invariant of any number is written")
	}
}

func TestBranches(t *testing.T) {
	seen := map[check.Branch]bool{}
	for _, b := range check.Branches() {
		if seen[b] {
			t.Errorf("branch %q is listed twice", b)
		}
		seen[b] = true
	}
}
