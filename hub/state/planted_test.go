//go:build planted

package state_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/planted"
)

// Each planted bug does what it is there for: the same steps end in another way.
func TestPlantedBugsMisbehave(t *testing.T) {
	for _, c := range []struct {
		bug         planted.Bug
		do          func(w *storeHarness) string
		sound, with string
	}{
		{planted.ApplyTwice, sendTwice, "placed, pending, running", "placed, pending, running, pending, running"},
		{planted.DropTransition, sendTogether, "placed, pending, running", "placed, running"},
		{planted.GlueOverGap, skipARow, "gap", "applied up to 2"},
		{planted.ForgetFencing, sendUnderOldEpoch, "stale_epoch", "applied up to 1"},
		{planted.AcceptBeforeHeartbeat, sendWhileAway, "node_not_ready", "were applied while it was disconnected"},
		{planted.ReadyBeforeHistory, comeBack, "initializing", "became ready at row 1 of 2"},
		{planted.NeverReady, comeBackAndReplay, "ready", "initializing"},
		{planted.EvaluateSuperseded, comeBackAndReplayInPart, "", "reconnect"},
		{planted.LaunchNotNoted, launchTwice, "conflict", "launched twice"},
		{planted.OverlapForgotten, launchBeside, "alone", "beside another"},
		{planted.CatalogueUntold, offer, "told", "untold"},
		{planted.AppliedNumberBack, bootAnew, "applied up to 1", "went back: row 1 to 0"},
	} {
		t.Run(string(c.bug), func(t *testing.T) {
			if got := outcome(c.do); got != c.sound {
				t.Fatalf("without the bug: %s, want %s", got, c.sound)
			}
			defer planted.Plant(c.bug)()
			if got := outcome(c.do); !strings.Contains(got, c.with) {
				t.Fatalf("with the bug: %s, want %s", got, c.with)
			}
		})
	}
}

// Two hubs that apply the same entry have to make the same of it.
func TestPlantedDrawDiffers(t *testing.T) {
	defer planted.Plant(planted.DrawWhenApplied)()
	ids := map[string]bool{}
	for range 2 {
		w := newTestHarness(t)
		node := w.addReadyNode("n1")
		w.registerJob(job("shop", fleet.JobTypeService, 1))
		w.placeAllocs("shop", node, 1)
		w.missHeartbeats(node)
		for _, e := range w.openEvalsOf("shop") {
			ids[string(e.ID)] = true
		}
	}
	if len(ids) != 2 {
		t.Fatalf("evaluations of two hubs: %v", ids)
	}
}

// harnessFailure is what a failing world panics with.
type harnessFailure struct{ why string }

// failureRecorder is a world's tb: a failure is the outcome, and not the test's.
type failureRecorder struct{}

func (failureRecorder) Helper() {}

func (failureRecorder) Fatalf(format string, args ...any) {
	panic(harnessFailure{fmt.Sprintf(format, args...)})
}

func outcome(do func(w *storeHarness) string) (said string) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case harnessFailure:
			said = p.why
		default:
			panic(p)
		}
	}()
	return do(newStoreHarness(failureRecorder{}))
}

// shop is a node with one allocation, whose first row is applied.
func shop(w *storeHarness) (fleet.NodeID, fleet.AllocID) {
	node := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	return node, w.placeAllocs("shop", node, 1)[0]
}

func outcomeCode(r state.BatchResult) string {
	if r.Code != "" {
		return string(r.Code)
	}
	return fmt.Sprintf("applied up to %d", r.Applied)
}

func sendTwice(w *storeHarness) string {
	node, id := shop(w)
	w.appendJournalRows(node, statusTransition(id, fleet.ClientPending), statusTransition(id, fleet.ClientRunning))
	w.applyRowBatches(w.journalRows(node, 1, 2))
	w.applyRowBatches(w.journalRows(node, 1, 2))
	return w.historyEvents(id)
}

func sendTogether(w *storeHarness) string {
	node, id := shop(w)
	w.appendJournalRows(node, statusTransition(id, fleet.ClientPending), statusTransition(id, fleet.ClientRunning))
	w.applyRowBatches(w.journalRows(node, 1, 2))
	return w.historyEvents(id)
}

func skipARow(w *storeHarness) string {
	node, id := shop(w)
	w.appendJournalRows(node, statusTransition(id, fleet.ClientPending), statusTransition(id, fleet.ClientRunning))
	return outcomeCode(w.applyRowBatches(w.journalRows(node, 2, 2))[0])
}

func offer(w *storeHarness) string {
	node := w.addReadyNode("n1")
	j := job("shop", fleet.JobTypeService, 1)
	j.TaskGroups[0].Services = []fleet.Service{{Name: "shop", Provider: fleet.ProviderNomad}}
	w.registerJob(j)
	id := w.placeAllocs("shop", node, 1)[0]
	before := w.store.View().TableIndex("services")
	w.reportStatus(node, fleet.ClientRunning, id)
	if w.store.View().TableIndex("services") == before {
		return "untold"
	}
	return "told"
}

func sendUnderOldEpoch(w *storeHarness) string {
	node, id := shop(w)
	w.appendJournalRows(node, statusTransition(id, fleet.ClientPending))
	late := w.unappliedBatch(node)
	w.openNextSession(node)
	return outcomeCode(w.applyRowBatches(late)[0])
}

func sendWhileAway(w *storeHarness) string {
	node, id := shop(w)
	w.reportStatus(node, fleet.ClientRunning, id)
	w.missHeartbeats(node)
	w.appendJournalRows(node, statusTransition(id, fleet.ClientFailed))
	return outcomeCode(w.applyRowBatches(w.unappliedBatch(node))[0])
}

// away is a node that missed its deadline, and has a row that nobody heard of.
func away(w *storeHarness) (fleet.NodeID, fleet.AllocID) {
	node, id := shop(w)
	w.reportStatus(node, fleet.ClientRunning, id)
	w.missHeartbeats(node)
	w.markAllocsUnknown(id)
	w.appendJournalRows(node, statusTransition(id, fleet.ClientRunning))
	return node, id
}

func comeBack(w *storeHarness) string {
	node, _ := away(w)
	return string(w.openNextSession(node).Status)
}

func comeBackAndReplay(w *storeHarness) string {
	node, _ := away(w)
	w.openNextSession(node)
	w.applyRowBatches(w.unappliedBatch(node))
	return string(w.getNode(node).Status)
}

func comeBackAndReplayInPart(w *storeHarness) string {
	node, id := away(w)
	w.appendJournalRows(node, statusTransition(id, fleet.ClientFailed))
	w.openNextSession(node)
	w.applyRowBatches(w.journalRows(node, 2, 2))
	var triggers []string
	for _, e := range w.openEvalsOf("shop") {
		triggers = append(triggers, e.TriggeredBy)
	}
	return strings.Join(triggers, ", ")
}

func bootAnew(w *storeHarness) string {
	node, id := shop(w)
	w.reportStatus(node, fleet.ClientRunning, id)
	w.mustApply(state.SessionOpen{
		NodeID: node, Session: 2, Instance: "i2", BootID: "b2", Hub: "hub-1", Head: 1, EvalSeed: w.nextEvalSeed(), Now: w.nowNanos(),
	})
	return fmt.Sprintf("applied up to %d", w.getNode(node).Applied)
}

// nightly is a job that is launched by the clock, and launch launches it for a time.
func nightly(w *storeHarness, alone bool) *fleet.Job {
	j := job("nightly", fleet.JobTypeBatch, 1)
	j.Periodic = &fleet.Periodic{Enabled: true, Spec: "0 2 * * *", ProhibitOverlap: alone}
	w.registerJob(j)
	return w.getJob("nightly")
}

func launch(w *storeHarness, j *fleet.Job, at time.Time) state.Result {
	child := j.Child(fleet.LaunchID(j.ID, at), w.now)
	return w.applyAndCheck(state.PeriodicLaunch{
		Namespace: j.Namespace, ID: j.ID, JobModifyIndex: j.JobModifyIndex, Launched: at.UnixNano(),
		Child: child, Eval: w.newEvaluation(fleet.TriggerPeriodicJob), Now: w.nowNanos(),
	})
}

func launchTwice(w *storeHarness) string {
	j := nightly(w, false)
	launch(w, j, w.now)
	if res := launch(w, j, w.now); res.Err != nil {
		return string(res.Err.Code)
	}
	return "launched twice"
}

func launchBeside(w *storeHarness) string {
	j := nightly(w, true)
	launch(w, j, w.now)
	if res := launch(w, j, w.now.Add(time.Hour)); res.Child == "" {
		return "alone"
	}
	return "beside another"
}
