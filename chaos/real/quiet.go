package real

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"skerry/api"
	"skerry/chaos/check"
	"skerry/chaos/cluster"
	"skerry/client"
	"skerry/fleet"
)

// waitUntilQuiet waits up to settleBound until the fleet has nothing left to do, and returns the
// snapshot that showed it: a later one may catch the hubs between two entries. With an error the
// snapshot is the last one, or empty if the hubs were not settled.
func (s *fleetRun) waitUntilQuiet(ctx context.Context) (picture check.FleetSnapshot, err error) {
	err = cluster.Eventually(ctx, s.settleBound, "the fleet is quiet", func(ctx context.Context) string {
		if u := firstUnsettled(ctx, s.fleet); u != "" {
			if ctx.Err() == nil { // otherwise the request failed only since the time is over
				picture = check.FleetSnapshot{}
			}
			return u
		}
		seen, err := s.takeSnapshot(ctx)
		if err != nil {
			return err.Error()
		}
		picture = seen
		return undelivered(picture)
	})
	return picture, err
}

// firstUnsettled describes the first thing that a hub reports as unsettled, such as a node that is
// not ready; "": nothing is.
func firstUnsettled(ctx context.Context, c *cluster.Cluster) string {
	for _, h := range c.Hubs {
		s, err := h.Fleet(ctx)
		if err != nil {
			return err.Error()
		}
		for _, n := range s.Nodes {
			if n.Status != fleet.NodeReady {
				return fmt.Sprintf("%s: node %s is %s (%s)", h.Name, n.Name, n.Status, n.StatusDescription)
			}
		}
		if len(s.Nodes) < len(c.Edges) {
			return fmt.Sprintf("%s: %d of %d nodes are known", h.Name, len(s.Nodes), len(c.Edges))
		}
		if len(s.Waiting) > 0 {
			w := s.Waiting[0]
			return fmt.Sprintf("%s: %s %s (%s) waits for %s", h.Name, w.Kind, fleet.Short(w.ID), w.Of, w.For)
		}
	}
	return ""
}

// undelivered describes the first thing in the snapshot that is still pending: an evaluation, a row
// of a journal, or a task that has to start or stop; "": nothing is.
func undelivered(picture check.FleetSnapshot) string {
	for _, e := range picture.Edges {
		if len(e.Rows) == 0 {
			return e.Name + " has an empty journal"
		}
	}
	for _, h := range picture.Hubs {
		for _, e := range h.Evals {
			if e.Status == fleet.EvalPending && e.WaitUntil.IsZero() {
				return fmt.Sprintf("%s: evaluation %s (%s) is pending", h.Name, fleet.Short(e.ID), e.TriggeredBy)
			}
		}
		for _, n := range h.Nodes { // a node that reconnected before its deadline is ready even while rows are missing
			if n.Applied < n.JournalHead {
				return fmt.Sprintf("%s: row %d of node %s is not in, it announced %d", h.Name, n.Applied+1, n.Name, n.JournalHead)
			}
		}
	}
	// These two invariants hold only after some time: they are violations when the bound is over.
	if vs := check.Quiet(picture); len(vs) > 0 {
		if i := slices.IndexFunc(vs, func(v check.Violation) bool { return v.Invariant == check.ExactlyOnce || v.Invariant == check.Settled }); i >= 0 {
			return vs[i].Message
		}
	}
	return ""
}

// takeSnapshot returns the state of the fleet for the checkers, with the wanted jobs and the recorded
// starts of tasks.
func (s *fleetRun) takeSnapshot(ctx context.Context) (check.FleetSnapshot, error) {
	p, err := fleetSnapshot(ctx, s.fleet)
	if err != nil {
		return p, err
	}
	p.Wanted = maps.Clone(s.wanted)
	for i := range p.Edges {
		e := &p.Edges[i]
		e.Before = s.rowsBeforeDamage[e.Name]
		// Orphans run on although a restored cluster does not know them: they are no violation.
		for _, n := range p.Hubs[0].Nodes {
			maps.DeleteFunc(e.Processes, func(task check.TaskKey, _ int) bool {
				return n.ID == e.NodeID && slices.Contains(n.Orphans, task.Alloc)
			})
		}
	}
	if s.starts != "" {
		p.Starts, err = started(s.starts)
	}
	return p, err
}

// fleetSnapshot returns the state of all edges and hubs. It does not change s.wanted or starts.
func fleetSnapshot(ctx context.Context, c *cluster.Cluster) (check.FleetSnapshot, error) {
	var p check.FleetSnapshot
	for _, e := range c.Edges {
		seen, err := lookEdge(ctx, e)
		if err != nil {
			return p, err
		}
		p.Edges = append(p.Edges, seen)
	}
	for _, h := range c.Hubs {
		seen, err := lookHub(ctx, h)
		if err != nil {
			return p, err
		}
		p.Hubs = append(p.Hubs, seen)
	}
	return p, nil
}

// lookEdge returns an edge's node id, its journal's rows, and the live processes of its tasks.
func lookEdge(ctx context.Context, e *cluster.Edge) (check.Edge, error) {
	seen := check.Edge{Name: e.Name}
	var errs [3]error
	seen.NodeID, errs[0] = e.NodeID(ctx)
	seen.Rows, errs[1] = e.Local().History(ctx, "")
	seen.Processes, errs[2] = processes(e)
	return seen, errors.Join(errs[:]...)
}

// lookHub returns the state of a hub with all histories.
func lookHub(ctx context.Context, h *cluster.Hub) (check.Hub, error) {
	s, err := h.Fleet(ctx)
	if err != nil {
		return check.Hub{}, err
	}
	seen, err := readNodes(ctx, h, nodeIDs(s), true)
	if err != nil {
		return seen, err
	}
	seen.Evals, err = h.Own.Evals(ctx, client.List{})
	return seen, err
}

// pollHubState returns the state of a hub without histories. It returns an error if the state
// changed during the requests.
func pollHubState(ctx context.Context, h *cluster.Hub) (check.Hub, error) {
	s, err := h.Fleet(ctx)
	if err != nil {
		return check.Hub{}, err
	}
	seen, err := readNodes(ctx, h, nodeIDs(s), false)
	if err != nil {
		return seen, err
	}
	seen.Index, seen.Leads = s.Index, string(s.Leader) == h.Name
	if seen.Evals, err = h.Own.Evals(ctx, client.List{}); err != nil {
		return seen, err
	}
	if seen.Deployments, err = h.ActiveDeployments(ctx); err != nil {
		return seen, err
	}
	// Answers at different indexes are no state that the hub ever had.
	if s, err = h.Fleet(ctx); err == nil && s.Index != seen.Index {
		err = fmt.Errorf("read the state of %s: it changed during the requests", h.Name)
	}
	return seen, err
}

// nodeIDs returns the ids of all nodes in a fleet's status.
func nodeIDs(s api.FleetStatus) (ids []fleet.NodeID) {
	for _, line := range s.Nodes {
		ids = append(ids, line.ID)
	}
	return ids
}

// readNodes returns a hub's records of the nodes and of their allocations, with their histories if
// histories is set.
func readNodes(ctx context.Context, h *cluster.Hub, ids []fleet.NodeID, histories bool) (check.Hub, error) {
	seen := check.Hub{Name: h.Name}
	if histories {
		seen.NodeHistory, seen.AllocHistory = map[fleet.NodeID][]fleet.HistoryEntry{}, map[fleet.AllocID][]fleet.HistoryEntry{}
		seen.Dropped = map[fleet.AllocID]uint64{}
	}
	for _, id := range ids {
		node, err := h.Own.Node(ctx, id)
		if err != nil {
			return seen, err
		}
		allocs, err := h.Own.NodeAllocs(ctx, id)
		if err != nil {
			return seen, err
		}
		seen.Nodes, seen.Allocs = append(seen.Nodes, node), append(seen.Allocs, allocs...)
		if !histories {
			continue
		}
		if seen.NodeHistory[id], err = h.Own.NodeHistory(ctx, id, client.HistoryQuery{}); err != nil {
			return seen, err
		}
		for _, a := range allocs {
			answer, err := h.Own.AllocHistory(ctx, a.ID)
			if err != nil {
				return seen, err
			}
			seen.AllocHistory[a.ID], seen.Dropped[a.ID] = answer.Entries, answer.Dropped
		}
	}
	return seen, nil
}

// median and longest summarize durations, rounded to milliseconds; 0: there are none.
func median(ds []time.Duration) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(ds))
	return s[len(s)/2].Round(time.Millisecond)
}

func longest(ds []time.Duration) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	return slices.Max(ds).Round(time.Millisecond)
}
