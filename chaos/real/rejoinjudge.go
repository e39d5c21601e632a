package real

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"skerry/chaos/check"
	"skerry/chaos/cluster"
	"skerry/client"
	"skerry/edge/swarm"
	"skerry/fleet"
)

// rejoinTally is the evaluation of the edges' histories after the replay.
type rejoinTally struct {
	mu           sync.Mutex
	found        []check.Violation
	returns      []time.Duration // from the heal to each edge's first session
	early, later uint64          // rows applied by the leader that was killed, and by its successor
}

// judgeRejoin waits until the hubs are quiet, and checks the invariants: first for each edge at every
// hub, then for the fleet as the hubs report it. It prints the results.
func (r *rejoin) judgeRejoin(ctx context.Context) error {
	if err := r.waitForQuietHubs(ctx); err != nil {
		return err
	}
	began := time.Now()
	tally, err := r.judgeEdges(ctx)
	if err != nil {
		return err
	}
	fleetwide, err := r.lookFleet(ctx)
	if err != nil {
		return err
	}
	found := append(tally.found, check.Quiet(fleetwide)...)
	r.sayDuration("checked", began)
	slices.Sort(tally.returns)
	share := func(p int) time.Duration { return tally.returns[(len(tally.returns)-1)*p/100].Round(time.Millisecond) }
	if len(tally.returns) > 0 {
		r.printLine("  back in a session after the heal: first %s, median %s, 90%% %s, 99%% %s, last %s (%d edges)",
			share(0), share(50), share(90), share(99), share(100), len(tally.returns))
	}
	r.printLine("  rows applied before the leader was killed: %d; under its successor: %d", tally.early, tally.later)
	fmt.Fprint(r.Out, formatVerdicts(quietVerdicts(len(r.swarm.Edges())), found))
	switch {
	case len(found) > 0:
		return fmt.Errorf("%w: %d violations, the first: %s", ErrViolated, len(found), found[0])
	case tally.early == 0 || tally.later == 0:
		return fmt.Errorf("%w: the leader was not killed in the middle of the replay", ErrVoid)
	}
	return nil
}

// waitForQuietHubs waits until all hubs have applied the same index, no evaluation is pending, and no
// deployment waits for the health of allocations.
func (r *rejoin) waitForQuietHubs(ctx context.Context) error {
	began := time.Now()
	err := cluster.Eventually(ctx, replayBound, "the fleet is quiet", func(ctx context.Context) string {
		applied := -1.0
		for _, h := range r.fleet.Hubs {
			m, err := h.Metrics(ctx)
			if err != nil {
				return err.Error()
			}
			index := m[metricApplied]
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
			ds, err := h.ActiveDeployments(ctx)
			if err != nil {
				return err.Error()
			}
			for _, d := range ds {
				return fmt.Sprintf("%s: deployment %s of job %s is %s", h.Name, fleet.Short(d.ID), d.JobID, d.Status)
			}
		}
		if t := r.swarm.Totals(); t.Replayed != t.Edges {
			return t.String()
		}
		return ""
	})
	r.sayDuration("then until all was quiet", began)
	return err
}

// judgeEdges checks each edge's journal and tasks against its records at every hub, four edges at a
// time, so that the memory of their snapshots stays small.
func (r *rejoin) judgeEdges(ctx context.Context) (*rejoinTally, error) {
	tally := &rejoinTally{}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for _, e := range r.swarm.Edges() {
		g.Go(func() error {
			p, err := r.lookAt(ctx, e)
			if err != nil {
				return err
			}
			found := check.Quiet(p)
			tally.mu.Lock()
			defer tally.mu.Unlock()
			tally.found = append(tally.found, found...)
			r.countReturn(tally, p)
			return nil
		})
	}
	return tally, g.Wait()
}

// countReturn adds the time of an edge's first session after the heal to the tally, and the numbers of
// its rows that each leader applied. The caller holds tally.mu.
func (r *rejoin) countReturn(tally *rejoinTally, p check.FleetSnapshot) {
	healed := r.healed.UnixNano()
	back := slices.IndexFunc(p.Edges[0].Rows, func(row fleet.Transition) bool { return row.Kind == fleet.TransitionReconnect && row.Wall >= healed })
	if back >= 0 {
		tally.returns = append(tally.returns, time.Duration(p.Edges[0].Rows[back].Wall-healed))
	}
	for _, entries := range p.Hubs[0].AllocHistory {
		for _, e := range entries {
			switch {
			case e.Side != fleet.SideEdge || e.Index <= r.healedAt:
			case e.Index <= r.before:
				tally.early++
			case e.Index >= r.after:
				tally.later++
			}
		}
	}
}

// lookAt returns a snapshot of one edge: its journal, its tasks, and its records at every hub.
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
		hub, err := readNodes(ctx, h, []fleet.NodeID{seen.NodeID}, true)
		if err != nil {
			return p, err
		}
		p.Hubs = append(p.Hubs, hub)
	}
	return p, nil
}

// lookFleet returns a snapshot of all nodes, allocations and evaluations at every hub, without
// histories.
func (r *rejoin) lookFleet(ctx context.Context) (check.FleetSnapshot, error) {
	p := check.FleetSnapshot{Wanted: r.wanted}
	var ids []fleet.NodeID
	for _, e := range r.swarm.Edges() {
		ids = append(ids, e.NodeID())
	}
	for _, h := range r.fleet.Hubs {
		seen, err := readNodes(ctx, h, ids, false)
		if err != nil {
			return p, err
		}
		for i := range seen.Allocs {
			seen.Allocs[i].Job = nil // saves memory: many allocations share a job
		}
		if seen.Evals, err = h.Own.Evals(ctx, client.List{}); err != nil {
			return p, err
		}
		p.Hubs = append(p.Hubs, seen)
	}
	return p, nil
}
