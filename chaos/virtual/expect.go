package virtual

import (
	"context"
	"fmt"

	"skerry/chaos/engine"
	"skerry/chaos/fabric"
	"skerry/chaos/schedule"
	"skerry/fleet"
	"skerry/hub/state"
)

// updateExpectations passes a snapshot of the fleet to the expectations: the state of the leading
// hub, or else of any running one, and the tasks that run on each machine.
func (r *run) updateExpectations() {
	l := schedule.Snapshot{At: r.elapsedTime(), Tasks: map[string][]fleet.AllocID{}}
	leader := r.c.Leader()
	var known *state.View // the leader's state, or that of another running hub
	for h, v := range r.c.runningViews() {
		if known == nil || h == leader {
			known = v
		}
	}
	if v := known; v != nil {
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
	r.expect.Update(func(j *schedule.ExpectationChecker) { j.AddSnapshot(l) })
}

// preparePoolsAndLinks turns access control on if the schedule says so, creates its node pools and applies the profiles of links. It is
// called before the edges start.
func (r *run) preparePoolsAndLinks(ctx context.Context, c *Cluster) (err error) {
	h := c.Hubs[0].Hub
	if r.s.Access {
		if r.users.Access, err = engine.BootstrapAccess(ctx, h, r.marks); err != nil {
			return err
		}
		r.marks.MarkFiles(r.Dir)
		h = r.users.Access.Manager(h)
	}
	for _, p := range r.s.Topology.Pools {
		if err := h.ApplyNodePool(ctx, fleet.Pool{Name: p.Name, DefaultDisconnect: p.Disconnect, HeartbeatTTL: p.TTL}); err != nil {
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
