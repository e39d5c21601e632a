package check_test

import (
	"fmt"
	"testing"
	"time"

	"skerry/chaos/check"
	"skerry/fleet"
)

// fleetModel tells a Monitor of a small fleet that works as it should, until a test has something else happen. It is a
// model of the observations, not of the fleet itself.
type fleetModel struct {
	tb     testing.TB
	m      *check.Monitor
	all    []check.Observation
	found  []check.Violation
	at     time.Duration
	index  fleet.Index
	term   uint64
	hubs   []string
	edges  []*told
	allocs map[fleet.AllocID]*fleet.Alloc
	order  []fleet.AllocID
	evals  []fleet.Evaluation // not over
	// deployments are those that go on.
	deployments []fleet.Deployment
	last        check.FleetSnapshot // of the end of the run
	faults      int
	drawn       int
	// mutate changes an observation before it is told; nil: none.
	mutate func(o *check.Observation)
}

// told is an edge of a tale.
type told struct {
	name     string
	node     fleet.NodeID
	boots    int
	booted   time.Duration
	rows     []fleet.Transition
	looked   int // rows that were told of
	applied  fleet.Seq
	session  uint64
	epoch    fleet.Epoch
	status   fleet.NodeStatus
	linked   bool
	cut      bool
	beat     time.Duration
	duration time.Duration // between two beats
}

var allLimits = check.Limits{Heal: time.Minute, Ready: 30 * time.Second, Evaluate: 30 * time.Second, Deliver: 20 * time.Second}

// newFleetModel begins with three hubs, some edges that are ready, and nothing to do.
func newFleetModel(tb testing.TB, edges int) *fleetModel {
	t := &fleetModel{tb: tb, m: check.NewMonitor(allLimits), term: 2, hubs: []string{"hub-1", "hub-2", "hub-3"}, allocs: map[fleet.AllocID]*fleet.Alloc{}}
	for _, h := range t.hubs {
		t.feedObservation(check.Observation{Process: &check.Process{Name: h, What: check.ProcessStart}})
	}
	for i := range edges {
		e := &told{name: fmt.Sprintf("edge-%d", i+1), node: fleet.NodeID(fmt.Sprintf("node-%d", i+1)), boots: 1, duration: 3 * time.Second}
		t.edges = append(t.edges, e)
		t.feedObservation(check.Observation{Process: &check.Process{Name: e.name, Edge: true, What: check.ProcessStart, Boot: e.currentBootID()}})
		t.journalRow(e, fleet.Transition{Kind: fleet.TransitionAgent})
		t.openSession(e)
		t.sendRows(e)
	}
	t.advanceTime(5 * time.Second)
	return t
}

func (e *told) currentBootID() fleet.BootID {
	return fleet.BootID(fmt.Sprintf("%s boot %d", e.name, e.boots))
}

func (t *fleetModel) feedObservation(o check.Observation) {
	o.At = t.at
	if t.mutate != nil {
		t.mutate(&o)
	}
	t.all = append(t.all, o)
	t.found = append(t.found, t.m.Observe(o)...)
}

// applyEntry has every hub apply an entry.
func (t *fleetModel) applyEntry(kind string, e *check.Effects) fleet.Index {
	t.index++
	if e != nil {
		for i := range e.Evals {
			e.Evals[i].CreateIndex, e.Evals[i].ModifyIndex = t.index, t.index
			t.evals = append(t.evals, e.Evals[i])
		}
	}
	for _, h := range t.hubs {
		a := &check.Applied{Hub: h, Index: t.index, Term: t.term, Kind: kind, Command: fmt.Sprint("c", t.index), Result: fmt.Sprint("r", t.index)}
		if t.index%8 == 0 {
			a.State = fmt.Sprint("s", t.index)
		}
		if t.m.Wants(t.index) {
			a.Effects = e
			if e == nil {
				a.Effects = &check.Effects{}
			}
		}
		t.feedObservation(check.Observation{Applied: a})
	}
	return t.index
}

// advanceTime lets time pass, with a look at everything each second.
func (t *fleetModel) advanceTime(d time.Duration) {
	for end := t.at + d; t.at < end; {
		t.at += min(time.Second, end-t.at)
		for _, e := range t.edges {
			if e.linked && !e.cut && t.at-e.beat >= e.duration {
				e.beat = t.at
			}
		}
		t.observeAll()
	}
}

// observeAll shows hubs and edges as they are.
func (t *fleetModel) observeAll() {
	for i, h := range t.hubs {
		t.feedObservation(check.Observation{Hub: t.hubView(h, i == 0)})
	}
	for _, e := range t.edges {
		t.feedObservation(check.Observation{Edge: e.edgeView(t.at)})
	}
}

func (t *fleetModel) hubView(name string, leads bool) *check.Hub {
	h := &check.Hub{Name: name, Index: t.index, Term: t.term, Leads: leads}
	for _, e := range t.edges {
		h.Nodes = append(h.Nodes, fleet.Node{
			ID: e.node, Name: e.name, Status: e.status, Epoch: e.epoch, Session: e.session, Applied: e.applied,
			Resources: fleet.Resources{CPU: 1000, MemoryMB: 1000},
		})
	}
	for _, id := range t.order {
		h.Allocs = append(h.Allocs, *t.allocs[id])
	}
	h.Evals, h.Deployments = append(h.Evals, t.evals...), t.deployments
	return h
}

func (e *told) edgeView(at time.Duration) *check.Edge {
	seen := &check.Edge{
		Name: e.name, NodeID: e.node, Rows: append([]fleet.Transition(nil), e.rows[e.looked:]...),
		Link:    &check.Link{Connected: e.linked, Session: e.session, Epoch: e.epoch, Status: e.status, Away: max(at-e.beat, time.Millisecond)},
		Journal: &check.Journal{First: 1, Last: fleet.Seq(len(e.rows)), Acknowledged: e.applied, Bytes: 1000},
	}
	e.looked = len(e.rows)
	return seen
}

// journalRow journals a row.
func (t *fleetModel) journalRow(e *told, row fleet.Transition) {
	row.Seq, row.BootID = fleet.Seq(len(e.rows)+1), e.currentBootID()
	row.Mono, row.Wall = t.at-e.booted, int64(t.at)
	e.rows = append(e.rows, row)
}

// journalStatus journals what became of an allocation.
func (t *fleetModel) journalStatus(e *told, id fleet.AllocID, status, event string) {
	t.journalRow(e, fleet.Transition{
		Kind: fleet.TransitionAlloc, Alloc: id, ClientStatus: status, Task: "main",
		TaskState: &fleet.TaskState{State: map[string]string{
			fleet.ClientPending: fleet.TaskPending, fleet.ClientRunning: fleet.TaskRunning,
		}[status]}, Event: &fleet.TaskEvent{Type: event},
	})
	if e.rows[len(e.rows)-1].TaskState.State == "" {
		e.rows[len(e.rows)-1].TaskState.State = fleet.TaskDead
	}
}

// openSession has the cluster commit a session.
func (t *fleetModel) openSession(e *told) {
	e.session++
	e.epoch++
	away := e.status != fleet.NodeReady
	if away {
		e.status = fleet.NodeInitializing
		if int(e.applied) == len(e.rows) {
			e.status = fleet.NodeReady
		}
	}
	t.applyEntry("session_open", &check.Effects{Opened: &check.Opened{
		Node: e.node, Session: e.session, Boot: e.currentBootID(), Hub: "hub-1", Epoch: e.epoch, Status: e.status,
		Head: fleet.Seq(len(e.rows)), Applied: e.applied,
	}})
	e.linked, e.beat = true, t.at
}

// unappliedBatch has the rows that an edge has to send.
func (t *fleetModel) unappliedBatch(e *told) check.Batch {
	return check.Batch{
		Node: e.node, Epoch: e.epoch, First: e.applied + 1, Rows: append([]fleet.Transition(nil), e.rows[e.applied:]...),
		Applied: fleet.Seq(len(e.rows)), Status: fleet.NodeReady,
	}
}

// sendRows has the cluster apply the new rows of an edge.
func (t *fleetModel) sendRows(e *told) { t.applyBatch(e, t.unappliedBatch(e)) }

func (t *fleetModel) applyBatch(e *told, b check.Batch) {
	if len(b.Rows) == 0 {
		return
	}
	effects := &check.Effects{Batches: []check.Batch{b}}
	recorded := map[fleet.AllocID]int{}
	for _, row := range b.Rows {
		a := t.allocs[row.Alloc]
		if a == nil {
			continue
		}
		if _, ok := recorded[row.Alloc]; !ok {
			recorded[row.Alloc] = len(effects.Recorded)
			effects.Recorded = append(effects.Recorded, check.Recorded{Node: e.node, Alloc: row.Alloc})
		}
		r := &effects.Recorded[recorded[row.Alloc]]
		r.Rows = append(r.Rows, row.Seq)
		if row.ClientStatus != "" {
			a.ReportedStatus, a.ClientStatus = row.ClientStatus, row.ClientStatus
		}
	}
	e.applied, e.status = b.Applied, b.Status
	i := t.applyEntry("alloc_updates", effects)
	for id := range recorded {
		t.allocs[id].ModifyIndex = i
	}
}
