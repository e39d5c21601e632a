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
		do          func(w *world) string
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
		w := newT(t)
		node := w.node("n1")
		w.register(job("shop", fleet.JobTypeService, 1))
		w.place("shop", node, 1)
		w.miss(node)
		for _, e := range w.open("shop") {
			ids[string(e.ID)] = true
		}
	}
	if len(ids) != 2 {
		t.Fatalf("evaluations of two hubs: %v", ids)
	}
}

// stopped is what a failing world panics with.
type stopped struct{ why string }

// watched is a world's tb: a failure is the outcome, and not the test's.
type watched struct{}

func (watched) Helper() {}

func (watched) Fatalf(format string, args ...any) { panic(stopped{fmt.Sprintf(format, args...)}) }

func outcome(do func(w *world) string) (said string) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case stopped:
			said = p.why
		default:
			panic(p)
		}
	}()
	return do(newWorld(watched{}))
}

// shop is a node with one allocation, whose first row is applied.
func shop(w *world) (fleet.NodeID, fleet.AllocID) {
	node := w.node("n1")
	w.register(job("shop", fleet.JobTypeService, 1))
	return node, w.place("shop", node, 1)[0]
}

func said(r state.BatchResult) string {
	if r.Code != "" {
		return string(r.Code)
	}
	return fmt.Sprintf("applied up to %d", r.Applied)
}

func sendTwice(w *world) string {
	node, id := shop(w)
	w.journal(node, says(id, fleet.ClientPending), says(id, fleet.ClientRunning))
	w.send(w.rows(node, 1, 2))
	w.send(w.rows(node, 1, 2))
	return w.events(id)
}

func sendTogether(w *world) string {
	node, id := shop(w)
	w.journal(node, says(id, fleet.ClientPending), says(id, fleet.ClientRunning))
	w.send(w.rows(node, 1, 2))
	return w.events(id)
}

func skipARow(w *world) string {
	node, id := shop(w)
	w.journal(node, says(id, fleet.ClientPending), says(id, fleet.ClientRunning))
	return said(w.send(w.rows(node, 2, 2))[0])
}

func offer(w *world) string {
	node := w.node("n1")
	j := job("shop", fleet.JobTypeService, 1)
	j.TaskGroups[0].Services = []fleet.Service{{Name: "shop", Provider: fleet.ProviderNomad}}
	w.register(j)
	id := w.place("shop", node, 1)[0]
	before := w.store.View().TableIndex("services")
	w.report(node, fleet.ClientRunning, id)
	if w.store.View().TableIndex("services") == before {
		return "untold"
	}
	return "told"
}

func sendUnderOldEpoch(w *world) string {
	node, id := shop(w)
	w.journal(node, says(id, fleet.ClientPending))
	late := w.pending(node)
	w.session(node)
	return said(w.send(late)[0])
}

func sendWhileAway(w *world) string {
	node, id := shop(w)
	w.report(node, fleet.ClientRunning, id)
	w.miss(node)
	w.journal(node, says(id, fleet.ClientFailed))
	return said(w.send(w.pending(node))[0])
}

// away is a node that missed its deadline, and has a row that nobody heard of.
func away(w *world) (fleet.NodeID, fleet.AllocID) {
	node, id := shop(w)
	w.report(node, fleet.ClientRunning, id)
	w.miss(node)
	w.unknown(id)
	w.journal(node, says(id, fleet.ClientRunning))
	return node, id
}

func comeBack(w *world) string {
	node, _ := away(w)
	return string(w.session(node).Status)
}

func comeBackAndReplay(w *world) string {
	node, _ := away(w)
	w.session(node)
	w.send(w.pending(node))
	return string(w.getNode(node).Status)
}

func comeBackAndReplayInPart(w *world) string {
	node, id := away(w)
	w.journal(node, says(id, fleet.ClientFailed))
	w.session(node)
	w.send(w.rows(node, 2, 2))
	var triggers []string
	for _, e := range w.open("shop") {
		triggers = append(triggers, e.TriggeredBy)
	}
	return strings.Join(triggers, ", ")
}

func bootAnew(w *world) string {
	node, id := shop(w)
	w.report(node, fleet.ClientRunning, id)
	w.must(state.SessionOpen{
		NodeID: node, Session: 2, Instance: "i2", BootID: "b2", Hub: "hub-1", Head: 1, EvalSeed: w.seed(), Now: w.nano(),
	})
	return fmt.Sprintf("applied up to %d", w.getNode(node).Applied)
}

// nightly is a job that is launched by the clock, and launch launches it for a time.
func nightly(w *world, alone bool) *fleet.Job {
	j := job("nightly", fleet.JobTypeBatch, 1)
	j.Periodic = &fleet.Periodic{Enabled: true, Spec: "0 2 * * *", ProhibitOverlap: alone}
	w.register(j)
	return w.getJob("nightly")
}

func launch(w *world, j *fleet.Job, at time.Time) state.Result {
	child := j.Child(fleet.LaunchID(j.ID, at), w.now)
	return w.apply(state.PeriodicLaunch{
		Namespace: j.Namespace, ID: j.ID, JobModifyIndex: j.JobModifyIndex, Launched: at.UnixNano(),
		Child: child, Eval: w.eval(fleet.TriggerPeriodicJob), Now: w.nano(),
	})
}

func launchTwice(w *world) string {
	j := nightly(w, false)
	launch(w, j, w.now)
	if res := launch(w, j, w.now); res.Err != nil {
		return string(res.Err.Code)
	}
	return "launched twice"
}

func launchBeside(w *world) string {
	j := nightly(w, true)
	launch(w, j, w.now)
	if res := launch(w, j, w.now.Add(time.Hour)); res.Child == "" {
		return "alone"
	}
	return "beside another"
}
