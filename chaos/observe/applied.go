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

// digestEvery is at which entries the state's digest is taken: by their number, so
// that all hubs take it at the same ones.
const digestEvery = 16

// Applied is a command that a hub applied. effects says whether what it did is
// wanted, too (check.Monitor.Wants).
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

func effectsOf(a consensus.Applied) *check.Effects {
	e := &check.Effects{}
	switch c := a.Command.(type) {
	case state.SessionOpen:
		e.Opened = opened(c, a)
	case state.NodeStatus:
		e.Moved = moved(c, a)
	case state.AllocUpdates:
		e.Batches = batches(c, a.Result)
		e.Recorded = recorded(e.Batches, a)
	case state.JobRegister:
		if a.Result.Err == nil {
			e.Jobs = []check.JobChange{{Job: c.Job.ID, Tag: c.Job.Meta[check.TagMeta], Version: a.Result.Version}}
		}
	case state.JobDeregister:
		if a.Result.Err == nil {
			e.Jobs = []check.JobChange{{Job: c.ID, Stop: true}}
		}
	case state.Plan:
		planned(e, c, a.View)
		e.Rollouts, e.Advances = rolloutChanges(a, e.Allocs)
		e.Ended = ended(a, c.DeploymentUpdates...)
	case state.DeploymentStatus:
		e.Ended = ended(a, c.Update)
	case state.AllocHealth:
		if c.Update != nil {
			e.Ended = ended(a, *c.Update)
		}
	case state.DeploymentPromote:
		e.Promoted = promoted(c, a)
	case state.PeriodicLaunch:
		e.Launched = launched(c, a)
	case state.JobDispatch:
		e.Dispatched = dispatched(c, a)
	case state.NodeDrain:
		e.Drains = drain(c, a)
	case state.DrainStep:
		e.Drains, e.Flagged = drained(c, a), c.Migrate
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

// opened is nil where the session was refused.
func opened(c state.SessionOpen, a consensus.Applied) *check.Opened {
	r := a.Result.Session
	if r == nil || a.Result.Err != nil {
		return nil
	}
	return &check.Opened{
		Node: c.NodeID, Session: c.Session, Boot: c.BootID, Hub: c.Hub, Epoch: r.Epoch, Status: r.Status,
		Head: c.Head, Applied: r.Applied, Lost: c.Lost,
	}
}

// moved are the nodes that an entry moved, each with the deadline that it was for: that of
// its newest session, unless the entry names none such.
func moved(c state.NodeStatus, a consensus.Applied) []check.Moved {
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

func batches(c state.AllocUpdates, r state.Result) []check.Batch {
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
				row = fleet.Transition{Seq: b.First + fleet.Seq(k)} // and the batch was refused, or a tap says so
			}
			seen.Rows = append(seen.Rows, row)
		}
		bs = append(bs, seen)
	}
	return bs
}

// recorded is what the histories have of what was applied.
func recorded(batches []check.Batch, a consensus.Applied) []check.Recorded {
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

// planned are the allocations that a plan names, and their nodes, as they are after
// it.
func planned(e *check.Effects, c state.Plan, v *state.View) {
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
