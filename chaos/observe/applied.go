package observe

import (
	"cmp"
	"slices"

	"skerry/chaos/check"
	"skerry/fleet"
	"skerry/fleet/placement"
	"skerry/hub/consensus"
	"skerry/hub/state"
	"skerry/syncproto"
)

// digestEvery selects the entries after which the state's digest is computed: those whose index is a multiple of it,
// so they are the same on every hub.
const digestEvery = 16

// Applied converts an entry that a hub applied, for the checkers. With effects it adds the changes that the entry
// made, which cost more (see check.Monitor.Wants).
func Applied(hub string, a consensus.Applied, effects bool) *check.Applied {
	seen := &check.Applied{
		Hub: hub, Index: a.Index, Term: a.Term, Kind: state.KindOf(a.Command).String(),
		Command: state.DigestOf(a.Command), Result: state.DigestOf(a.Result),
	}
	if a.Result.Err != nil {
		seen.Refused = a.Result.Err.Code
	}
	if a.Index%digestEvery == 0 {
		seen.State = a.View.Digest()
	}
	if effects {
		seen.Effects = effectsOf(a)
	}
	return seen
}

// effectsOf returns the changes that an entry made to sessions, nodes, allocations, jobs, deployments and
// evaluations. They come from the command, its result and the state after it.
func effectsOf(a consensus.Applied) *check.Effects {
	e := &check.Effects{}
	switch c := a.Command.(type) {
	case state.SessionOpen:
		e.Opened = openedSession(c, a)
	case state.NodeStatus:
		e.Moved = movedNodes(c, a)
	case state.NodeRegister:
		if a.Result.Err == nil {
			e.Described = c.Node.ID
		}
	case state.AllocUpdates:
		e.Batches = rowBatches(c, a.Result)
		e.Recorded = recordedRows(e.Batches, a)
	case state.JobRegister:
		if a.Result.Err == nil {
			e.Jobs = []check.JobChange{{Job: c.Job.ID, Tag: c.Job.Meta[check.TagMeta], Version: a.Result.Version}}
		}
	case state.JobDeregister:
		if a.Result.Err == nil {
			e.Jobs = []check.JobChange{{Job: c.ID, Stop: true}}
		}
	case state.Plan:
		addPlannedAllocs(e, c, a.View)
		e.Rollouts, e.Advances = rolloutChanges(a, e.Allocs)
		e.Ended = endedDeployments(a, c.DeploymentUpdates...)
	case state.DeploymentStatus:
		e.Ended = endedDeployments(a, c.Update)
	case state.AllocHealth:
		if c.Update != nil {
			e.Ended = endedDeployments(a, *c.Update)
		}
	case state.DeploymentPromote:
		e.Promoted = promotedDeployments(c, a)
	case state.PeriodicLaunch:
		e.Launched = launchedChild(c, a)
	case state.JobDispatch:
		e.Dispatched = dispatchedChild(c, a)
	case state.NodeDrain:
		e.Drains = drainChange(c, a)
	case state.DrainStep:
		e.Drains, e.Flagged = endedDrains(c, a), c.Migrate
	case state.AllocStop:
		e.Flagged = c.Allocs
	case state.Fence:
		e.Fenced = &check.Fenced{Node: c.NodeID, Code: c.Session.Code}
	}
	for eval := range a.View.EvalsSince(a.Index - 1) {
		if eval.CreateIndex == a.Index {
			e.Evals = append(e.Evals, *eval)
		}
	}
	return e
}

// openedSession returns the session that an entry committed, or nil if it was refused.
func openedSession(c state.SessionOpen, a consensus.Applied) *check.Opened {
	r := a.Result.Session
	if r == nil || a.Result.Err != nil {
		return nil
	}
	return &check.Opened{
		Node: c.NodeID, Session: c.Session, Boot: c.BootID, Hub: c.Hub, Epoch: r.Epoch, Status: r.Status,
		Head: c.Head, Applied: r.Applied, Lost: c.Lost,
	}
}

// movedNodes returns the nodes that an entry made disconnected or down, each with the epoch of the missed deadline. If
// the command names a node several times, the epoch of its newest session counts.
func movedNodes(c state.NodeStatus, a consensus.Applied) []check.Moved {
	var ms []check.Moved
	for _, id := range a.Result.Moved {
		node, ok := a.View.Node(id)
		if !ok {
			continue
		}
		m := check.Moved{Node: id, Newest: node.Epoch, Status: node.Status}
		for _, n := range c.Nodes {
			if n.NodeID == id && m.Epoch != node.Epoch {
				m.Epoch = n.Epoch
			}
		}
		ms = append(ms, m)
	}
	return ms
}

// rowBatches returns each node's rows in an entry with the result. A row that cannot be decoded has only its number.
func rowBatches(c state.AllocUpdates, r state.Result) []check.Batch {
	var bs []check.Batch
	for i, b := range c.Batches {
		if i >= len(r.Updates) || len(b.Rows) == 0 && r.Updates[i].Code == "" {
			continue
		}
		u := r.Updates[i]
		seen := check.Batch{
			Node: b.NodeID, Epoch: b.Epoch, First: b.First, Base: b.Base,
			Code: u.Code, Applied: u.Applied, Status: u.Status,
		}
		for k, raw := range b.Rows {
			row, err := syncproto.DecodeRow(raw)
			if err != nil {
				row = fleet.Transition{Seq: b.First + fleet.Seq(k)} // the batch is refused, or another checker reports it
			}
			seen.Rows = append(seen.Rows, row)
		}
		bs = append(bs, seen)
	}
	return bs
}

// recordedRows returns, by allocation, the numbers of the rows that this entry added to the allocation's history.
func recordedRows(batches []check.Batch, a consensus.Applied) []check.Recorded {
	var rs []check.Recorded
	for _, b := range batches {
		if b.Code != "" {
			continue
		}
		seen := map[fleet.AllocID]bool{}
		for _, row := range b.Rows {
			if _, known := a.View.Alloc(row.Alloc); !known || seen[row.Alloc] {
				continue
			}
			seen[row.Alloc] = true
			r := check.Recorded{Node: b.Node, Alloc: row.Alloc, Full: a.View.HistoryDropped(row.Alloc) > 0}
			for _, entry := range a.View.HistoryAt(row.Alloc, a.Index) {
				if entry.Transition != nil {
					r.Rows = append(r.Rows, entry.Transition.Seq)
				}
			}
			rs = append(rs, r)
		}
	}
	return rs
}

// addPlannedAllocs adds to e the allocations that a plan changed or placed, their nodes and the usage of these, all
// after the plan, sorted by id.
func addPlannedAllocs(e *check.Effects, c state.Plan, v *state.View) {
	nodes := map[fleet.NodeID]bool{}
	for _, byNode := range []map[fleet.NodeID][]fleet.Alloc{c.Result.NodeUpdate, c.Result.NodeAllocation} {
		for id, allocs := range byNode {
			nodes[id] = true
			for i := range allocs {
				if a, ok := v.Alloc(allocs[i].ID); ok {
					e.Allocs = append(e.Allocs, *a)
				}
			}
		}
	}
	for id := range nodes {
		n, ok := v.Node(id)
		if !ok {
			continue
		}
		load := check.Load{Node: id, Name: n.Name, Free: n.Free()}
		claims := placement.NewClaims(n)
		for a := range v.AllocsByNode(id) {
			if !a.OccupiesNode() {
				continue
			}
			load.Used = load.Used.Add(a.AllocatedResources)
			if clash := claims.Hold(a.Allotment); clash != "" {
				load.Clash = clash
			}
		}
		e.Nodes, e.Loads = append(e.Nodes, fleet.Node{ID: n.ID, Name: n.Name, Status: n.Status}), append(e.Loads, load)
	}
	slices.SortFunc(e.Allocs, func(a, b fleet.Alloc) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(e.Nodes, func(a, b fleet.Node) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(e.Loads, func(a, b check.Load) int { return cmp.Compare(a.Node, b.Node) })
}
