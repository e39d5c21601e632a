package state_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

func TestSessionOpen(t *testing.T) {
	w := newTestHarness(t)
	w.mustRefuse(fleet.CodeNotFound, state.SessionOpen{NodeID: "nosuch", Session: 1, Now: w.nowNanos()})
	id := w.addReadyNode("n1")
	n := w.getNode(id)
	if n.Epoch != 1 || n.Session != 1 || n.Hub != "hub-1" || n.Address != "192.0.2.1:4000" {
		t.Fatalf("node: %+v", n)
	}
	if len(n.Events) != 1 || n.Events[0].Message != "Node registered" {
		t.Fatalf("events: %+v", n.Events)
	}
	res := w.mustRefuse(fleet.CodeStaleSession, state.SessionOpen{NodeID: id, Session: 1, Now: w.nowNanos()})
	if res.Session == nil || res.Session.Session != 1 {
		t.Fatalf("stale session: %+v", res.Session)
	}
	// A session may bring the description of a node that nobody registered.
	d := description("0a000000-0000-4000-8000-000000000001", "n2")
	w.mustRefuse(fleet.CodeInvalid, state.SessionOpen{NodeID: id, Session: 9, Node: &d, Now: w.nowNanos()})
	opened := w.mustApply(state.SessionOpen{NodeID: d.ID, Session: 1, Node: &d, Now: w.nowNanos()})
	if opened.Session.Status != fleet.NodeReady || opened.Session.Epoch != 1 {
		t.Fatalf("first session of a new node: %+v", opened.Session)
	}
}

// Another agent process follows a session that was found to be over, and no other one.
func TestSessionFollows(t *testing.T) {
	w := newTestHarness(t)
	id := w.addReadyNode("n1")
	open := state.SessionOpen{NodeID: id, Session: 7, Instance: "i2", Hub: "hub-2", Now: w.nowNanos()}
	w.mustApply(open)
	other := state.SessionOpen{NodeID: id, Session: 8, Instance: "i3", Hub: "hub-1", Follows: 1, Now: w.nowNanos()}
	w.mustRefuse(fleet.CodeConflict, other)
	same := state.SessionOpen{NodeID: id, Session: 8, Instance: "i2", Hub: "hub-1", Follows: 1, Now: w.nowNanos()}
	if res := w.mustApply(same); res.Session.Epoch != 3 {
		t.Errorf("the same process's next session: %+v", res.Session)
	}
	other.Session, other.Follows = 9, 3
	if res := w.mustApply(other); res.Session.Epoch != 4 {
		t.Errorf("another process's session behind the newest: %+v", res.Session)
	}
}

// A newcomer that waits is shown until somebody has a session, or it is fenced.
func TestNewcomerIsShown(t *testing.T) {
	w := newTestHarness(t)
	id := w.addReadyNode("n1")
	newcomer := fleet.FencedSession{Code: fleet.CodeFormerSession, Instance: "i9", Addr: "192.0.2.9:4000", Time: w.nowNanos()}
	waits := func(want fleet.InstanceID) {
		t.Helper()
		n := w.getNode(id)
		if got := n.Newcomer; want == "" && got != nil || want != "" && (got == nil || got.Instance != want) {
			t.Errorf("newcomer %+v, want %q", got, want)
		}
	}
	note := func() { w.mustApply(state.Fence{NodeID: id, Session: newcomer}) }
	note()
	waits("i9")
	n := w.getNode(id)
	if last := n.Events[len(n.Events)-1].Message; len(n.Fenced) > 0 || !strings.Contains(last, newcomer.Addr) || !strings.Contains(last, "hub-1") {
		t.Errorf("fenced %+v, told %q", n.Fenced, last)
	}
	w.openNextSession(id)
	waits("")
	note()
	w.mustApply(state.Fence{NodeID: id, Session: fleet.FencedSession{Code: fleet.CodeCloned, Instance: "i8"}})
	waits("i9")
	w.mustApply(state.Fence{NodeID: id, Session: fleet.FencedSession{Code: fleet.CodeCloned, Instance: "i9"}})
	waits("")
}

// Readmitting a node ends with the session that lost rows, or with rows that follow.
func TestNodeReadmit(t *testing.T) {
	w := newTestHarness(t)
	w.mustRefuse(fleet.CodeNotFound, state.NodeReadmit{NodeID: "nosuch", Now: w.nowNanos()})
	id := w.addReadyNode("n1")
	readmit := func() {
		t.Helper()
		w.mustApply(state.NodeReadmit{NodeID: id, Now: w.nowNanos()})
		if n := w.getNode(id); !n.Readmit || !strings.Contains(n.Events[len(n.Events)-1].Message, "readmitted") {
			t.Fatalf("node: %+v", n)
		}
	}
	readmit()
	w.openNextSession(id)
	if !w.getNode(id).Readmit {
		t.Error("ended by a session that says nothing of its journal")
	}
	w.appendJournalRows(id, fleet.Transition{Kind: fleet.TransitionAgent})
	w.applyRowBatches(w.unappliedBatch(id))
	if w.getNode(id).Readmit {
		t.Error("not ended by rows that follow")
	}
	readmit()
	w.edges[id].session++
	w.mustApply(state.SessionOpen{NodeID: id, Session: w.edges[id].session, Instance: "i2", Hub: "hub-1", Lost: "an older copy", Now: w.nowNanos()})
	if w.getNode(id).Readmit {
		t.Error("not ended by the session that lost rows")
	}
	w.mustApply(state.NodeRevoke{NodeID: id, EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()})
	w.mustRefuse(fleet.CodeConflict, state.NodeReadmit{NodeID: id, Now: w.nowNanos()})
}

// A session within the deadline leaves the node ready, whatever its journal
// holds, and fences the one before it.
func TestSessionBlip(t *testing.T) {
	w := newTestHarness(t)
	id := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	ids := w.placeAllocs("shop", id, 1)
	w.appendJournalRows(id, statusTransition(ids[0], fleet.ClientRunning))
	old := w.unappliedBatch(id)
	if res := w.openNextSession(id); res.Status != fleet.NodeReady || res.Epoch != 2 {
		t.Fatalf("blip: %+v", res)
	}
	if res := w.applyRowBatches(old); res[0].Code != fleet.CodeStaleEpoch {
		t.Fatalf("rows of the older session: %+v", res[0])
	}
	w.wantStatus(ids[0], fleet.ClientPending, "")
	if res := w.applyRowBatches(w.unappliedBatch(id)); res[0].Code != "" || res[0].Applied != 1 {
		t.Fatalf("rows of the newer session: %+v", res[0])
	}
}

// A session of an edge that has lost rows: the node waits for the next one, also
// where its deadline has not passed.
func TestSessionOfALostJournal(t *testing.T) {
	w := newTestHarness(t)
	id := w.addReadyNode("n1")
	w.appendJournalRows(id, fleet.Transition{Kind: fleet.TransitionAgent}, fleet.Transition{Kind: fleet.TransitionOperator})
	w.applyRowBatches(w.unappliedBatch(id))
	was := w.getNode(id)
	w.edges[id].session++
	res := w.mustApply(state.SessionOpen{NodeID: id, Session: w.edges[id].session, Instance: "i2", Hub: "hub-1", Head: 1, Lost: "the database is gone", Now: w.nowNanos()})
	n := w.getNode(id)
	if n.Status != fleet.NodeInitializing || n.JournalHead != 3 || res.Session.Applied != 2 || !bytes.Equal(res.Session.ChainHash, was.ChainHash) {
		t.Fatalf("node: %+v, answered %+v", n, res.Session)
	}
	if !strings.Contains(n.StatusDescription, "the database is gone") || !strings.Contains(n.Events[len(n.Events)-1].Message, "the database is gone") {
		t.Errorf("it does not say why: %q, %+v", n.StatusDescription, n.Events)
	}
	w.appendJournalRows(id, fleet.Transition{Kind: fleet.TransitionGap, Message: "the journal was damaged"})
	if res := w.openNextSession(id); res.Status != fleet.NodeInitializing {
		t.Fatalf("ready before the gap is in: %+v", res)
	}
	if got := w.applyRowBatches(w.unappliedBatch(id)); got[0].Code != "" || got[0].Status != fleet.NodeReady {
		t.Fatalf("with the gap: %+v", got[0])
	}
}

// An edge that has lost rows comes back with another description of its node. Its jobs are evaluated when its history is in,
// and not before.
func TestEvaluationsWaitForALostJournal(t *testing.T) {
	w := newTestHarness(t)
	id := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	w.reportStatus(id, fleet.ClientRunning, w.placeAllocs("shop", id, 1)...)
	w.wantEvals("shop")
	other := description(id, "n1")
	other.Attributes[fleet.AttributeCAs] = "a,b"
	w.edges[id].session++
	res := w.mustApply(state.SessionOpen{
		NodeID: id, Session: w.edges[id].session, Instance: "i2", Hub: "hub-1", Head: 1, Node: &other, Lost: "the database is gone", EvalSeed: "s", Now: w.nowNanos(),
	})
	if res.Session.Status != fleet.NodeInitializing {
		t.Fatalf("answered %+v", res.Session)
	}
	w.wantEvals("shop")
	w.appendJournalRows(id, fleet.Transition{Kind: fleet.TransitionGap, Message: "the journal was damaged"})
	w.openNextSession(id)
	w.applyRowBatches(w.unappliedBatch(id))
	w.wantEvals("shop", fleet.TriggerNodeUpdate)
}

// Rows A1, A2, A4, A44, A46 and the defaults of pools: which nodes wait as disconnected when their link is gone, and
// which are down.
func TestNodeStatus(t *testing.T) {
	hour := ptr(time.Hour)
	for _, c := range []struct {
		name    string
		block   *fleet.Disconnect
		pool    string // its default
		client  string // what the edge reported
		unknown time.Duration
		want    fleet.NodeStatus
	}{
		{name: "no allocation", client: "", want: fleet.NodeDown},
		{name: "pending", client: fleet.ClientPending, want: fleet.NodeDown},
		{name: "complete", client: fleet.ClientComplete, want: fleet.NodeDown},
		{name: "running, kept by default", client: fleet.ClientRunning, want: fleet.NodeDisconnected},
		{name: "running, Nomad's default", pool: fleet.DisconnectNomad, client: fleet.ClientRunning, want: fleet.NodeDown},
		{name: "lost_after", pool: fleet.DisconnectNomad, block: &fleet.Disconnect{LostAfter: hour},
			client: fleet.ClientRunning, want: fleet.NodeDisconnected},
		{name: "lost_after exactly over", block: &fleet.Disconnect{LostAfter: hour},
			client: fleet.ClientRunning, unknown: time.Hour, want: fleet.NodeDown},
		{name: "lost_after not over", block: &fleet.Disconnect{LostAfter: hour},
			client: fleet.ClientRunning, unknown: time.Hour - 1, want: fleet.NodeDisconnected},
		{name: "replace = false", pool: fleet.DisconnectNomad, block: &fleet.Disconnect{Replace: ptr(false)},
			client: fleet.ClientRunning, want: fleet.NodeDisconnected},
		{name: "replace = false and lost_after over", block: &fleet.Disconnect{Replace: ptr(false), LostAfter: hour},
			client: fleet.ClientRunning, unknown: 2 * time.Hour, want: fleet.NodeDown},
		{name: "stop_on_client_after", block: &fleet.Disconnect{StopOnClientAfter: hour},
			client: fleet.ClientRunning, want: fleet.NodeDisconnected},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newTestHarness(t)
			w.mustApply(state.Pool{Pool: fleet.Pool{Name: fleet.DefaultPool, DefaultDisconnect: c.pool}})
			id := w.addReadyNode("n1")
			if c.client != "" {
				j := job("shop", fleet.JobTypeService, 1)
				j.TaskGroups[0].Disconnect = c.block
				w.registerJob(j)
				ids := w.placeAllocs("shop", id, 1)
				w.reportStatus(id, c.client, ids...)
				w.mustApply(state.Evals{Evals: w.completedEvals("shop")})
				if c.unknown > 0 {
					w.missHeartbeats(id)
					w.markAllocsUnknown(ids...)
					w.moveClockForward(c.unknown)
				}
			}
			w.missHeartbeats(id)
			n := w.getNode(id)
			if n.Status != c.want || n.DisconnectedAt == 0 {
				t.Fatalf("node is %s since %d, want %s", n.Status, n.DisconnectedAt, c.want)
			}
			if c.unknown == 0 && (len(n.Events) != 2 || n.Events[1].Message != "Node heartbeat missed") {
				t.Fatalf("events: %+v", n.Events)
			}
		})
	}
}

// Each job that has something to decide gets one evaluation, however many nodes miss their deadline in one entry
// (A20).
func TestNodeStatusEvals(t *testing.T) {
	w := newTestHarness(t)
	a, b := w.addReadyNode("n1"), w.addReadyNode("n2")
	w.registerJob(job("shop", fleet.JobTypeService, 4))
	w.registerJob(job("night", fleet.JobTypeBatch, 1))
	shop := append(w.placeAllocs("shop", a, 2), w.placeAllocs("shop", b, 2)...)
	night := w.placeAllocs("night", a, 1)
	w.reportStatus(a, fleet.ClientRunning, shop[:2]...)
	w.reportStatus(b, fleet.ClientRunning, shop[2:]...)
	w.reportStatus(a, fleet.ClientComplete, night...)
	w.wantEvals("shop")
	if moved := w.missHeartbeats(a, b); len(moved) != 2 {
		t.Fatalf("moved %v", moved)
	}
	w.wantEvals("shop", fleet.TriggerNodeUpdate)
	w.wantEvals("night")
	if moved := w.missHeartbeats(a, b); len(moved) != 0 {
		t.Fatalf("moved again: %v", moved)
	}
	w.wantEvals("shop", fleet.TriggerNodeUpdate)
	res := w.mustApply(state.NodeStatus{Nodes: []state.NodeMissed{{NodeID: a, Epoch: 99}, {NodeID: "nosuch"}}, Now: w.nowNanos()})
	if len(res.Moved) != 0 {
		t.Fatalf("moved by an older epoch: %v", res.Moved)
	}
}

// A deadline belongs to a session. One of an older session, which passed or was decided on
// before the newer one came, does not touch the node.
func TestDeadlineOfAnotherSession(t *testing.T) {
	w := newTestHarness(t)
	id := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	ids := w.placeAllocs("shop", id, 1)
	w.reportStatus(id, fleet.ClientRunning, ids...)
	w.openNextSession(id)
	expect := func(status fleet.NodeStatus) {
		t.Helper()
		for _, epoch := range []fleet.Epoch{0, 1, w.getNode(id).Epoch - 1, w.getNode(id).Epoch + 1} {
			res := w.mustApply(state.NodeStatus{Nodes: []state.NodeMissed{{NodeID: id, Epoch: epoch, Reason: "missed"}}, EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()})
			if n := w.getNode(id); len(res.Moved) > 0 || n.Status != status || n.DisconnectedAt != 0 {
				t.Fatalf("missed in epoch %d, the node's is %d: it is %s, want %s", epoch, n.Epoch, n.Status, status)
			}
		}
		w.wantEvals("shop")
	}
	expect(fleet.NodeReady)
	w.missHeartbeats(id)
	w.mustApply(state.Evals{Evals: w.completedEvals("shop"), Now: w.nowNanos()})
	w.appendJournalRows(id, fleet.Transition{Kind: fleet.TransitionAgent})
	w.openNextSession(id)
	expect(fleet.NodeInitializing)
}

// Ready comes with the last row of the head that the Hello announced, not one before it.
func TestReadyWithTheLastRowOfTheHead(t *testing.T) {
	w := newTestHarness(t)
	id := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	ids := w.placeAllocs("shop", id, 1)
	w.reportStatus(id, fleet.ClientRunning, ids...)
	w.missHeartbeats(id)
	w.appendJournalRows(id, fleet.Transition{Kind: fleet.TransitionDisconnect}, statusTransition(ids[0], fleet.ClientFailed), fleet.Transition{Kind: fleet.TransitionReconnect})
	w.openNextSession(id)
	for {
		n := w.getNode(id)
		if want := n.Applied >= n.JournalHead; (n.Status == fleet.NodeReady) != want {
			t.Fatalf("%s with row %d of %d", n.Status, n.Applied, n.JournalHead)
		}
		if n.Status == fleet.NodeReady {
			return
		}
		w.applyRowBatches(w.journalRows(id, int(n.Applied)+1, int(n.Applied)+1))
	}
}

// A plan from the time when the node was away comes after the node is ready again: its running allocation becomes
// neither unknown nor lost.
func TestStalePlanLeavesAReadyNode(t *testing.T) {
	w := newTestHarness(t)
	id := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	ids := w.placeAllocs("shop", id, 1)
	w.reportStatus(id, fleet.ClientRunning, ids...)
	w.missHeartbeats(id)
	for _, status := range []string{fleet.ClientUnknown, fleet.ClientLost} {
		stale := w.allocsWithStatus(status, ids...)
		if w.getNode(id).Status != fleet.NodeReady {
			w.openNextSession(id)
		}
		w.updateAllocs(stale...)
		w.wantStatus(ids[0], fleet.ClientRunning, fleet.ClientRunning)
		if a := w.getAlloc(ids[0]); a.NeedsToReconnect() {
			t.Errorf("%s by a stale plan is recorded: %+v", status, a.AllocStates)
		}
	}
}

// A plan that has another allocation stand in for one that is out of sight comes after its node is ready again: nothing
// stands in for it, and its job is evaluated again. What the plan stops is stopped, and replaced.
func TestStalePlanPlacesNoStandIn(t *testing.T) {
	w := newTestHarness(t)
	away, other := w.addReadyNode("n1"), w.addReadyNode("n2")
	w.registerJob(job("shop", fleet.JobTypeService, 3))
	ids := w.placeAllocs("shop", away, 2)
	w.reportStatus(away, fleet.ClientRunning, ids...)
	w.missHeartbeats(away)
	stale := w.allocsWithStatus(fleet.ClientUnknown, ids...)
	stale[1].DesiredStatus = fleet.DesiredStop
	standIn, added := w.newAllocOfJob("shop", other), w.newAllocOfJob("shop", other)
	added.PreviousAllocation = ids[1]
	standIn.PreviousAllocation = ids[0]
	stale[0].NextAllocation = standIn.ID
	w.openNextSession(away)
	w.mustApply(state.Plan{Result: fleet.PlanResult{NodeAllocation: byNode(append(stale, standIn, added)...)}, EvalID: "e", Now: w.nowNanos()})
	if _, ok := w.store.View().Alloc(standIn.ID); ok {
		t.Error("an allocation stands in for one that is in sight")
	}
	if a := w.getAlloc(ids[0]); a.NextAllocation != "" || a.ClientStatus != fleet.ClientRunning {
		t.Errorf("the allocation in sight is %s, replaced by %q", a.ClientStatus, a.NextAllocation)
	}
	if a := w.getAlloc(ids[1]); a.DesiredStatus != fleet.DesiredStop || a.NextAllocation != added.ID {
		t.Errorf("the allocation that the plan stops and replaces is to %s, replaced by %q", a.DesiredStatus, a.NextAllocation)
	}
	w.getAlloc(added.ID)
	evals := 0
	for e := range w.store.View().EvalsByJob(fleet.DefaultNamespace, "shop") {
		if e.TriggeredBy == fleet.TriggerNodeUpdate && e.Status == fleet.EvalPending && e.NodeID == away && e.CreateIndex == w.store.View().Index() {
			evals++
		}
	}
	if evals != 1 {
		t.Errorf("%d evaluations of the job, want one", evals)
	}
}

// An allocation of a node that comes back stays unknown until the history is in; then it has the status that the edge
// reported last, and its job one evaluation (A10, A11, A17). I1: the node is not ready before that.
func TestReconnect(t *testing.T) {
	w := newTestHarness(t)
	id := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 3))
	ids := w.placeAllocs("shop", id, 3)
	w.reportStatus(id, fleet.ClientRunning, ids...)
	w.missHeartbeats(id)
	w.markAllocsUnknown(ids...)
	w.appendJournalRows(id, fleet.Transition{Kind: fleet.TransitionDisconnect},
		statusTransition(ids[0], fleet.ClientPending), statusTransition(ids[0], fleet.ClientRunning),
		statusTransition(ids[1], fleet.ClientFailed), fleet.Transition{Kind: fleet.TransitionReconnect})
	w.moveClockForward(time.Minute)

	if res := w.openNextSession(id); res.Status != fleet.NodeInitializing || res.Applied != 3 {
		t.Fatalf("session after an absence: %+v", res)
	}
	if res := w.applyRowBatches(w.journalRows(id, 4, 6)); res[0].Code != "" || res[0].Status != fleet.NodeInitializing {
		t.Fatalf("first part of the history: %+v", res[0])
	}
	w.wantStatus(ids[0], fleet.ClientUnknown, fleet.ClientRunning)
	w.wantEvals("shop")
	if res := w.applyRowBatches(w.journalRows(id, 7, 8)); res[0].Status != fleet.NodeReady || res[0].Applied != 8 {
		t.Fatalf("the rest of the history: %+v", res[0])
	}
	w.wantStatus(ids[0], fleet.ClientRunning, fleet.ClientRunning)
	w.wantStatus(ids[1], fleet.ClientFailed, fleet.ClientFailed)
	w.wantStatus(ids[2], fleet.ClientRunning, fleet.ClientRunning)
	w.wantEvals("shop", fleet.TriggerReconnect)
	for _, a := range ids {
		if !w.getAlloc(a).NeedsToReconnect() {
			t.Fatal("nobody settled the absence, and it is settled")
		}
	}
	if got, want := w.historyEvents(ids[0]), "placed, running, node disconnected, unknown, node reconnected, pending*, running*, node ready"; got != want {
		t.Fatalf("history: %s\nwant     %s", got, want)
	}
	// The plan settles the reconnection, and the edge is not told of it.
	heard := w.store.View().DesiredIndex(id)
	w.updateAllocs(w.allocsWithStatus(fleet.ClientRunning, ids[0])...)
	if w.getAlloc(ids[0]).NeedsToReconnect() || w.store.View().DesiredIndex(id) != heard {
		t.Fatal("settling is not settled, or the edge is told of it")
	}
}

// An edge that was rebooted before it noticed the loss of its link has no row about that loss. The rows that its next
// agent wrote before this session count as written while apart; later rows do not.
func TestApartSinceReboot(t *testing.T) {
	w := newTestHarness(t)
	id := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	ids := w.placeAllocs("shop", id, 1)
	w.reportStatus(id, fleet.ClientRunning, ids...)
	w.missHeartbeats(id)
	w.markAllocsUnknown(ids...)
	w.appendJournalRows(id, statusTransition(ids[0], fleet.ClientRunning), fleet.Transition{Kind: fleet.TransitionAgent},
		statusTransition(ids[0], fleet.ClientPending), statusTransition(ids[0], fleet.ClientRunning))
	w.openNextSession(id)
	w.appendJournalRows(id, statusTransition(ids[0], fleet.ClientFailed))
	if res := w.applyRowBatches(w.journalRows(id, 2, 6)); res[0].Code != "" {
		t.Fatalf("the history is refused: %+v", res[0])
	}
	want := "placed, running, node disconnected, unknown, node reconnected, running, pending*, running*, failed, node ready"
	if got := w.historyEvents(ids[0]); got != want {
		t.Fatalf("history: %s\nwant     %s", got, want)
	}
}

// A node that loses its link again before its history is in waits as before. The failures that it reported on the
// first attempt are evaluated later.
func TestReconnectInterrupted(t *testing.T) {
	w := newTestHarness(t)
	id := w.addReadyNode("n1")
	w.registerJob(job("night", fleet.JobTypeBatch, 2))
	ids := w.placeAllocs("night", id, 2)
	w.reportStatus(id, fleet.ClientRunning, ids...)
	w.missHeartbeats(id)
	w.mustApply(state.Evals{Evals: w.completedEvals("night")}) // no plan came: still running
	w.appendJournalRows(id, statusTransition(ids[0], fleet.ClientFailed), statusTransition(ids[1], fleet.ClientRunning))
	w.openNextSession(id)
	w.applyRowBatches(w.journalRows(id, 3, 3))
	w.wantStatus(ids[0], fleet.ClientFailed, fleet.ClientFailed)
	w.wantEvals("night")
	w.missHeartbeats(id)
	if n := w.getNode(id); n.Status != fleet.NodeDisconnected {
		t.Fatalf("node is %s", n.Status)
	}
	w.mustApply(state.Evals{Evals: w.completedEvals("night")})
	w.openNextSession(id)
	w.applyRowBatches(w.journalRows(id, 4, 4))
	w.wantEvals("night", fleet.TriggerNodeUpdate)
	if n := w.getNode(id); n.Status != fleet.NodeReady {
		t.Fatalf("node is %s", n.Status)
	}
}

// A batch allocation ended while its node was apart, and the node lost its link again after the row about that end:
// the end gets its evaluation all the same.
func TestEndSeenBeforeTheLinkBrokeAgain(t *testing.T) {
	w := newTestHarness(t)
	id := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeBatch, 1))
	ids := w.placeAllocs("shop", id, 1)
	w.reportStatus(id, fleet.ClientRunning, ids[0])
	w.missHeartbeats(id)
	w.appendJournalRows(id, statusTransition(ids[0], fleet.ClientFailed), fleet.Transition{Kind: fleet.TransitionOperator})
	w.openNextSession(id)
	done := func() { w.mustApply(state.Evals{Evals: w.completedEvals("shop"), Now: w.nowNanos()}) }
	done() // looked at while the history is coming in: left alone
	w.applyRowBatches(w.journalRows(id, 2, 2))
	w.wantStatus(ids[0], fleet.ClientFailed, fleet.ClientFailed)
	w.wantEvals("shop")
	w.missHeartbeats(id)
	w.wantEvals("shop", fleet.TriggerNodeUpdate)
}

// The same, with the second session while the node is initializing.
func TestReconnectTwice(t *testing.T) {
	w := newTestHarness(t)
	id := w.addReadyNode("n1")
	w.registerJob(job("night", fleet.JobTypeBatch, 1))
	ids := w.placeAllocs("night", id, 1)
	w.reportStatus(id, fleet.ClientRunning, ids...)
	w.missHeartbeats(id)
	w.mustApply(state.Evals{Evals: w.completedEvals("night")})
	w.appendJournalRows(id, statusTransition(ids[0], fleet.ClientFailed), fleet.Transition{Kind: fleet.TransitionAgent})
	w.openNextSession(id)
	w.applyRowBatches(w.journalRows(id, 2, 2))
	if res := w.openNextSession(id); res.Status != fleet.NodeInitializing {
		t.Fatalf("second session: %+v", res)
	}
	w.applyRowBatches(w.journalRows(id, 3, 3))
	w.wantEvals("night", fleet.TriggerNodeUpdate)
}

// An allocation that the hub gave up stays lost until the edge says that it is over. Until then it holds its resources
// on the node.
func TestLostAndFound(t *testing.T) {
	w := newTestHarness(t)
	id := w.addReadyNode("n1")
	j := job("shop", fleet.JobTypeService, 1)
	j.TaskGroups[0].Disconnect = &fleet.Disconnect{LostAfter: ptr(time.Minute)}
	w.registerJob(j)
	ids := w.placeAllocs("shop", id, 1)
	w.reportStatus(id, fleet.ClientRunning, ids...)
	w.missHeartbeats(id)
	w.markAllocsUnknown(ids...)
	w.moveClockForward(2 * time.Minute)
	w.missHeartbeats(id)
	w.updateAllocs(w.allocsWithStatus(fleet.ClientLost, ids...)...)
	w.wantStatus(ids[0], fleet.ClientLost, fleet.ClientRunning)
	if used := w.store.View().Used(id); used.CPU != 500 {
		t.Fatalf("used %+v by one that may still run", used)
	}
	w.openNextSession(id)
	w.reportStatus(id, fleet.ClientRunning, ids...)
	w.wantStatus(ids[0], fleet.ClientLost, fleet.ClientRunning)
	w.reportStatus(id, fleet.ClientComplete, ids...)
	w.wantStatus(ids[0], fleet.ClientComplete, fleet.ClientComplete)
	if used := w.store.View().Used(id); used != (fleet.Resources{}) {
		t.Fatalf("used %+v by one that is over", used)
	}
	// The history has the whole partition, also for an allocation that was given up.
	want := "placed, running, node disconnected, unknown, node down, lost, stop, node reconnected, node ready, running, complete"
	if got := w.historyEvents(ids[0]); got != want {
		t.Fatalf("history: %s\nwant     %s", got, want)
	}
	w.mustApply(state.Evals{Evals: w.completedEvals("shop")})
	w.wantEvals("shop")
}

// A batch job that is stopped and started again runs all its work anew, also what was done after a hub had given it up.
func TestStartedAgainAfterItWasDone(t *testing.T) {
	w := newTestHarness(t)
	id := w.addReadyNode("n1")
	w.registerJob(job("night", fleet.JobTypeBatch, 1))
	ids := w.placeAllocs("night", id, 1)
	w.reportStatus(id, fleet.ClientRunning, ids...)
	w.missHeartbeats(id)
	w.markAllocsUnknown(ids...)
	w.updateAllocs(w.allocsWithStatus(fleet.ClientLost, ids...)...)
	w.openNextSession(id)
	w.reportStatus(id, fleet.ClientComplete, ids...)
	if a := w.getAlloc(ids[0]); !a.DoneAfterAll() {
		t.Fatalf("it is not done: %+v", a)
	}
	w.mustApply(state.JobDeregister{Namespace: fleet.DefaultNamespace, ID: "night", Eval: w.newEvaluation(fleet.TriggerJobDeregister), Now: w.nowNanos()})
	w.registerJob(job("night", fleet.JobTypeBatch, 1))
	if a := w.getAlloc(ids[0]); !a.Retired || a.DoneAfterAll() {
		t.Errorf("it counts as done: %+v", a)
	}
}

func TestNodeCommands(t *testing.T) {
	w := newTestHarness(t)
	id := w.addReadyNode("n1")
	w.mustRefuse(fleet.CodeNotFound, state.NodeEligibility{NodeID: "nosuch", Eligibility: fleet.NodeEligible})
	w.mustRefuse(fleet.CodeInvalid, state.NodeEligibility{NodeID: id, Eligibility: "maybe"})
	w.mustRefuse(fleet.CodeInvalid, state.NodeRegister{})
	w.mustRefuse(fleet.CodeNotFound, state.NodeResync{NodeID: "nosuch"})
	w.mustRefuse(fleet.CodeStaleEpoch, state.NodeResync{NodeID: id, Epoch: 9})
	w.mustRefuse(fleet.CodeNotFound, state.Fence{NodeID: "nosuch"})
	w.mustApply(state.NodeEligibility{NodeID: id, Eligibility: fleet.NodeIneligible, Now: w.nowNanos()})
	if w.getNode(id).Schedulable() {
		t.Fatal("an ineligible node takes work")
	}
	system := job("logs", fleet.JobTypeSystem, 1)
	w.mustApply(state.JobRegister{Job: system, Now: w.nowNanos()})
	if s := w.getJob("logs").Status; s != fleet.JobStatusRunning {
		t.Fatalf("a system job without nodes is %s", s)
	}
	w.mustApply(state.NodeEligibility{NodeID: id, Eligibility: fleet.NodeEligible, EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()})
	w.wantEvals("logs", fleet.TriggerNodeUpdate)
	w.mustApply(state.NodeResync{NodeID: id, Epoch: 1, Reason: "half-way for 40s", Now: w.nowNanos()})
	if d := w.getNode(id).StatusDescription; d != "half-way for 40s" {
		t.Fatalf("status description %q", d)
	}
	for i := range 20 {
		was := w.getNode(id).ModifyIndex
		w.mustApply(state.Fence{NodeID: id, Rows: [][]byte{{1}}, Session: fleet.FencedSession{
			Code: fleet.CodeCloned, Addr: "192.0.2.9:1", Head: fleet.Seq(i), Time: w.nowNanos()}})
		if is := w.getNode(id).ModifyIndex; is <= was {
			t.Fatalf("session %d was fenced, and whoever waits for a change of its node is told nothing: index %d", i, is)
		}
	}
	kept := w.store.View().Fenced(id)
	if len(kept) != 16 || kept[15].Session.Head != 19 || len(w.getNode(id).Fenced) != 16 || len(w.getNode(id).Events) != 10 {
		t.Fatalf("%d fenced sessions, the newest %+v", len(kept), kept[len(kept)-1].Session)
	}
}

// Capacity is noted by class where a node can take new work, or more of it.
func TestCapacity(t *testing.T) {
	w := newTestHarness(t)
	at := func(id fleet.NodeID) fleet.Index {
		for class, index := range w.store.View().CapacitySince(0) {
			if class == w.getNode(id).ComputedClass {
				return index
			}
		}
		return 0
	}
	id := w.addReadyNode("n1")
	twin := w.addReadyNode("n2")
	if w.getNode(id).ComputedClass != w.getNode(twin).ComputedClass {
		t.Fatal("nodes that differ in what is unique alone have different classes")
	}
	if at(id) != w.index {
		t.Fatalf("capacity at %d, the node became ready at %d", at(id), w.index)
	}
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	ids := w.placeAllocs("shop", id, 1)
	w.reportStatus(id, fleet.ClientRunning, ids...)
	before := at(id)
	stop := *w.getAlloc(ids[0])
	stop.DesiredStatus = fleet.DesiredStop
	w.updateAllocs(stop)
	if at(id) != before {
		t.Fatal("a stop that the edge has not confirmed gave capacity")
	}
	w.reportStatus(id, fleet.ClientComplete, ids...)
	if at(id) != w.index {
		t.Fatalf("capacity at %d, the edge confirmed the end at %d", at(id), w.index)
	}
	bigger := description(id, "n1")
	bigger.Resources.MemoryMB *= 2
	w.mustApply(state.NodeRegister{Node: bigger, Now: w.nowNanos()})
	if at(id) != w.index {
		t.Fatal("more memory gave no capacity")
	}
	w.mustApply(state.NodeRegister{Node: bigger, Now: w.nowNanos()})
	if at(id) == w.index {
		t.Fatal("the same description gave capacity")
	}
}

// TestLastContact has nodes miss their deadline: they are away since they were last heard of,
// which is not before their session made them ready, nor after it was noticed.
func TestLastContact(t *testing.T) {
	for _, tc := range []struct {
		name        string
		heard, want time.Duration // before the deadline was missed; 0: not known
	}{
		{"heard of", 20 * time.Second, 20 * time.Second},
		{"an older release did not say", 0, 0},
		{"heard of by another leader, before its session", 5 * time.Minute, time.Minute},
		{"a clock that went back", -time.Second, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newTestHarness(t)
			id := w.addReadyNode("n1")
			w.registerJob(job("shop", fleet.JobTypeService, 1))
			ids := w.placeAllocs("shop", id, 1)
			w.reportStatus(id, fleet.ClientRunning, ids...)
			w.moveClockForward(time.Minute)
			missed := state.NodeMissed{NodeID: id, Epoch: w.edges[id].epoch, Reason: "silent"}
			if tc.heard != 0 {
				missed.LastHeard = w.now.Add(-tc.heard).UnixNano()
			}
			w.mustApply(state.NodeStatus{Nodes: []state.NodeMissed{missed}, EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()})
			want := w.now.Add(-tc.want)
			if n := w.getNode(id); n.DisconnectedAt != want.UnixNano() {
				t.Errorf("away since %s, want %s", time.Unix(0, n.DisconnectedAt), want)
			}
			said := w.store.View().History(ids[0])
			if last := said[len(said)-1]; last.Event != fleet.EventNodeDisconnected || last.Since == nil || !last.Since.Equal(want) || !last.Time.Equal(w.now) {
				t.Errorf("%s at %s, since %v, want %s", last.Event, last.Time, last.Since, want)
			}
		})
	}
}
