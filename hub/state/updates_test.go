package state_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/fleet/taskenv"
	"skerry/hub/state"
)

// A batch that is refused gets a code and a reason, and changes nothing.
func TestUpdatesRefused(t *testing.T) {
	w := newTestHarness(t)
	a, b := w.addReadyNode("n1"), w.addReadyNode("n2")
	w.registerJob(job("shop", fleet.JobTypeService, 2))
	mine, other := w.placeAllocs("shop", a, 1), w.placeAllocs("shop", b, 1)
	w.reportStatus(a, fleet.ClientRunning, mine...)
	w.appendJournalRows(a, statusTransition(mine[0], fleet.ClientFailed), statusTransition(mine[0], fleet.ClientRunning))
	good := w.unappliedBatch(a)

	change := func(f func(*state.NodeRows)) state.NodeRows {
		c := good
		c.Rows = append([][]byte(nil), good.Rows...)
		f(&c)
		return c
	}
	w.appendJournalRows(b, statusTransition(mine[0], fleet.ClientFailed))
	foreign := w.unappliedBatch(b)
	for _, c := range []struct {
		name  string
		batch state.NodeRows
		want  fleet.Code
	}{
		{"unknown node", change(func(b *state.NodeRows) { b.NodeID = "nosuch" }), fleet.CodeNotFound},
		{"older epoch", change(func(b *state.NodeRows) { b.Epoch-- }), fleet.CodeStaleEpoch},
		{"newer epoch", change(func(b *state.NodeRows) { b.Epoch++ }), fleet.CodeStaleEpoch},
		{"gap", change(func(b *state.NodeRows) { b.First++ }), fleet.CodeGap},
		{"row zero", change(func(b *state.NodeRows) { b.First = 0 }), fleet.CodeGap},
		{"another chain", change(func(b *state.NodeRows) { b.Prev = []byte("0123456789abcdef") }), fleet.CodeFork},
		{"no chain", change(func(b *state.NodeRows) { b.Prev = nil }), fleet.CodeFork},
		{"bad row", change(func(b *state.NodeRows) { b.Rows[1] = []byte{1, 2, 3} }), fleet.CodeFrameBad},
		{"row of another number", change(func(b *state.NodeRows) { b.Rows[1] = b.Rows[0] }), fleet.CodeFrameBad},
		{"foreign allocation", foreign, fleet.CodeForeignAlloc},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := trimApplied(describe(t, w.store.View()))
			res := w.applyRowBatches(c.batch)
			if res[0].Code != c.want || res[0].Message == "" {
				t.Fatalf("%+v, want %s", res[0], c.want)
			}
			if after := trimApplied(describe(t, w.store.View())); after != before {
				t.Fatalf("a refused batch changed the state:\n%s", diff(before, after))
			}
		})
	}
	// The refusal of one batch does not touch the other batches of its entry.
	res := w.applyRowBatches(foreign, good)
	if res[0].Code != fleet.CodeForeignAlloc || res[1].Code != "" || res[1].Applied != 3 {
		t.Fatalf("%+v", res)
	}
	w.wantStatus(other[0], fleet.ClientPending, "")

	w.missHeartbeats(a)
	w.appendJournalRows(a, statusTransition(mine[0], fleet.ClientRunning))
	late := w.applyRowBatches(w.unappliedBatch(a))
	if late[0].Code != fleet.CodeNodeNotReady || !strings.Contains(late[0].Message, "not allowed to update allocs") {
		t.Fatalf("rows of a node that is away: %+v", late[0]) // A13
	}
	// I2: the edge has to open a session first, and sends its rows once more.
	w.openNextSession(a)
	if res := w.applyRowBatches(w.unappliedBatch(a)); res[0].Code != "" || w.getNode(a).Status != fleet.NodeReady {
		t.Fatalf("rows after a new session: %+v, the node is %s", res[0], w.getNode(a).Status)
	}
	w.wantStatus(mine[0], fleet.ClientRunning, fleet.ClientRunning)
}

// Rows are applied once, however batches overlap, and only if they continue the applied chain.
func TestUpdatesIdempotent(t *testing.T) {
	w := newTestHarness(t)
	id := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	ids := w.placeAllocs("shop", id, 1)
	for _, s := range []string{fleet.ClientPending, fleet.ClientRunning, fleet.ClientFailed, fleet.ClientRunning} {
		w.appendJournalRows(id, statusTransition(ids[0], s))
	}
	steps := []struct{ first, last, applied int }{
		{1, 2, 2}, {1, 2, 2}, {1, 1, 2}, {2, 2, 2}, {1, 3, 3}, {2, 4, 4}, {1, 4, 4}, {4, 4, 4},
	}
	for _, s := range steps {
		res := w.applyRowBatches(w.journalRows(id, s.first, s.last))
		if res[0].Code != "" || int(res[0].Applied) != s.applied {
			t.Fatalf("rows %d to %d: %+v", s.first, s.last, res[0])
		}
	}
	if got, want := w.historyEvents(ids[0]), "placed, pending, running, failed, running"; got != want {
		t.Fatalf("history: %s, want %s", got, want)
	}
	if n := len(w.getAlloc(ids[0]).TaskStates["web"].Events); n != 4 {
		t.Fatalf("%d task events, want 4", n)
	}
	// A clone of the edge journals other rows from row 3 on.
	twin := w.edges[id]
	w.edges[id] = &edge{epoch: twin.epoch, session: twin.session, rows: twin.rows[:2:2], chain: twin.chain[:2:2]}
	for range 4 {
		w.appendJournalRows(id, statusTransition(ids[0], fleet.ClientComplete))
	}
	for _, s := range []struct{ first, last int }{{5, 6}, {3, 5}, {1, 6}} {
		if res := w.applyRowBatches(w.journalRows(id, s.first, s.last)); res[0].Code != fleet.CodeFork {
			t.Fatalf("rows %d to %d of a fork: %+v", s.first, s.last, res[0])
		}
	}
	w.wantStatus(ids[0], fleet.ClientRunning, fleet.ClientRunning)
}

// An edge that compacted rows, which an older state of the cluster had applied, sends its rows from the oldest one on.
// Rows about allocations that this state does not know are kept.
func TestUpdatesBase(t *testing.T) {
	w := newTestHarness(t)
	id := w.addReadyNode("n1")
	stranger := fleet.AllocID(w.nextTestID("alloc"))
	w.appendJournalRows(id, statusTransition(stranger, fleet.ClientPending), statusTransition(stranger, fleet.ClientRunning), statusTransition(stranger, fleet.ClientComplete))
	base := w.journalRows(id, 3, 3)
	if res := w.applyRowBatches(base); res[0].Code != fleet.CodeGap || res[0].Applied != 0 {
		t.Fatalf("%+v", res[0])
	}
	base.Base = true
	if res := w.applyRowBatches(base); res[0].Code != "" || res[0].Applied != 3 {
		t.Fatalf("%+v", res[0])
	}
	var events []string
	for _, h := range w.store.View().NodeHistory(id) {
		if h.Transition != nil {
			events = append(events, fmt.Sprintf("%s %s", h.Transition.ClientStatus, h.AllocID))
		} else {
			events = append(events, h.Event)
		}
		if h.Event == fleet.EventGap && h.Gone != 2 {
			t.Errorf("%d rows are said to be gone", h.Gone)
		}
	}
	if got, want := strings.Join(events, ", "), "registered, session, ready, gap, complete "+string(stranger); got != want {
		t.Fatalf("node history: %s\nwant          %s", got, want)
	}
	w.appendJournalRows(id, statusTransition(stranger, fleet.ClientComplete))
	if res := w.applyRowBatches(w.unappliedBatch(id)); res[0].Code != "" {
		t.Fatalf("after the gap: %+v", res[0])
	}
}

// Evaluations follow from the statuses at the end of an entry, one for each job (A16, A19, B16, I16).
func TestUpdatesEvals(t *testing.T) {
	type row struct {
		name     string
		jobType  string
		reports  []string
		gone     bool
		triggers []string
	}
	for _, c := range []row{
		{"running", fleet.JobTypeService, []string{"running"}, false, nil},
		{"failed twice", fleet.JobTypeService, []string{"running", "failed", "failed"}, false, []string{fleet.TriggerRetryFailedAlloc}},
		{"failed and superseded", fleet.JobTypeService, []string{"failed", "running"}, false, nil},
		{"service complete", fleet.JobTypeService, []string{"complete"}, false, []string{fleet.TriggerRetryFailedAlloc}},
		{"batch complete", fleet.JobTypeBatch, []string{"complete"}, false, nil},
		{"batch complete, as its edge stopped it", fleet.JobTypeBatch, []string{"stopped on edge", "complete"}, false, []string{fleet.TriggerRetryFailedAlloc}},
		{"batch failed", fleet.JobTypeBatch, []string{"failed"}, false, []string{fleet.TriggerRetryFailedAlloc}},
		{"purged", fleet.JobTypeService, []string{"running"}, true, []string{fleet.TriggerJobDeregister}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newTestHarness(t)
			id := w.addReadyNode("n1")
			w.registerJob(job("shop", c.jobType, 2))
			ids := w.placeAllocs("shop", id, 2)
			if c.gone {
				w.mustApply(state.JobDeregister{Namespace: fleet.DefaultNamespace, ID: "shop", Purge: true, Now: w.nowNanos()})
			}
			for _, s := range c.reports {
				for _, alloc := range ids {
					row := statusTransition(alloc, s)
					if s == "stopped on edge" {
						row = fleet.Transition{Kind: fleet.TransitionOperator, Alloc: alloc, StoppedOnEdge: true}
					}
					w.appendJournalRows(id, row)
				}
			}
			w.applyRowBatches(w.unappliedBatch(id))
			w.wantEvals("shop", c.triggers...)
		})
	}
}

// A ready node's report ends an unknown that a late plan wrote.
func TestUpdatesReconnectTrigger(t *testing.T) {
	w := newTestHarness(t)
	id := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	ids := w.placeAllocs("shop", id, 1)
	w.reportStatus(id, fleet.ClientRunning, ids...)
	w.missHeartbeats(id)
	w.markAllocsUnknown(ids...)
	w.openNextSession(id)
	w.wantEvals("shop", fleet.TriggerReconnect)
	w.wantStatus(ids[0], fleet.ClientRunning, fleet.ClientRunning)
}

// A replacement waits until the edge has certainly stopped the lost allocation. A report that it has ended is
// evaluated at once, whether it comes in the edge's history or after it.
func TestAnAwaitedEndIsLookedAt(t *testing.T) {
	for _, inHistory := range []bool{true, false} {
		t.Run(fmt.Sprintf("in its history: %t", inHistory), func(t *testing.T) {
			w := newTestHarness(t)
			id := w.addReadyNode("n1")
			w.registerJob(job("shop", fleet.JobTypeService, 1))
			ids := w.placeAllocs("shop", id, 1)
			w.reportStatus(id, fleet.ClientRunning, ids...)
			w.missHeartbeats(id)
			wait := fleet.Evaluation{
				ID: fleet.EvalID(w.nextTestID("eval")), Namespace: fleet.DefaultNamespace, JobID: "shop", Status: fleet.EvalPending,
				TriggeredBy: fleet.TriggerDisconnectTimeout, WaitUntil: w.now.Add(10 * time.Minute),
			}
			lost := w.allocsWithStatus(fleet.ClientLost, ids...)
			lost[0].FollowupEvalID = wait.ID
			w.updateAllocs(lost...)
			w.mustApply(state.Evals{Evals: []fleet.Evaluation{wait}, Now: w.nowNanos()})
			if inHistory {
				w.appendJournalRows(id, statusTransition(ids[0], fleet.ClientComplete))
				w.openNextSession(id)
				w.applyRowBatches(w.unappliedBatch(id))
			} else {
				w.openNextSession(id)
				w.wantEvals("shop", fleet.TriggerDisconnectTimeout)
				w.reportStatus(id, fleet.ClientComplete, ids...)
			}
			w.wantStatus(ids[0], fleet.ClientComplete, fleet.ClientComplete)
			w.wantEvals("shop", fleet.TriggerDisconnectTimeout, fleet.TriggerRetryFailedAlloc)
			if w.openNextSession(id); len(w.openEvalsOf("shop")) != 2 {
				t.Errorf("another session asks again: %d open evaluations", len(w.openEvalsOf("shop")))
			}
		})
	}
}

// The end of a stopped allocation is evaluated again only while its follow-up evaluation waits.
func TestAnEndThatNobodyAwaits(t *testing.T) {
	for name, c := range map[string]struct {
		status string // of the follow-up evaluation; "": it is removed
		want   []string
	}{
		"it waits":      {fleet.EvalPending, []string{fleet.TriggerRetryFailedAlloc, fleet.TriggerDisconnectTimeout}},
		"it has ended":  {fleet.EvalComplete, nil},
		"it is removed": {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestHarness(t)
			id := w.addReadyNode("n1")
			w.registerJob(job("shop", fleet.JobTypeService, 1))
			ids := w.placeAllocs("shop", id, 1)
			w.reportStatus(id, fleet.ClientRunning, ids...)
			stopped := w.allocsWithStatus(fleet.ClientRunning, ids...)
			stopped[0].DesiredStatus, stopped[0].FollowupEvalID = fleet.DesiredStop, fleet.EvalID(w.nextTestID("eval"))
			w.updateAllocs(stopped...)
			w.mustApply(state.Evals{Evals: w.completedEvals("shop"), Now: w.nowNanos()})
			if c.status != "" {
				w.mustApply(state.Evals{Now: w.nowNanos(), Evals: []fleet.Evaluation{{
					ID: stopped[0].FollowupEvalID, Namespace: fleet.DefaultNamespace, JobID: "shop", Status: c.status,
					TriggeredBy: fleet.TriggerDisconnectTimeout, WaitUntil: w.now.Add(10 * time.Minute),
				}}})
			}
			w.reportStatus(id, fleet.ClientComplete, ids...)
			w.wantStatus(ids[0], fleet.ClientComplete, fleet.ClientComplete)
			w.wantEvals("shop", c.want...)
		})
	}
}

func TestReceived(t *testing.T) {
	w := newTestHarness(t)
	id := w.addReadyNode("n1")
	nodes := w.store.View().TableIndex("nodes")
	for _, r := range []fleet.Index{7, 3, 9} {
		w.applyRowBatches(state.NodeRows{NodeID: id, Epoch: 1, Received: r})
	}
	if n := w.getNode(id); n.Received != 9 || n.Applied != 0 {
		t.Fatalf("received %d", n.Received)
	}
	if w.store.View().TableIndex("nodes") != nodes {
		t.Fatal("how far an edge is counts as a change of the nodes")
	}
}

// Histories are bounded: events that change no status go first, changes of a status go last.
func TestHistoryBound(t *testing.T) {
	w := newTestHarness(t)
	id := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	ids := w.placeAllocs("shop", id, 1)
	for range 200 {
		w.appendJournalRows(id, statusTransition(ids[0], fleet.ClientRunning),
			fleet.Transition{Kind: fleet.TransitionTask, Alloc: ids[0], Task: "web", Event: &fleet.TaskEvent{Type: fleet.TaskRestarting}})
	}
	w.applyRowBatches(w.unappliedBatch(id))
	v := w.store.View()
	history := v.History(ids[0])
	if len(history) != 256 || v.HistoryDropped(ids[0]) != 401-256 {
		t.Fatalf("%d entries, %d dropped", len(history), v.HistoryDropped(ids[0]))
	}
	statuses := 0
	for _, h := range history {
		if h.Transition != nil && h.Transition.Kind == fleet.TransitionAlloc {
			statuses++
		}
	}
	if statuses != 200 {
		t.Fatalf("%d of 200 statuses kept", statuses)
	}
	if n := len(w.getAlloc(ids[0]).TaskStates["web"].Events); n != fleet.TaskEventsKept {
		t.Fatalf("%d task events", n)
	}
}

// A record about lost rows stays when the history is full of other events.
func TestHistoryBoundKeepsLosses(t *testing.T) {
	w := newTestHarness(t)
	id := w.addReadyNode("n1")
	stranger := fleet.AllocID(w.nextTestID("alloc"))
	w.appendJournalRows(id, statusTransition(stranger, fleet.ClientPending), statusTransition(stranger, fleet.ClientRunning),
		fleet.Transition{Kind: fleet.TransitionGap, Message: "the journal was damaged", Dropped: 7})
	base := w.journalRows(id, 3, 3)
	base.Base = true
	w.applyRowBatches(base)
	for range 300 {
		w.openNextSession(id)
		w.appendJournalRows(id, fleet.Transition{Kind: fleet.TransitionAgent})
		w.applyRowBatches(w.unappliedBatch(id))
	}
	history := w.store.View().NodeHistory(id)
	if len(history) != 256 || history[0].Gone != 2 || history[1].Transition == nil || history[1].Transition.Dropped != 7 {
		t.Errorf("%d entries, the first of which are %+v", len(history), history[:2])
	}
}

// The state fits into a snapshot, however much an edge reports of tasks that its allocation has and has not.
func TestHistoryBoundInBytes(t *testing.T) {
	w := newTestHarness(t)
	id := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	ids := w.placeAllocs("shop", id, 1)
	long := map[string]string{}
	for i := range 32 {
		long[fmt.Sprint(i)] = strings.Repeat("x", 1000)
	}
	for i := range 30 {
		for range 10 {
			w.appendJournalRows(id, fleet.Transition{Kind: fleet.TransitionTask, Alloc: ids[0], Task: fmt.Sprintf("task-%d", i),
				Event: &fleet.TaskEvent{Type: fleet.TaskTerminated, Details: long}})
		}
		if res := w.applyRowBatches(w.unappliedBatch(id)); res[0].Code != "" {
			t.Fatal(res[0])
		}
	}
	if err := w.store.Persist(io.Discard); err != nil {
		t.Fatal(err)
	}
	if n := len(w.getAlloc(ids[0]).TaskStates); n != 0 {
		t.Errorf("the allocation has %d tasks that its group has not", n)
	}
	if n := len(w.store.View().History(ids[0])); n == 0 || n > 33 {
		t.Errorf("%d entries of 32 KB are kept", n)
	}
}

// RunningSince is by the cluster's clock, from the first report that the task runs, and stays the same whatever the
// cluster does to the allocation.
func TestRunningSince(t *testing.T) {
	w := newTestHarness(t)
	id := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	ids := w.placeAllocs("shop", id, 1)
	says := func(state string, ran time.Duration) {
		t.Helper()
		w.appendJournalRows(id, fleet.Transition{
			Kind: fleet.TransitionAlloc, Alloc: ids[0], ClientStatus: fleet.ClientRunning, Task: "web",
			TaskState: &fleet.TaskState{State: state, RunningFor: ran},
		})
		w.applyRowBatches(w.unappliedBatch(id))
	}
	since := func() int64 { return w.getAlloc(ids[0]).TaskStates["web"].RunningSince }
	says(fleet.TaskRunning, 10*time.Second)
	started := w.now.Add(-10 * time.Second).UnixNano()
	if since() != started {
		t.Fatalf("it runs since %d, want %d", since(), started)
	}
	w.moveClockForward(time.Hour)
	w.missHeartbeats(id)
	w.markAllocsUnknown(ids[0])
	w.moveClockForward(time.Hour)
	if since() != started {
		t.Errorf("losing sight of it moved its start by %s", time.Duration(since()-started))
	}
	w.openNextSession(id)
	says(fleet.TaskRunning, 2*time.Hour+10*time.Second)
	if since() != started {
		t.Errorf("its own word of it moved its start by %s", time.Duration(since()-started))
	}
	says(fleet.TaskDead, 3*time.Hour)
	if since() != 0 {
		t.Errorf("a task that has ended runs since %d", since())
	}
}

// TestHistoryAt asks for the events that each entry added: it gets all of them and no other.
func TestHistoryAt(t *testing.T) {
	w := newTestHarness(t)
	id := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	ids := w.placeAllocs("shop", id, 1)
	w.appendJournalRows(id, statusTransition(ids[0], fleet.ClientRunning), statusTransition(ids[0], fleet.ClientRunning))
	w.applyRowBatches(w.unappliedBatch(id))
	w.appendJournalRows(id, statusTransition(ids[0], fleet.ClientFailed))
	w.applyRowBatches(w.unappliedBatch(id))
	v := w.store.View()
	all := map[fleet.Index]int{}
	for _, e := range v.History(ids[0]) {
		all[e.Index]++
	}
	for i := fleet.Index(0); i <= v.Index()+1; i++ {
		at := v.HistoryAt(ids[0], i)
		if len(at) != all[i] {
			t.Fatalf("entry %d added %d, not %d", i, all[i], len(at))
		}
		for _, e := range at {
			if e.Index != i {
				t.Fatalf("entry %d is said to have added %+v", i, e)
			}
		}
	}
	if v.HistoryAt("nobody", 1) != nil {
		t.Fatal("an allocation that does not exist has a history")
	}
}

// A stop on site and its end reach the allocation in order, each asks for an evaluation, and a snapshot keeps the hold.
func TestHolds(t *testing.T) {
	w := newTestHarness(t)
	id := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	ids := w.placeAllocs("shop", id, 1)
	w.reportStatus(id, fleet.ClientRunning, ids...)
	hold := &fleet.Hold{By: "anna", Reason: "smoke", Since: 5, JobVersion: 1}
	w.appendJournalRows(id, fleet.Transition{Kind: fleet.TransitionOperator, Alloc: ids[0], Hold: hold}, statusTransition(ids[0], fleet.ClientPending))
	w.applyRowBatches(w.unappliedBatch(id))
	w.wantEvals("shop", fleet.TriggerNodeUpdate)
	a, _ := w.store.View().Alloc(ids[0])
	if a.Held == nil || *a.Held != *hold || a.ClientStatus != fleet.ClientPending {
		t.Errorf("%s, held: %+v", a.ClientStatus, a.Held)
	}
	restored := state.New()
	if err := restored.Restore(bytes.NewReader(mustPersist(t, w.store))); err != nil {
		t.Fatal(err)
	}
	if a, _ := restored.View().Alloc(ids[0]); a.Held == nil || *a.Held != *hold {
		t.Errorf("after a restore it is held: %+v", a.Held)
	}
	w.appendJournalRows(id, fleet.Transition{Kind: fleet.TransitionOperator, Alloc: ids[0], Released: true})
	w.applyRowBatches(w.unappliedBatch(id))
	if a, _ := w.store.View().Alloc(ids[0]); a.Held != nil {
		t.Errorf("it was started, and is held: %+v", a.Held)
	}
}

// The address of a task in its driver's network holds until the task is started again.
func TestTaskAddress(t *testing.T) {
	w := newTestHarness(t)
	id := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	ids := w.placeAllocs("shop", id, 1)
	const task = "web"
	row := func(tr fleet.Transition) {
		tr.Kind, tr.Alloc, tr.Task = fleet.TransitionAlloc, ids[0], task
		w.appendJournalRows(id, tr)
	}
	address := func() string {
		w.applyRowBatches(w.unappliedBatch(id))
		a, _ := w.store.View().Alloc(ids[0])
		return a.TaskStates[task].Address
	}
	running := &fleet.TaskState{State: fleet.TaskRunning}
	row(fleet.Transition{TaskState: running, Event: &fleet.TaskEvent{Type: fleet.TaskStarted}, ClientStatus: fleet.ClientRunning})
	row(fleet.Transition{Network: &fleet.NetworkStatus{Address: "172.17.0.2"}})
	row(fleet.Transition{TaskState: running, Event: &fleet.TaskEvent{Type: fleet.TaskSignaling}})
	if got := address(); got != "172.17.0.2" {
		t.Errorf("address %q", got)
	}
	row(fleet.Transition{TaskState: running, Event: &fleet.TaskEvent{Type: fleet.TaskStarted}})
	if got := address(); got != "" {
		t.Errorf("started again: address %q", got)
	}
}

// The address that an edge reports is in the allocation, in the catalogue and in a snapshot.
func TestNetworkStatus(t *testing.T) {
	w := newTestHarness(t)
	id := w.addReadyNode("n1")
	j := job("shop", fleet.JobTypeService, 1)
	j.TaskGroups[0].Services = []fleet.Service{{Name: "web", Provider: fleet.ProviderNomad, AddressMode: fleet.AddressAlloc, PortLabel: "8080"}}
	w.registerJob(j)
	ids := w.placeAllocs("shop", id, 1)
	network := &fleet.NetworkStatus{InterfaceName: "eth0", Address: "172.26.64.2"}
	w.appendJournalRows(id, fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: ids[0], Network: network}, statusTransition(ids[0], fleet.ClientRunning))
	w.applyRowBatches(w.unappliedBatch(id))
	restored := state.New()
	if err := restored.Restore(bytes.NewReader(mustPersist(t, w.store))); err != nil {
		t.Fatal(err)
	}
	for name, store := range map[string]*state.Store{"applied": w.store, "restored": restored} {
		a, _ := store.View().Alloc(ids[0])
		n, _ := store.View().Node(id)
		if a.NetworkStatus == nil || *a.NetworkStatus != *network {
			t.Errorf("%s: %+v", name, a.NetworkStatus)
		}
		if got := taskenv.Registrations(a, n, "global"); len(got) != 1 || got[0].Address != network.Address || got[0].Port != 8080 {
			t.Errorf("%s: registered %v", name, got)
		}
	}
}
