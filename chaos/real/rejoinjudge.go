package real

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"skerry/chaos/check"
	"skerry/chaos/cluster"
	"skerry/edge/swarm"
	"skerry/fleet"
)

// judgeRejoin waits until nothing is left to do, and has everything checked: each edge by
// itself at every hub, and then what the hubs say of the fleet.
func (r *rejoin) judgeRejoin(ctx context.Context) error {
	if err := r.waitForQuietHubs(ctx); err != nil {
		return err
	}
	began := time.Now()
	found, err := r.judgeEdges(ctx)
	if err != nil {
		return err
	}
	fleetwide, err := r.lookFleet(ctx)
	if err != nil {
		return err
	}
	found = append(found, check.Quiet(fleetwide)...)
	r.figures.reportDuration("checked", time.Since(began))
	r.figures.printFigures(r.want)
	r.record.writeVerdicts(found, len(r.swarm.Edges()))
	fmt.Fprint(r.Out, verdicts(found, len(r.swarm.Edges())))
	if len(found) > 0 {
		return fmt.Errorf("%w: %d violations, the first: %s", ErrViolated, len(found), found[0])
	}
	return r.figures.proveMiddle()
}

// waitForQuietHubs waits until all hubs have applied the same, nothing waits for a decision, and
// no deployment waits for an edge to say that its allocations are healthy.
func (r *rejoin) waitForQuietHubs(ctx context.Context) error {
	began := time.Now()
	err := cluster.Eventually(ctx, replayBound, "the fleet is quiet", func(ctx context.Context) string {
		applied := -1.0
		for _, h := range r.fleet.Hubs {
			m, err := h.Metrics(ctx)
			if err != nil {
				return err.Error()
			}
			index := m["skerry_raft_applied_index"]
			if applied >= 0 && index != applied {
				return fmt.Sprintf("%s has applied %.0f, others %.0f", h.Name, index, applied)
			}
			applied = index
			for metric, want := range map[string]int{
				`skerry_nodes{status="ready"}`:                 r.want.Edges,
				`skerry_allocations{client_status="running"}`:  r.want.Edges * r.want.Allocs,
				`skerry_evaluations{where="ready"}`:            0,
				`skerry_evaluations{where="outstanding"}`:      0,
				`skerry_evaluations{where="pending"}`:          0,
				`skerry_allocations{client_status="unknown"}`:  0,
				`skerry_allocations{client_status="complete"}`: 0,
			} {
				if int(m[metric]) != want {
					return fmt.Sprintf("%s: %s is %.0f, wants %d", h.Name, metric, m[metric], want)
				}
			}
		}
		if t := r.swarm.Totals(); t.Replayed != t.Edges {
			return t.String()
		}
		return rolling(ctx, r.fleet)
	})
	r.figures.reportDuration("then until all was quiet", time.Since(began))
	return err
}

// rolling names a deployment that some hub takes for running, "" where there is none.
func rolling(ctx context.Context, c *cluster.Cluster) string {
	for _, h := range c.Hubs {
		ds, err := h.Deployments(ctx)
		if err != nil {
			return err.Error()
		}
		for _, d := range ds {
			return fmt.Sprintf("%s: deployment %s of job %s is %s", h.Name, fleet.Short(d.ID), d.JobID, d.Status)
		}
	}
	return ""
}

// judgeEdges checks each edge's journal against what every hub has of it. Edges are
// looked at one after the other, so that what is held at a time stays small.
func (r *rejoin) judgeEdges(ctx context.Context) ([]check.Violation, error) {
	var mu sync.Mutex
	var found []check.Violation
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for _, e := range r.swarm.Edges() {
		g.Go(func() error {
			p, err := r.lookAt(ctx, e)
			if err != nil {
				return err
			}
			vs := check.Quiet(p)
			mu.Lock()
			defer mu.Unlock()
			found = append(found, vs...)
			r.figures.addEdgeReturn(p)
			return nil
		})
	}
	return found, g.Wait()
}

// lookAt is the picture of one edge.
func (r *rejoin) lookAt(ctx context.Context, e *swarm.Edge) (check.FleetSnapshot, error) {
	seen := check.Edge{Name: e.Name(), NodeID: e.NodeID(), Processes: map[check.TaskKey]int{}}
	var err error
	if seen.Rows, err = e.Agent().History(ctx, ""); err != nil {
		return check.FleetSnapshot{}, err
	}
	for alloc, tasks := range e.Running() {
		for task, n := range tasks {
			seen.Processes[check.TaskKey{Alloc: alloc, Task: task}] = n
		}
	}
	p := check.FleetSnapshot{Edges: []check.Edge{seen}, Starts: e.Starts()}
	for _, h := range r.fleet.Hubs {
		hub, err := lookNode(ctx, h, seen.NodeID)
		if err != nil {
			return p, err
		}
		p.Hubs = append(p.Hubs, hub)
	}
	return p, nil
}

// lookNode is what a hub has of one node.
func lookNode(ctx context.Context, h *cluster.Hub, id fleet.NodeID) (check.Hub, error) {
	seen := check.Hub{
		Name: h.Name, NodeHistory: map[fleet.NodeID][]fleet.HistoryEntry{}, AllocHistory: map[fleet.AllocID][]fleet.HistoryEntry{},
		Dropped: map[fleet.AllocID]uint64{},
	}
	node, err := h.Node(ctx, id)
	if err != nil {
		return seen, err
	}
	seen.Nodes = []fleet.Node{node}
	if seen.NodeHistory[id], err = h.NodeHistory(ctx, id); err != nil {
		return seen, err
	}
	if seen.Allocs, err = h.NodeAllocs(ctx, id); err != nil {
		return seen, err
	}
	for _, a := range seen.Allocs {
		if seen.AllocHistory[a.ID], seen.Dropped[a.ID], err = h.AllocHistory(ctx, a.ID); err != nil {
			return seen, err
		}
	}
	return seen, nil
}

// lookFleet is the picture of all nodes, allocations and evaluations, without history.
func (r *rejoin) lookFleet(ctx context.Context) (check.FleetSnapshot, error) {
	p := check.FleetSnapshot{Wanted: r.wanted}
	for _, h := range r.fleet.Hubs {
		seen := check.Hub{Name: h.Name}
		for _, e := range r.swarm.Edges() {
			node, err := h.Node(ctx, e.NodeID())
			if err != nil {
				return p, err
			}
			seen.Nodes = append(seen.Nodes, node)
		}
		var errs [2]error
		seen.Allocs, errs[0] = h.Allocs(ctx)
		for i := range seen.Allocs {
			seen.Allocs[i].Job = nil // the same for a thousand of them
		}
		seen.Evals, errs[1] = h.Evals(ctx)
		if err := errors.Join(errs[:]...); err != nil {
			return p, err
		}
		p.Hubs = append(p.Hubs, seen)
	}
	return p, nil
}
