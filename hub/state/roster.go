package state

import (
	"maps"
	"slices"

	"skerry/fleet"
)

// jobRoster lists a job's allocations and counts them. It outlives a purged job
// as long as something refers to it.
type jobRoster struct {
	ns     string
	id     fleet.JobID
	allocs []fleet.AllocID // sorted; shared with older rosters
	groups map[string]GroupCount
	live   int         // allocations that are not terminal
	open   int         // evaluations that are not terminal
	newest fleet.Index // of a change of one of the allocations

	// Of the entry that works on it.
	added   []fleet.AllocID
	removed map[fleet.AllocID]bool
}

// nodeRoster lists a node's allocations and what they take of it.
type nodeRoster struct {
	node    fleet.NodeID
	allocs  []fleet.AllocID // sorted; shared with older rosters
	used    fleet.Resources
	added   []fleet.AllocID
	removed map[fleet.AllocID]bool
}

func (t *tx) jobRoster(ns string, id fleet.JobID) *jobRoster {
	k := jobKeyOf(ns, id)
	r := t.jobRosters.mine(t, k, func(r *jobRoster) *jobRoster {
		c := *r
		c.groups = maps.Clone(r.groups)
		return &c
	})
	if r == nil {
		r = &jobRoster{ns: ns, id: id, groups: map[string]GroupCount{}}
		t.jobRosters.put(k, r)
	}
	return r
}

func (t *tx) nodeRoster(id fleet.NodeID) *nodeRoster {
	k := key(string(id))
	r := t.nodeRosters.mine(t, k, func(r *nodeRoster) *nodeRoster {
		c := *r
		return &c
	})
	if r == nil {
		r = &nodeRoster{node: id}
		t.nodeRosters.put(k, r)
	}
	return r
}

// count moves an allocation from old to new in the rosters; either may be nil.
// Every change of an allocation passes here.
func (t *tx) count(old, new *fleet.Alloc) {
	a := new
	if a == nil {
		a = old
	}
	job, node := t.jobRoster(a.Namespace, a.JobID), t.nodeRoster(a.NodeID)
	if old != nil {
		job.add(old, -1)
		if old.OccupiesNode() {
			node.used = node.used.Sub(old.AllocatedResources)
		}
	}
	if new != nil {
		job.add(new, 1)
		job.newest = max(job.newest, new.ModifyIndex)
		if new.OccupiesNode() {
			node.used = node.used.Add(new.AllocatedResources)
		}
	}
	switch {
	case old == nil:
		job.added = append(job.added, a.ID)
		node.added = append(node.added, a.ID)
	case new == nil:
		job.drop(a.ID)
		node.drop(a.ID)
	}
}

func (r *jobRoster) add(a *fleet.Alloc, n int) {
	g := r.groups[a.TaskGroup]
	switch a.ClientStatus {
	case fleet.ClientPending:
		g.Starting += n
	case fleet.ClientRunning:
		g.Running += n
	case fleet.ClientComplete:
		g.Complete += n
	case fleet.ClientFailed:
		g.Failed += n
	case fleet.ClientLost:
		g.Lost += n
	case fleet.ClientUnknown:
		g.Unknown += n
	}
	if g == (GroupCount{}) {
		delete(r.groups, a.TaskGroup)
	} else {
		r.groups[a.TaskGroup] = g
	}
	if !a.Terminal() {
		r.live += n
	}
}

func (r *jobRoster) drop(id fleet.AllocID) {
	if r.removed == nil {
		r.removed = map[fleet.AllocID]bool{}
	}
	r.removed[id] = true
}

func (r *nodeRoster) drop(id fleet.AllocID) {
	if r.removed == nil {
		r.removed = map[fleet.AllocID]bool{}
	}
	r.removed[id] = true
}

// settleRosters ends an entry: lists take what was added, and the jobs that were
// touched get the status that follows.
func (t *tx) settleRosters() {
	for k, r := range t.nodeRosters.dirty {
		r.allocs = merge(r.allocs, r.added, r.removed)
		r.added, r.removed = nil, nil
		if len(r.allocs) == 0 {
			t.nodeRosters.dirty[k] = nil
		}
	}
	for _, r := range t.deployments.dirty {
		if r != nil {
			r.allocs = merge(r.allocs, r.added, r.removed)
			r.added, r.removed = nil, nil
		}
	}
	for k, r := range t.jobRosters.dirty {
		shrunk := len(r.removed) > 0
		r.allocs = merge(r.allocs, r.added, r.removed)
		r.added, r.removed = nil, nil
		if shrunk {
			r.newest = t.newestOf(r.allocs)
		}
		t.settleJob([]byte(k), r)
		if len(r.allocs) == 0 && r.open == 0 {
			t.jobRosters.dirty[k] = nil
		}
	}
}

func (t *tx) newestOf(ids []fleet.AllocID) fleet.Index {
	var newest fleet.Index
	for _, id := range ids {
		newest = max(newest, t.alloc(id).ModifyIndex)
	}
	return newest
}

// merge returns a sorted list with added in it and removed not; the old one is
// left as it is.
func merge(old, added []fleet.AllocID, removed map[fleet.AllocID]bool) []fleet.AllocID {
	if len(added) == 0 && len(removed) == 0 {
		return old
	}
	slices.Sort(added)
	out := make([]fleet.AllocID, 0, len(old)+len(added))
	for i, j := 0, 0; i < len(old) || j < len(added); {
		var id fleet.AllocID
		if j == len(added) || i < len(old) && old[i] < added[j] {
			id = old[i]
			i++
		} else {
			id = added[j]
			j++
		}
		if !removed[id] {
			out = append(out, id)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// JobSummary is how many allocations of each group are where.
type JobSummary struct {
	Namespace   string
	JobID       fleet.JobID
	Groups      map[string]GroupCount
	CreateIndex fleet.Index
	ModifyIndex fleet.Index
}

// GroupCount counts one group's allocations. Queued are wanted and not placed.
type GroupCount struct {
	Queued, Starting, Running, Complete, Failed, Lost, Unknown int
}

// JobSummary counts a job's allocations by group and client status.
func (v *View) JobSummary(ns string, id fleet.JobID) (JobSummary, bool) {
	row, ok := one[jobRow](v, tableJobs, jobKeyOf(ns, id))
	if !ok {
		return JobSummary{}, false
	}
	s := JobSummary{
		Namespace: ns, JobID: id, Groups: map[string]GroupCount{},
		CreateIndex: row.job.CreateIndex, ModifyIndex: row.job.ModifyIndex,
	}
	for _, g := range row.job.TaskGroups {
		s.Groups[g.Name] = GroupCount{}
	}
	if r, ok := one[jobRoster](v, tableJobRosters, jobKeyOf(ns, id)); ok {
		maps.Copy(s.Groups, r.groups)
		s.ModifyIndex = max(s.ModifyIndex, r.newest)
	}
	for name, n := range row.queued {
		g := s.Groups[name]
		g.Queued = n
		s.Groups[name] = g
	}
	return s, true
}

// Used is what allocations that occupy the node take of it (fleet.Alloc's
// OccupiesNode), kept incrementally.
func (v *View) Used(id fleet.NodeID) fleet.Resources {
	r, ok := one[nodeRoster](v, tableNodeRosters, key(string(id)))
	if !ok {
		return fleet.Resources{}
	}
	return r.used
}
