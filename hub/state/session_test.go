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
	w := newT(t)
	w.refused(fleet.CodeNotFound, state.SessionOpen{NodeID: "nosuch", Session: 1, Now: w.nano()})
	id := w.node("n1")
	n := w.getNode(id)
	if n.Epoch != 1 || n.Session != 1 || n.Hub != "hub-1" || n.Address != "192.0.2.1:4000" {
		t.Fatalf("node: %+v", n)
	}
	if len(n.Events) != 1 || n.Events[0].Message != "Node registered" {
		t.Fatalf("events: %+v", n.Events)
	}
	res := w.refused(fleet.CodeStaleSession, state.SessionOpen{NodeID: id, Session: 1, Now: w.nano()})
	if res.Session == nil || res.Session.Session != 1 {
		t.Fatalf("stale session: %+v", res.Session)
	}
	// A session may bring the description of a node that nobody registered.
	d := description("0a000000-0000-4000-8000-000000000001", "n2")
	w.refused(fleet.CodeInvalid, state.SessionOpen{NodeID: id, Session: 9, Node: &d, Now: w.nano()})
	opened := w.must(state.SessionOpen{NodeID: d.ID, Session: 1, Node: &d, Now: w.nano()})
	if opened.Session.Status != fleet.NodeReady || opened.Session.Epoch != 1 {
		t.Fatalf("first session of a new node: %+v", opened.Session)
	}
}

// Another agent process follows a session that was found to be over, and no other one.
func TestSessionFollows(t *testing.T) {
	w := newT(t)
	id := w.node("n1")
	open := state.SessionOpen{NodeID: id, Session: 7, Instance: "i2", Hub: "hub-2", Now: w.nano()}
	w.must(open)
	other := state.SessionOpen{NodeID: id, Session: 8, Instance: "i3", Hub: "hub-1", Follows: 1, Now: w.nano()}
	w.refused(fleet.CodeConflict, other)
	same := state.SessionOpen{NodeID: id, Session: 8, Instance: "i2", Hub: "hub-1", Follows: 1, Now: w.nano()}
	if res := w.must(same); res.Session.Epoch != 3 {
		t.Errorf("the same process's next session: %+v", res.Session)
	}
	other.Session, other.Follows = 9, 3
	if res := w.must(other); res.Session.Epoch != 4 {
		t.Errorf("another process's session behind the newest: %+v", res.Session)
	}
}

// A newcomer that waits is shown until somebody has a session, or it is fenced.
func TestNewcomerIsShown(t *testing.T) {
	w := newT(t)
	id := w.node("n1")
	newcomer := fleet.FencedSession{Code: fleet.CodeFormerSession, Instance: "i9", Addr: "192.0.2.9:4000", Time: w.nano()}
	waits := func(want fleet.InstanceID) {
		t.Helper()
		n := w.getNode(id)
		if got := n.Newcomer; want == "" && got != nil || want != "" && (got == nil || got.Instance != want) {
			t.Errorf("newcomer %+v, want %q", got, want)
		}
	}
	note := func() { w.must(state.Fence{NodeID: id, Session: newcomer}) }
	note()
	waits("i9")
	n := w.getNode(id)
	if last := n.Events[len(n.Events)-1].Message; len(n.Fenced) > 0 || !strings.Contains(last, newcomer.Addr) || !strings.Contains(last, "hub-1") {
		t.Errorf("fenced %+v, told %q", n.Fenced, last)
	}
	w.session(id)
	waits("")
	note()
	w.must(state.Fence{NodeID: id, Session: fleet.FencedSession{Code: fleet.CodeCloned, Instance: "i8"}})
	waits("i9")
	w.must(state.Fence{NodeID: id, Session: fleet.FencedSession{Code: fleet.CodeCloned, Instance: "i9"}})
	waits("")
}

// Readmitting a node ends with the session that lost rows, or with rows that follow.
func TestNodeReadmit(t *testing.T) {
	w := newT(t)
	w.refused(fleet.CodeNotFound, state.NodeReadmit{NodeID: "nosuch", Now: w.nano()})
	id := w.node("n1")
	readmit := func() {
		t.Helper()
		w.must(state.NodeReadmit{NodeID: id, Now: w.nano()})
		if n := w.getNode(id); !n.Readmit || !strings.Contains(n.Events[len(n.Events)-1].Message, "readmitted") {
			t.Fatalf("node: %+v", n)
		}
	}
	readmit()
	w.session(id)
	if !w.getNode(id).Readmit {
		t.Error("ended by a session that says nothing of its journal")
	}
	w.journal(id, fleet.Transition{Kind: fleet.TransitionAgent})
	w.send(w.pending(id))
	if w.getNode(id).Readmit {
		t.Error("not ended by rows that follow")
	}
	readmit()
	w.edges[id].session++
	w.must(state.SessionOpen{NodeID: id, Session: w.edges[id].session, Instance: "i2", Hub: "hub-1", Lost: "an older copy", Now: w.nano()})
	if w.getNode(id).Readmit {
		t.Error("not ended by the session that lost rows")
	}
	w.must(state.NodeRevoke{NodeID: id, EvalSeed: w.seed(), Now: w.nano()})
	w.refused(fleet.CodeConflict, state.NodeReadmit{NodeID: id, Now: w.nano()})
}

// A session within the deadline leaves the node ready, whatever its journal
// holds, and fences the one before it.
func TestSessionBlip(t *testing.T) {
	w := newT(t)
	id := w.node("n1")
	w.register(job("shop", fleet.JobTypeService, 1))
	ids := w.place("shop", id, 1)
	w.journal(id, says(ids[0], fleet.ClientRunning))
	old := w.pending(id)
	if res := w.session(id); res.Status != fleet.NodeReady || res.Epoch != 2 {
		t.Fatalf("blip: %+v", res)
	}
	if res := w.send(old); res[0].Code != fleet.CodeStaleEpoch {
		t.Fatalf("rows of the older session: %+v", res[0])
	}
	w.wantStatus(ids[0], fleet.ClientPending, "")
	if res := w.send(w.pending(id)); res[0].Code != "" || res[0].Applied != 1 {
		t.Fatalf("rows of the newer session: %+v", res[0])
	}
}

// A session of an edge that has lost rows: the node waits for the next one, also
// where its deadline has not passed.
func TestSessionOfALostJournal(t *testing.T) {
	w := newT(t)
	id := w.node("n1")
	w.journal(id, fleet.Transition{Kind: fleet.TransitionAgent}, fleet.Transition{Kind: fleet.TransitionOperator})
	w.send(w.pending(id))
	was := w.getNode(id)
	w.edges[id].session++
	res := w.must(state.SessionOpen{NodeID: id, Session: w.edges[id].session, Instance: "i2", Hub: "hub-1", Head: 1, Lost: "the database is gone", Now: w.nano()})
	n := w.getNode(id)
	if n.Status != fleet.NodeInitializing || n.JournalHead != 3 || res.Session.Applied != 2 || !bytes.Equal(res.Session.ChainHash, was.ChainHash) {
		t.Fatalf("node: %+v, answered %+v", n, res.Session)
	}
	if !strings.Contains(n.StatusDescription, "the database is gone") || !strings.Contains(n.Events[len(n.Events)-1].Message, "the database is gone") {
		t.Errorf("it does not say why: %q, %+v", n.StatusDescription, n.Events)
	}
	w.journal(id, fleet.Transition{Kind: fleet.TransitionGap, Message: "the journal was damaged"})
	if res := w.session(id); res.Status != fleet.NodeInitializing {
		t.Fatalf("ready before the gap is in: %+v", res)
	}
	if got := w.send(w.pending(id)); got[0].Code != "" || got[0].Status != fleet.NodeReady {
		t.Fatalf("with the gap: %+v", got[0])
	}
}

// What waits while its link is gone: rows A1, A2, A4, A44, A46 and the pools'
// defaults.
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
			w := newT(t)
			w.must(state.Pool{Pool: fleet.Pool{Name: fleet.DefaultPool, DefaultDisconnect: c.pool}})
			id := w.node("n1")
			if c.client != "" {
				j := job("shop", fleet.JobTypeService, 1)
				j.TaskGroups[0].Disconnect = c.block
				w.register(j)
				ids := w.place("shop", id, 1)
				w.report(id, c.client, ids...)
				w.must(state.Evals{Evals: w.ended("shop")})
				if c.unknown > 0 {
					w.miss(id)
					w.unknown(ids...)
					w.pass(c.unknown)
				}
			}
			w.miss(id)
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

// What was told to stop and has not said that it did is out of sight with its node, also
// where no evaluation looks at its job any more, and shows what its edge says when that is
// back. Nomad's rules leave it as it is.
func TestStoppingAllocsOfANodeThatIsAway(t *testing.T) {
	for name, c := range map[string]struct {
		jobType, pool string
		away          string
	}{
		"service":             {fleet.JobTypeService, "", fleet.ClientUnknown},
		"system":              {fleet.JobTypeSystem, "", fleet.ClientUnknown},
		"sysbatch":            {fleet.JobTypeSysBatch, "", fleet.ClientUnknown},
		"under Nomad's rules": {fleet.JobTypeService, fleet.DisconnectNomad, fleet.ClientRunning},
	} {
		t.Run(name, func(t *testing.T) {
			w := newT(t)
			w.must(state.Pool{Pool: fleet.Pool{Name: fleet.DefaultPool, DefaultDisconnect: c.pool}})
			id := w.node("n1")
			shop, till := job("shop", c.jobType, 3), job("till", fleet.JobTypeService, 1)
			till.TaskGroups[0].Disconnect = &fleet.Disconnect{LostAfter: ptr(time.Hour)} // waits under any rules
			w.register(shop)
			w.register(till)
			ids := w.place("shop", id, 3)
			stays := w.place("till", id, 1)
			w.report(id, fleet.ClientRunning, append(ids, stays...)...)
			for _, a := range ids {
				stopped := *w.getAlloc(a)
				stopped.DesiredStatus, stopped.DesiredDescription = fleet.DesiredStop, "not wanted"
				w.update(stopped)
			}
			w.report(id, fleet.ClientComplete, ids[2])
			w.miss(id)
			if n := w.getNode(id); n.Status != fleet.NodeDisconnected {
				t.Fatalf("the node is %s", n.Status)
			}
			w.wantStatus(ids[0], c.away, fleet.ClientRunning)
			w.wantStatus(ids[1], c.away, fleet.ClientRunning)
			w.wantStatus(ids[2], fleet.ClientComplete, fleet.ClientComplete)
			w.wantStatus(stays[0], fleet.ClientRunning, fleet.ClientRunning) // the evaluation's to decide
			w.pass(time.Minute)
			w.journal(id, says(ids[0], fleet.ClientComplete))
			w.session(id)
			w.send(w.pending(id))
			w.wantStatus(ids[0], fleet.ClientComplete, fleet.ClientComplete)
			w.wantStatus(ids[1], fleet.ClientRunning, fleet.ClientRunning)
		})
	}
}

// One evaluation a job, for jobs that have something to decide, however many
// nodes miss their deadline in one entry (A20).
func TestNodeStatusEvals(t *testing.T) {
	w := newT(t)
	a, b := w.node("n1"), w.node("n2")
	w.register(job("shop", fleet.JobTypeService, 4))
	w.register(job("night", fleet.JobTypeBatch, 1))
	shop := append(w.place("shop", a, 2), w.place("shop", b, 2)...)
	night := w.place("night", a, 1)
	w.report(a, fleet.ClientRunning, shop[:2]...)
	w.report(b, fleet.ClientRunning, shop[2:]...)
	w.report(a, fleet.ClientComplete, night...)
	w.wantEvals("shop")
	if moved := w.miss(a, b); len(moved) != 2 {
		t.Fatalf("moved %v", moved)
	}
	w.wantEvals("shop", fleet.TriggerNodeUpdate)
	w.wantEvals("night")
	if moved := w.miss(a, b); len(moved) != 0 {
		t.Fatalf("moved again: %v", moved)
	}
	w.wantEvals("shop", fleet.TriggerNodeUpdate)
	res := w.must(state.NodeStatus{Nodes: []state.NodeMissed{{NodeID: a, Epoch: 99}, {NodeID: "nosuch"}}, Now: w.nano()})
	if len(res.Moved) != 0 {
		t.Fatalf("moved by an older epoch: %v", res.Moved)
	}
}

// A deadline belongs to a session. One of an older session, which passed or was decided on
// before the newer one came, does not touch the node.
func TestDeadlineOfAnotherSession(t *testing.T) {
	w := newT(t)
	id := w.node("n1")
	w.register(job("shop", fleet.JobTypeService, 1))
	ids := w.place("shop", id, 1)
	w.report(id, fleet.ClientRunning, ids...)
	w.session(id)
	expect := func(status fleet.NodeStatus) {
		t.Helper()
		for _, epoch := range []fleet.Epoch{0, 1, w.getNode(id).Epoch - 1, w.getNode(id).Epoch + 1} {
			res := w.must(state.NodeStatus{Nodes: []state.NodeMissed{{NodeID: id, Epoch: epoch, Reason: "missed"}}, EvalSeed: w.seed(), Now: w.nano()})
			if n := w.getNode(id); len(res.Moved) > 0 || n.Status != status || n.DisconnectedAt != 0 {
				t.Fatalf("missed in epoch %d, the node's is %d: it is %s, want %s", epoch, n.Epoch, n.Status, status)
			}
		}
		w.wantEvals("shop")
	}
	expect(fleet.NodeReady)
	w.miss(id)
	w.must(state.Evals{Evals: w.ended("shop"), Now: w.nano()})
	w.journal(id, fleet.Transition{Kind: fleet.TransitionAgent})
	w.session(id)
	expect(fleet.NodeInitializing)
}

// Ready comes with the last row of the head that the Hello announced, not one before it.
func TestReadyWithTheLastRowOfTheHead(t *testing.T) {
	w := newT(t)
	id := w.node("n1")
	w.register(job("shop", fleet.JobTypeService, 1))
	ids := w.place("shop", id, 1)
	w.report(id, fleet.ClientRunning, ids...)
	w.miss(id)
	w.journal(id, fleet.Transition{Kind: fleet.TransitionDisconnect}, says(ids[0], fleet.ClientFailed), fleet.Transition{Kind: fleet.TransitionReconnect})
	w.session(id)
	for {
		n := w.getNode(id)
		if want := n.Applied >= n.JournalHead; (n.Status == fleet.NodeReady) != want {
			t.Fatalf("%s with row %d of %d", n.Status, n.Applied, n.JournalHead)
		}
		if n.Status == fleet.NodeReady {
			return
		}
		w.send(w.rows(id, int(n.Applied)+1, int(n.Applied)+1))
	}
}

// A plan that was made while the node was away comes when it is ready again: what runs there
// is not unknown, nor lost.
func TestStalePlanLeavesAReadyNode(t *testing.T) {
	w := newT(t)
	id := w.node("n1")
	w.register(job("shop", fleet.JobTypeService, 1))
	ids := w.place("shop", id, 1)
	w.report(id, fleet.ClientRunning, ids...)
	w.miss(id)
	for _, status := range []string{fleet.ClientUnknown, fleet.ClientLost} {
		stale := w.concluded(status, ids...)
		if w.getNode(id).Status != fleet.NodeReady {
			w.session(id)
		}
		w.update(stale...)
		w.wantStatus(ids[0], fleet.ClientRunning, fleet.ClientRunning)
		if a := w.getAlloc(ids[0]); a.NeedsToReconnect() {
			t.Errorf("%s by a stale plan is recorded: %+v", status, a.AllocStates)
		}
	}
}

// Out of sight and back: unknown until the history is in, then what the edge
// reported last, with one evaluation a job (A10, A11, A17). I1: the node is not ready
// before that.
func TestReconnect(t *testing.T) {
	w := newT(t)
	id := w.node("n1")
	w.register(job("shop", fleet.JobTypeService, 3))
	ids := w.place("shop", id, 3)
	w.report(id, fleet.ClientRunning, ids...)
	w.miss(id)
	w.unknown(ids...)
	w.journal(id, fleet.Transition{Kind: fleet.TransitionDisconnect},
		says(ids[0], fleet.ClientPending), says(ids[0], fleet.ClientRunning),
		says(ids[1], fleet.ClientFailed), fleet.Transition{Kind: fleet.TransitionReconnect})
	w.pass(time.Minute)

	if res := w.session(id); res.Status != fleet.NodeInitializing || res.Applied != 3 {
		t.Fatalf("session after an absence: %+v", res)
	}
	if res := w.send(w.rows(id, 4, 6)); res[0].Code != "" || res[0].Status != fleet.NodeInitializing {
		t.Fatalf("first part of the history: %+v", res[0])
	}
	w.wantStatus(ids[0], fleet.ClientUnknown, fleet.ClientRunning)
	w.wantEvals("shop")
	if res := w.send(w.rows(id, 7, 8)); res[0].Status != fleet.NodeReady || res[0].Applied != 8 {
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
	if got, want := w.events(ids[0]), "placed, running, node disconnected, unknown, node reconnected, pending*, running*, node ready"; got != want {
		t.Fatalf("history: %s\nwant     %s", got, want)
	}
	// The plan settles it, and the edge need not hear of that.
	heard := w.store.View().DesiredIndex(id)
	w.update(w.concluded(fleet.ClientRunning, ids[0])...)
	if w.getAlloc(ids[0]).NeedsToReconnect() || w.store.View().DesiredIndex(id) != heard {
		t.Fatal("settling is not settled, or the edge is told of it")
	}
}

// An edge that was rebooted before it noticed that its link was gone has no row that
// says so: what its next agent wrote before this session is from the time apart all
// the same, and what it wrote since is not.
func TestApartSinceReboot(t *testing.T) {
	w := newT(t)
	id := w.node("n1")
	w.register(job("shop", fleet.JobTypeService, 1))
	ids := w.place("shop", id, 1)
	w.report(id, fleet.ClientRunning, ids...)
	w.miss(id)
	w.unknown(ids...)
	w.journal(id, says(ids[0], fleet.ClientRunning), fleet.Transition{Kind: fleet.TransitionAgent},
		says(ids[0], fleet.ClientPending), says(ids[0], fleet.ClientRunning))
	w.session(id)
	w.journal(id, says(ids[0], fleet.ClientFailed))
	if res := w.send(w.rows(id, 2, 6)); res[0].Code != "" {
		t.Fatalf("the history is refused: %+v", res[0])
	}
	want := "placed, running, node disconnected, unknown, node reconnected, running, pending*, running*, failed, node ready"
	if got := w.events(ids[0]); got != want {
		t.Fatalf("history: %s\nwant     %s", got, want)
	}
}

// A node whose link goes again before its history is in waits as before, and its
// failures of the first attempt are not forgotten.
func TestReconnectInterrupted(t *testing.T) {
	w := newT(t)
	id := w.node("n1")
	w.register(job("night", fleet.JobTypeBatch, 2))
	ids := w.place("night", id, 2)
	w.report(id, fleet.ClientRunning, ids...)
	w.miss(id)
	w.must(state.Evals{Evals: w.ended("night")}) // no plan came: still running
	w.journal(id, says(ids[0], fleet.ClientFailed), says(ids[1], fleet.ClientRunning))
	w.session(id)
	w.send(w.rows(id, 3, 3))
	w.wantStatus(ids[0], fleet.ClientFailed, fleet.ClientFailed)
	w.wantEvals("night")
	w.miss(id)
	if n := w.getNode(id); n.Status != fleet.NodeDisconnected {
		t.Fatalf("node is %s", n.Status)
	}
	w.must(state.Evals{Evals: w.ended("night")})
	w.session(id)
	w.send(w.rows(id, 4, 4))
	w.wantEvals("night", fleet.TriggerNodeUpdate)
	if n := w.getNode(id); n.Status != fleet.NodeReady {
		t.Fatalf("node is %s", n.Status)
	}
}

// A batch allocation that ended while apart, and whose node lost its link again
// with its end in and the rest of its history not: the end is looked at all the same.
func TestEndSeenBeforeTheLinkBrokeAgain(t *testing.T) {
	w := newT(t)
	id := w.node("n1")
	w.register(job("shop", fleet.JobTypeBatch, 1))
	ids := w.place("shop", id, 1)
	w.report(id, fleet.ClientRunning, ids[0])
	w.miss(id)
	w.journal(id, says(ids[0], fleet.ClientFailed), fleet.Transition{Kind: fleet.TransitionOperator})
	w.session(id)
	done := func() { w.must(state.Evals{Evals: w.ended("shop"), Now: w.nano()}) }
	done() // looked at while the history is coming in: left alone
	w.send(w.rows(id, 2, 2))
	w.wantStatus(ids[0], fleet.ClientFailed, fleet.ClientFailed)
	w.wantEvals("shop")
	w.miss(id)
	w.wantEvals("shop", fleet.TriggerNodeUpdate)
}

// The same, with the second session while the node is initializing.
func TestReconnectTwice(t *testing.T) {
	w := newT(t)
	id := w.node("n1")
	w.register(job("night", fleet.JobTypeBatch, 1))
	ids := w.place("night", id, 1)
	w.report(id, fleet.ClientRunning, ids...)
	w.miss(id)
	w.must(state.Evals{Evals: w.ended("night")})
	w.journal(id, says(ids[0], fleet.ClientFailed), fleet.Transition{Kind: fleet.TransitionAgent})
	w.session(id)
	w.send(w.rows(id, 2, 2))
	if res := w.session(id); res.Status != fleet.NodeInitializing {
		t.Fatalf("second session: %+v", res)
	}
	w.send(w.rows(id, 3, 3))
	w.wantEvals("night", fleet.TriggerNodeUpdate)
}

// What the hub gave up stays lost until the edge says that it is over, and takes
// its place on the node until then.
func TestLostAndFound(t *testing.T) {
	w := newT(t)
	id := w.node("n1")
	j := job("shop", fleet.JobTypeService, 1)
	j.TaskGroups[0].Disconnect = &fleet.Disconnect{LostAfter: ptr(time.Minute)}
	w.register(j)
	ids := w.place("shop", id, 1)
	w.report(id, fleet.ClientRunning, ids...)
	w.miss(id)
	w.unknown(ids...)
	w.pass(2 * time.Minute)
	w.miss(id)
	w.update(w.concluded(fleet.ClientLost, ids...)...)
	w.wantStatus(ids[0], fleet.ClientLost, fleet.ClientRunning)
	if used := w.store.View().Used(id); used.CPU != 500 {
		t.Fatalf("used %+v by one that may still run", used)
	}
	w.session(id)
	w.report(id, fleet.ClientRunning, ids...)
	w.wantStatus(ids[0], fleet.ClientLost, fleet.ClientRunning)
	w.report(id, fleet.ClientComplete, ids...)
	w.wantStatus(ids[0], fleet.ClientComplete, fleet.ClientComplete)
	if used := w.store.View().Used(id); used != (fleet.Resources{}) {
		t.Fatalf("used %+v by one that is over", used)
	}
	// The partition is in its record from end to end, also where it was given up.
	want := "placed, running, node disconnected, unknown, node down, lost, stop, node reconnected, node ready, running, complete"
	if got := w.events(ids[0]); got != want {
		t.Fatalf("history: %s\nwant     %s", got, want)
	}
	w.must(state.Evals{Evals: w.ended("shop")})
	w.wantEvals("shop")
}

func TestNodeCommands(t *testing.T) {
	w := newT(t)
	id := w.node("n1")
	w.refused(fleet.CodeNotFound, state.NodeEligibility{NodeID: "nosuch", Eligibility: fleet.NodeEligible})
	w.refused(fleet.CodeInvalid, state.NodeEligibility{NodeID: id, Eligibility: "maybe"})
	w.refused(fleet.CodeInvalid, state.NodeRegister{})
	w.refused(fleet.CodeNotFound, state.NodeResync{NodeID: "nosuch"})
	w.refused(fleet.CodeStaleEpoch, state.NodeResync{NodeID: id, Epoch: 9})
	w.refused(fleet.CodeNotFound, state.Fence{NodeID: "nosuch"})
	w.must(state.NodeEligibility{NodeID: id, Eligibility: fleet.NodeIneligible, Now: w.nano()})
	if w.getNode(id).Schedulable() {
		t.Fatal("an ineligible node takes work")
	}
	system := job("logs", fleet.JobTypeSystem, 1)
	w.must(state.JobRegister{Job: system, Now: w.nano()})
	if s := w.getJob("logs").Status; s != fleet.JobStatusRunning {
		t.Fatalf("a system job without nodes is %s", s)
	}
	w.must(state.NodeEligibility{NodeID: id, Eligibility: fleet.NodeEligible, EvalSeed: w.seed(), Now: w.nano()})
	w.wantEvals("logs", fleet.TriggerNodeUpdate)
	w.must(state.NodeResync{NodeID: id, Epoch: 1, Reason: "half-way for 40s", Now: w.nano()})
	if d := w.getNode(id).StatusDescription; d != "half-way for 40s" {
		t.Fatalf("status description %q", d)
	}
	for i := range 20 {
		was := w.getNode(id).ModifyIndex
		w.must(state.Fence{NodeID: id, Rows: [][]byte{{1}}, Session: fleet.FencedSession{
			Code: fleet.CodeCloned, Addr: "192.0.2.9:1", Head: fleet.Seq(i), Time: w.nano()}})
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
	w := newT(t)
	at := func(id fleet.NodeID) fleet.Index {
		for class, index := range w.store.View().CapacitySince(0) {
			if class == w.getNode(id).ComputedClass {
				return index
			}
		}
		return 0
	}
	id := w.node("n1")
	twin := w.node("n2")
	if w.getNode(id).ComputedClass != w.getNode(twin).ComputedClass {
		t.Fatal("nodes that differ in what is unique alone have different classes")
	}
	if at(id) != w.index {
		t.Fatalf("capacity at %d, the node became ready at %d", at(id), w.index)
	}
	w.register(job("shop", fleet.JobTypeService, 1))
	ids := w.place("shop", id, 1)
	w.report(id, fleet.ClientRunning, ids...)
	before := at(id)
	stop := *w.getAlloc(ids[0])
	stop.DesiredStatus = fleet.DesiredStop
	w.update(stop)
	if at(id) != before {
		t.Fatal("a stop that the edge has not confirmed gave capacity")
	}
	w.report(id, fleet.ClientComplete, ids...)
	if at(id) != w.index {
		t.Fatalf("capacity at %d, the edge confirmed the end at %d", at(id), w.index)
	}
	bigger := description(id, "n1")
	bigger.Resources.MemoryMB *= 2
	w.must(state.NodeRegister{Node: bigger, Now: w.nano()})
	if at(id) != w.index {
		t.Fatal("more memory gave no capacity")
	}
	w.must(state.NodeRegister{Node: bigger, Now: w.nano()})
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
			w := newT(t)
			id := w.node("n1")
			w.register(job("shop", fleet.JobTypeService, 1))
			ids := w.place("shop", id, 1)
			w.report(id, fleet.ClientRunning, ids...)
			w.pass(time.Minute)
			missed := state.NodeMissed{NodeID: id, Epoch: w.edges[id].epoch, Reason: "silent"}
			if tc.heard != 0 {
				missed.LastHeard = w.now.Add(-tc.heard).UnixNano()
			}
			w.must(state.NodeStatus{Nodes: []state.NodeMissed{missed}, EvalSeed: w.seed(), Now: w.nano()})
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
