package check_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"skerry/chaos/check"
	"skerry/fleet"
)

// violationHarness is where an invariant is broken: a job with one allocation that runs on edge-1, and
// an edge-2 with nothing to do.
type violationHarness struct {
	*fleetModel
	e, other *told
	job      *fleet.Job
	id       fleet.AllocID
	ended    bool // as a hub shows it
}

func newViolationHarness(tb testing.TB, d *fleet.Disconnect) *violationHarness {
	t := newFleetModel(tb, 2)
	p := &violationHarness{fleetModel: t, e: t.edges[0], other: t.edges[1]}
	p.job = t.registerJob("job", 1, d)
	p.id = t.placeRunningAlloc(p.job, 0, p.e, "")
	t.advanceTime(70 * time.Second)
	return p
}

// mutateEdge changes what edge-1 shows of itself from now on.
func (p *violationHarness) mutateEdge(f func(e *check.Edge)) {
	p.mutate = func(o *check.Observation) {
		if o.Edge != nil && o.Edge.Name == p.e.name {
			f(o.Edge)
		}
	}
}

// mutateHub changes what one hub tells of applied entries from now on.
func (p *violationHarness) mutateHub(name string, f func(a *check.Applied)) {
	p.mutate = func(o *check.Observation) {
		if o.Applied != nil && o.Applied.Hub == name {
			a := *o.Applied
			f(&a)
			o.Applied = &a
		}
	}
}

// disconnectEdge cuts edge-1 off, until the cluster has noticed.
func (p *violationHarness) disconnectEdge() (heal func()) {
	heal = p.cutEdgeLink(p.e)
	p.advanceTime(15 * time.Second)
	p.missDeadline(p.e)
	return heal
}

// reconnectEdge ends the fault that kept the edge away. The edge opens a session, and sends its new rows.
func (p *violationHarness) reconnectEdge(end func()) {
	end()
	p.e.cut = false
	p.openSession(p.e)
	p.sendRows(p.e)
}

func (p *violationHarness) journalHealthRow(seq int) {
	p.journalRow(p.e, fleet.Transition{Kind: fleet.TransitionHealth, Alloc: p.id, Message: fmt.Sprint(seq)})
}

// violationCase is one way to break one invariant.
type violationCase struct {
	name string
	want check.Invariant
	d    *fleet.Disconnect
	do   func(p *violationHarness)
}

// TestEachInvariantIsFoundBroken breaks one invariant at a time, and wants that one named and no
// other. Every invariant is broken at least once.
func TestEachInvariantIsFoundBroken(t *testing.T) {
	broken := map[check.Invariant]bool{}
	for _, c := range slices.Concat(inJournals(), inSessions(), onMachines(), inDecisions(), inRollouts(), inTheLog(), inRunning(), inHolds(), inSecrets(), inIdentities(), inAccess(), inSiteCodes(), inDispatches()) {
		broken[c.want] = true
		t.Run(c.want.Slug()+": "+c.name, func(t *testing.T) {
			p := newViolationHarness(t, c.d)
			if len(p.found) > 0 {
				t.Fatalf("before: %v", p.found)
			}
			c.do(p)
			p.mustFindOnly(c.want)
		})
	}
	for _, i := range check.All() {
		if !broken[i] {
			t.Errorf("no case breaks %s", i)
		}
	}
}

func inJournals() []violationCase {
	return []violationCase{
		{"a row is applied that is another one in the journal", check.ExactlyOnce, nil, func(p *violationHarness) {
			p.journalHealthRow(1)
			p.advanceTime(time.Second)
			b := p.unappliedBatch(p.e)
			b.Rows[0].Kind = fleet.TransitionCheck
			p.applyBatch(p.e, b)
		}},
		{"the same, looked at afterwards", check.ExactlyOnce, nil, func(p *violationHarness) {
			p.journalHealthRow(1)
			b := p.unappliedBatch(p.e)
			b.Rows[0].Kind = fleet.TransitionCheck
			p.applyBatch(p.e, b)
		}},
		{"a row is never applied over a link that works", check.ExactlyOnce, nil, func(p *violationHarness) {
			p.journalHealthRow(1)
			p.advanceTime(40 * time.Second)
		}},
		{"the journal forgets a row that it held", check.ExactlyOnce, nil, func(p *violationHarness) {
			p.journalHealthRow(1)
			p.advanceTime(time.Second)
			p.observeProcess(p.e, check.ProcessPowerCut)
			p.e.rows, p.e.looked = p.e.rows[:len(p.e.rows)-1], p.e.looked-1
		}},
		{"a history lacks a row that was applied", check.ExactlyOnce, nil, func(p *violationHarness) {
			p.journalHealthRow(1)
			p.journalHealthRow(2)
			p.mutateHub("hub-1", func(a *check.Applied) {
				a.Effects.Recorded[0].Rows = a.Effects.Recorded[0].Rows[1:]
			})
			p.sendRows(p.e)
			p.mutate = nil
		}},
		{"a history has a row twice", check.ExactlyOnce, nil, func(p *violationHarness) {
			p.journalHealthRow(1)
			p.mutateHub("hub-1", func(a *check.Applied) {
				r := &a.Effects.Recorded[0]
				r.Rows = append(r.Rows, r.Rows[0])
			})
			p.sendRows(p.e)
			p.mutate = nil
		}},
		{"what happened to a task has no row, and later things have", check.ExactlyOnce, nil, func(p *violationHarness) {
			p.observeTask(p.e, p.id, check.TaskExited)
			p.observeTask(p.e, p.id, check.TaskStarted)
			p.advanceTime(10 * time.Second)
			p.journalHealthRow(1)
			p.sendRows(p.e)
			p.advanceTime(10 * time.Second)
		}},
		{"what happened to a task has no row, nor has anything", check.Bounded, nil, func(p *violationHarness) {
			p.observeTask(p.e, p.id, check.TaskExited)
			p.observeTask(p.e, p.id, check.TaskStarted)
		}},
		{"the journal outgrows its bound", check.Bounded, nil, func(p *violationHarness) {
			p.mutateEdge(func(e *check.Edge) { e.Journal.Bytes = 65 << 20 })
		}},
		{"a gap is glued over", check.Sequence, nil, func(p *violationHarness) {
			p.journalHealthRow(1)
			p.journalHealthRow(2)
			b := p.unappliedBatch(p.e)
			b.First, b.Rows = b.First+1, b.Rows[1:]
			p.applyBatch(p.e, b)
		}},
		{"a row has another number than its place", check.Sequence, nil, func(p *violationHarness) {
			p.journalHealthRow(1)
			b := p.unappliedBatch(p.e)
			b.Rows[0].Seq++
			b.Applied = p.e.applied
			p.applyBatch(p.e, b)
			p.sendRows(p.e)
		}},
		{"a row of the journal becomes another one", check.ExactlyOnce, nil, func(p *violationHarness) {
			p.journalHealthRow(1)
			p.advanceTime(time.Second)
			p.e.looked--
			p.e.rows[p.e.looked].Kind = fleet.TransitionCheck
			p.advanceTime(time.Second)
			p.sendRows(p.e)
		}},
		{"a part of a batch is applied", check.ExactlyOnce, nil, func(p *violationHarness) {
			p.journalHealthRow(1)
			p.journalHealthRow(2)
			b := p.unappliedBatch(p.e)
			b.Applied--
			p.applyBatch(p.e, b)
			p.sendRows(p.e)
		}},
		{"more counts as applied than its batch has", check.Sequence, nil, func(p *violationHarness) {
			p.journalHealthRow(1)
			b := p.unappliedBatch(p.e)
			b.Applied++
			p.applyBatch(p.e, b)
			p.e.applied--
		}},
		{"a batch sets the applied row back", check.NeverBack, nil, func(p *violationHarness) {
			p.journalHealthRow(1)
			b := p.unappliedBatch(p.e)
			b.Applied -= 2
			p.applyBatch(p.e, b)
			p.e.applied += 2
		}},
		{"more counts as applied than was sent", check.Sequence, nil, func(p *violationHarness) {
			p.e.applied += 2
			p.journalHealthRow(1)
			p.journalHealthRow(2)
			p.openSession(p.e)
		}},
		{"a session begins before what was applied", check.NeverBack, nil, func(p *violationHarness) {
			p.e.applied--
			p.openSession(p.e)
			p.sendRows(p.e)
		}},
		{"a view goes back", check.NeverBack, nil, func(p *violationHarness) {
			p.openSession(p.e)
			p.mutate = func(o *check.Observation) {
				if o.Hub != nil && o.Hub.Name == "hub-2" {
					o.Hub.Nodes[0].Applied = 1
				}
			}
		}},
	}
}

func inSessions() []violationCase {
	return []violationCase{
		{"rows of a node that is gone are applied", check.HeartbeatFirst, nil, func(p *violationHarness) {
			p.disconnectEdge()
			p.journalHealthRow(1)
			p.sendRows(p.e)
			p.e.status = fleet.NodeDisconnected
		}},
		{"a node is ready before its history", check.HeartbeatFirst, nil, func(p *violationHarness) {
			p.disconnectEdge()
			p.mutateHub("hub-1", func(a *check.Applied) { a.Effects.Opened.Status = fleet.NodeReady })
			p.openSession(p.e)
			p.mutate = nil
			p.sendRows(p.e)
		}},
		{"a batch makes a node ready one row before the head of its session", check.HeartbeatFirst, nil, func(p *violationHarness) {
			p.disconnectEdge()
			p.journalHealthRow(1)
			p.journalHealthRow(2)
			p.openSession(p.e)
			b := p.unappliedBatch(p.e)
			b.Rows, b.Applied = b.Rows[:len(b.Rows)-1], b.Applied-1
			p.applyBatch(p.e, b)
			p.sendRows(p.e)
		}},
		{"an edge sends rows before its heartbeat", check.HeartbeatFirst, nil, func(p *violationHarness) {
			p.feedObservation(check.Observation{Refused: &check.Refused{By: "hub-1", From: p.e.name, Code: fleet.CodeHeartbeatFirst, Reason: "rows 4 to 5"}})
		}},
		{"rows of an older session are applied", check.Fencing, nil, func(p *violationHarness) {
			p.journalHealthRow(1)
			b := p.unappliedBatch(p.e)
			p.openSession(p.e)
			p.applyBatch(p.e, b)
		}},
		{"a session has no higher epoch", check.Fencing, nil, func(p *violationHarness) {
			p.e.epoch--
			p.openSession(p.e)
		}},
		{"two machines of one identity are both taken in", check.Fencing, nil, func(p *violationHarness) {
			end := p.beginFault("clone", []check.Effect{check.Clones}, p.e.name)
			twin := *p.e
			twin.name, twin.rows = "edge-1-clone", slices.Clone(twin.rows)
			p.edges = append(p.edges, &twin)
			for range 2 { // each writes its own rows, and looks are taken
				p.journalHealthRow(1)
				p.journalRow(&twin, fleet.Transition{Kind: fleet.TransitionHealth, Message: "twin"})
			}
			p.advanceTime(time.Second)
			b := p.unappliedBatch(p.e)
			b.Rows, b.Applied = b.Rows[:1], b.First
			p.applyBatch(p.e, b)
			twin.applied = p.e.applied
			p.applyBatch(&twin, p.unappliedBatch(&twin))
			end()
			p.edges = p.edges[1:2]
		}},
		{"a refusal has no code", check.RefusedAloud, nil, func(p *violationHarness) {
			p.feedObservation(check.Observation{Refused: &check.Refused{By: "hub-1", From: p.e.name}})
		}},
		{"an edge is not told that its rows were refused", check.RefusedAloud, nil, func(p *violationHarness) {
			p.applyEntry("alloc_updates", &check.Effects{Batches: []check.Batch{{
				Node: p.e.node, Epoch: p.e.epoch, First: 9, Code: fleet.CodeGap, Applied: p.e.applied, Status: fleet.NodeReady,
			}}})
		}},
		{"a connected node stays initializing", check.Initializing, nil, func(p *violationHarness) {
			p.disconnectEdge()()
			p.e.status = fleet.NodeInitializing
			p.advanceTime(40 * time.Second)
			p.e.status = fleet.NodeReady
		}},
		{"a node is given up too soon", check.TrustedTime, nil, func(p *violationHarness) {
			p.advanceTime(150 * time.Second)
			p.e.beat = p.at
			p.observeAll()
			p.at += 4 * time.Second
			p.applyEntry("node_status", &check.Effects{Moved: []check.Moved{{Node: p.e.node, Epoch: p.e.epoch, Newest: p.e.epoch, Status: fleet.NodeDisconnected}}})
			p.e.status = fleet.NodeDisconnected
			p.openSession(p.e)
		}},
	}
}
