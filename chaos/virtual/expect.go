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
	judge   *schedule.ExpectationChecker
	inForce int           // faults
	calm    time.Duration // when the last fault was over
	quiet   time.Duration // after that all was settled; -1: never
	void    []string      // faults that never hit
}

func newExpectations(s schedule.Schedule) *expectations {
	return &expectations{judge: schedule.NewExpectationChecker(s), quiet: -1}
}

func (x *expectations) updateJudge(f func(j *schedule.ExpectationChecker)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f(x.judge)
}

// countFaultBegin notes that a fault is in force.
func (x *expectations) countFaultBegin() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.inForce++
	x.quiet = -1
}

// isAwaitingQuiet reports whether the fleet is watched for becoming quiet.
func (x *expectations) isAwaitingQuiet() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.inForce == 0 && x.quiet < 0
}

// countFaultEnd notes that a fault is over, and whether it hit.
func (x *expectations) countFaultEnd(f schedule.Fault, over time.Duration, hits uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.inForce--
	x.calm = max(x.calm, over)
	if hits == 0 {
		x.void = append(x.void, f.String())
	}
}

// recordSettled notes that all is quiet.
func (x *expectations) recordSettled(at time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.quiet < 0 {
		x.quiet = max(0, at-x.calm)
	}
}

// updateExpectations shows the fleet to the expectations.
func (r *run) updateExpectations() {
	l := schedule.Snapshot{At: r.elapsedTime(), Tasks: map[string][]fleet.AllocID{}}
	var at *Hub
	for _, h := range r.c.Hubs { // the one that leads knows best
		if d := h.runningDaemon(); d != nil && (at == nil || d.Leads()) {
			at = h
		}
	}
	if at != nil {
		v := at.runningDaemon().State().View()
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
	r.expect.updateJudge(func(j *schedule.ExpectationChecker) { j.AddSnapshot(l) })
}

// unmetExpectations are the expectations that the run did not meet.
func (r *run) unmetExpectations() []string {
	r.expect.mu.Lock()
	defer r.expect.mu.Unlock()
	var out []string
	for _, v := range r.expect.judge.Verdicts(schedule.RunOutcome{Quiet: r.expect.quiet, Void: r.expect.void}) {
		if !v.Met {
			out = append(out, fmt.Sprintf("%s: %s", v.Expectation, v.Why))
		}
	}
	return out
}

// preparePoolsAndLinks gives pools their rules and links their profiles, before the edges start.
func (r *run) preparePoolsAndLinks(ctx context.Context, c *Cluster) error {
	for _, p := range r.s.Topology.Pools {
		if err := c.Hubs[0].ApplyNodePool(ctx, fleet.Pool{Name: p.Name, DefaultDisconnect: p.Disconnect, HeartbeatTTL: p.TTL}); err != nil {
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
