package virtual

import (
	"context"
	"fmt"
	"sync"
	"time"

	"skerry/chaos/fabric"
	"skerry/chaos/schedule"
	"skerry/fleet"
)

// expectations hold a run against what its scenario expects.
type expectations struct {
	mu      sync.Mutex
	judge   *schedule.Judge
	inForce int           // faults
	calm    time.Duration // when the last fault was over
	quiet   time.Duration // after that all was settled; -1: never
	void    []string      // faults that never hit
}

func newExpectations(s schedule.Schedule) *expectations {
	return &expectations{judge: schedule.NewJudge(s), quiet: -1}
}

func (x *expectations) tell(f func(j *schedule.Judge)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f(x.judge)
}

// begin notes that a fault is in force.
func (x *expectations) begin() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.inForce++
	x.quiet = -1
}

// waits reports whether the fleet is watched for becoming quiet.
func (x *expectations) waits() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.inForce == 0 && x.quiet < 0
}

// over notes that a fault is over, and whether it hit.
func (x *expectations) over(f schedule.Fault, at time.Duration, hits uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.inForce--
	x.calm = max(x.calm, at)
	if hits == 0 {
		x.void = append(x.void, f.String())
	}
}

// settled notes that all is quiet.
func (x *expectations) settled(at time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.quiet < 0 {
		x.quiet = max(0, at-x.calm)
	}
}

// look shows the fleet to the expectations.
func (r *run) look() {
	l := schedule.Look{At: r.elapsed(), Tasks: map[string][]fleet.AllocID{}}
	var at *Hub
	for _, h := range r.c.Hubs { // the one that leads knows best
		if d := h.daemon(); d != nil && (at == nil || d.Leads()) {
			at = h
		}
	}
	if at != nil {
		v := at.daemon().State().View()
		l.Hubs, l.Nodes = true, map[string]fleet.NodeStatus{}
		for n := range v.Nodes("") {
			l.Nodes[n.Name] = n.Status
		}
		for a := range v.Allocs("*", "") {
			l.Allocs = append(l.Allocs, *a)
		}
	}
	for _, e := range r.c.Edges {
		l.Tasks[e.Name] = []fleet.AllocID{}
		for _, id := range e.world.Running() {
			if t, ok := taskOf(id); ok {
				l.Tasks[e.Name] = append(l.Tasks[e.Name], t.Alloc)
			}
		}
	}
	r.expect.tell(func(j *schedule.Judge) { j.Look(l) })
}

// unmet are the expectations that the run did not meet.
func (r *run) unmet() []string {
	r.expect.mu.Lock()
	defer r.expect.mu.Unlock()
	var out []string
	for _, v := range r.expect.judge.Conclude(schedule.Ending{Quiet: r.expect.quiet, Void: r.expect.void}) {
		if !v.Met {
			out = append(out, fmt.Sprintf("%s: %s", v.Expectation, v.Why))
		}
	}
	return out
}

// prepare gives pools their rules and links their profiles, before the edges start.
func (r *run) prepare(ctx context.Context, c *Cluster) error {
	for _, p := range r.s.Topology.Pools {
		if err := c.Hubs[0].Pool(ctx, fleet.Pool{Name: p.Name, DefaultDisconnect: p.Disconnect, HeartbeatTTL: p.TTL}); err != nil {
			return fmt.Errorf("give pool %s its rules: %w", p.Name, err)
		}
	}
	for _, e := range r.s.Topology.Edges {
		if p, ok := profiles[e.Link]; ok {
			c.Net.Shape(fabric.Hosts(e.Name), fabric.Hosts(r.s.Topology.Hubs...), p)
		}
	}
	return nil
}
