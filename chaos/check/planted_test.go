package check_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"skerry/chaos/check"
	"skerry/fleet"
)

// plant is where a violation is planted: a job with one allocation that runs on edge-1, and
// an edge-2 with nothing to do.
type plant struct {
	*tale
	e, other *told
	job      *fleet.Job
	id       fleet.AllocID
	ended    bool // as a hub shows it
}

func newPlant(tb testing.TB, d *fleet.Disconnect) *plant {
	t := newTale(tb, 2)
	p := &plant{tale: t, e: t.edges[0], other: t.edges[1]}
	p.job = t.register("job", 1, d)
	p.id = t.place(p.job, 0, p.e, "")
	t.pass(70 * time.Second)
	return p
}

// spoilEdge changes what edge-1 shows of itself from now on.
func (p *plant) spoilEdge(f func(e *check.Edge)) {
	p.spoil = func(o *check.Observation) {
		if o.Edge != nil && o.Edge.Name == p.e.name {
			f(o.Edge)
		}
	}
}

// spoilHub changes what one hub tells of applied entries from now on.
func (p *plant) spoilHub(name string, f func(a *check.Applied)) {
	p.spoil = func(o *check.Observation) {
		if o.Applied != nil && o.Applied.Hub == name {
			a := *o.Applied
			f(&a)
			o.Applied = &a
		}
	}
}

// away cuts edge-1 off, until the cluster has noticed.
func (p *plant) away() (heal func()) {
	heal = p.cut(p.e)
	p.pass(15 * time.Second)
	p.miss(p.e)
	return heal
}

// back ends what kept the edge away: it opens a session, and sends what is new.
func (p *plant) back(end func()) {
	end()
	p.e.cut = false
	p.open(p.e)
	p.send(p.e)
}

func (p *plant) health(seq int) {
	p.row(p.e, fleet.Transition{Kind: fleet.TransitionHealth, Alloc: p.id, Message: fmt.Sprint(seq)})
}

// planting is one way to break one invariant.
type planting struct {
	name string
	want check.Invariant
	d    *fleet.Disconnect
	do   func(p *plant)
}

// TestPlanted breaks one invariant at a time, and wants that one named and no
// other. Every invariant is broken at least once.
func TestPlanted(t *testing.T) {
	planted := map[check.Invariant]bool{}
	for _, c := range slices.Concat(inJournals(), inSessions(), onMachines(), inDecisions(), inRollouts(), inTheLog(), inRunning()) {
		planted[c.want] = true
		t.Run(c.want.Slug()+": "+c.name, func(t *testing.T) {
			p := newPlant(t, c.d)
			if len(p.found) > 0 {
				t.Fatalf("before: %v", p.found)
			}
			c.do(p)
			p.only(c.want)
		})
	}
	for _, i := range check.All() {
		if !planted[i] {
			t.Errorf("nothing is planted against %s", i)
		}
	}
}

func inJournals() []planting {
	return []planting{
		{"a row is applied that is another one in the journal", check.ExactlyOnce, nil, func(p *plant) {
			p.health(1)
			p.pass(time.Second)
			b := p.batch(p.e)
			b.Rows[0].Kind = fleet.TransitionCheck
			p.apply(p.e, b)
		}},
		{"the same, looked at afterwards", check.ExactlyOnce, nil, func(p *plant) {
			p.health(1)
			b := p.batch(p.e)
			b.Rows[0].Kind = fleet.TransitionCheck
			p.apply(p.e, b)
		}},
		{"a row is never applied over a link that works", check.ExactlyOnce, nil, func(p *plant) {
			p.health(1)
			p.pass(40 * time.Second)
		}},
		{"the journal forgets a row that it held", check.ExactlyOnce, nil, func(p *plant) {
			p.health(1)
			p.pass(time.Second)
			p.process(p.e, check.ProcessPowerCut)
			p.e.rows, p.e.looked = p.e.rows[:len(p.e.rows)-1], p.e.looked-1
		}},
		{"a history lacks a row that was applied", check.ExactlyOnce, nil, func(p *plant) {
			p.health(1)
			p.health(2)
			p.spoilHub("hub-1", func(a *check.Applied) {
				a.Effects.Recorded[0].Rows = a.Effects.Recorded[0].Rows[1:]
			})
			p.send(p.e)
			p.spoil = nil
		}},
		{"a history has a row twice", check.ExactlyOnce, nil, func(p *plant) {
			p.health(1)
			p.spoilHub("hub-1", func(a *check.Applied) {
				r := &a.Effects.Recorded[0]
				r.Rows = append(r.Rows, r.Rows[0])
			})
			p.send(p.e)
			p.spoil = nil
		}},
		{"what happened to a task has no row, and later things have", check.ExactlyOnce, nil, func(p *plant) {
			p.task(p.e, p.id, check.TaskExited)
			p.task(p.e, p.id, check.TaskStarted)
			p.pass(10 * time.Second)
			p.health(1)
			p.send(p.e)
			p.pass(10 * time.Second)
		}},
		{"what happened to a task has no row, nor has anything", check.Bounded, nil, func(p *plant) {
			p.task(p.e, p.id, check.TaskExited)
			p.task(p.e, p.id, check.TaskStarted)
		}},
		{"the journal outgrows its bound", check.Bounded, nil, func(p *plant) {
			p.spoilEdge(func(e *check.Edge) { e.Journal.Bytes = 65 << 20 })
		}},
		{"a gap is glued over", check.Sequence, nil, func(p *plant) {
			p.health(1)
			p.health(2)
			b := p.batch(p.e)
			b.First, b.Rows = b.First+1, b.Rows[1:]
			p.apply(p.e, b)
		}},
		{"a row has another number than its place", check.Sequence, nil, func(p *plant) {
			p.health(1)
			b := p.batch(p.e)
			b.Rows[0].Seq++
			b.Applied = p.e.applied
			p.apply(p.e, b)
			p.send(p.e)
		}},
		{"more counts as applied than was sent", check.Sequence, nil, func(p *plant) {
			p.e.applied += 2
			p.health(1)
			p.health(2)
			p.open(p.e)
		}},
		{"a session begins before what was applied", check.NeverBack, nil, func(p *plant) {
			p.e.applied--
			p.open(p.e)
			p.send(p.e)
		}},
		{"a view goes back", check.NeverBack, nil, func(p *plant) {
			p.open(p.e)
			p.spoil = func(o *check.Observation) {
				if o.Hub != nil && o.Hub.Name == "hub-2" {
					o.Hub.Nodes[0].Applied = 1
				}
			}
		}},
	}
}

func inSessions() []planting {
	return []planting{
		{"rows of a node that is gone are applied", check.HeartbeatFirst, nil, func(p *plant) {
			p.away()
			p.health(1)
			p.send(p.e)
			p.e.status = fleet.NodeDisconnected
		}},
		{"a node is ready before its history", check.HeartbeatFirst, nil, func(p *plant) {
			p.away()
			p.spoilHub("hub-1", func(a *check.Applied) { a.Effects.Opened.Status = fleet.NodeReady })
			p.open(p.e)
			p.spoil = nil
			p.send(p.e)
		}},
		{"an edge sends rows before its heartbeat", check.HeartbeatFirst, nil, func(p *plant) {
			p.see(check.Observation{Refused: &check.Refused{By: "hub-1", From: p.e.name, Code: fleet.CodeHeartbeatFirst, Reason: "rows 4 to 5"}})
		}},
		{"rows of an older session are applied", check.Fencing, nil, func(p *plant) {
			p.health(1)
			b := p.batch(p.e)
			p.open(p.e)
			p.apply(p.e, b)
		}},
		{"a session has no higher epoch", check.Fencing, nil, func(p *plant) {
			p.e.epoch--
			p.open(p.e)
		}},
		{"two machines of one identity are both taken in", check.Fencing, nil, func(p *plant) {
			end := p.fault("clone", []check.Effect{check.Clones}, p.e.name)
			twin := *p.e
			twin.name, twin.rows = "edge-1-clone", slices.Clone(twin.rows)
			p.edges = append(p.edges, &twin)
			for range 2 { // each writes its own rows, and looks are taken
				p.health(1)
				p.row(&twin, fleet.Transition{Kind: fleet.TransitionHealth, Message: "twin"})
			}
			p.pass(time.Second)
			b := p.batch(p.e)
			b.Rows, b.Applied = b.Rows[:1], b.First
			p.apply(p.e, b)
			twin.applied = p.e.applied
			p.apply(&twin, p.batch(&twin))
			end()
			p.edges = p.edges[1:2]
		}},
		{"a refusal has no code", check.RefusedAloud, nil, func(p *plant) {
			p.see(check.Observation{Refused: &check.Refused{By: "hub-1", From: p.e.name}})
		}},
		{"an edge is not told that its rows were refused", check.RefusedAloud, nil, func(p *plant) {
			p.entry("alloc_updates", &check.Effects{Batches: []check.Batch{{
				Node: p.e.node, Epoch: p.e.epoch, First: 9, Code: fleet.CodeGap, Applied: p.e.applied, Status: fleet.NodeReady,
			}}})
		}},
		{"a connected node stays initializing", check.Initializing, nil, func(p *plant) {
			p.away()()
			p.e.status = fleet.NodeInitializing
			p.pass(40 * time.Second)
			p.e.status = fleet.NodeReady
		}},
		{"a node is given up too soon", check.TrustedTime, nil, func(p *plant) {
			p.pass(150 * time.Second)
			p.e.beat = p.at
			p.look()
			p.at += 4 * time.Second
			p.entry("node_status", &check.Effects{Moved: []check.Moved{{Node: p.e.node, Epoch: p.e.epoch, Newest: p.e.epoch, Status: fleet.NodeDisconnected}}})
			p.e.status = fleet.NodeDisconnected
			p.open(p.e)
		}},
	}
}
