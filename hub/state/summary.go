package state

import (
	"maps"
	"slices"

	"skerry/fleet"
)

// jobAllocSummary lists a job's allocations and counts them. It stays after the job was purged, until the
// last allocation and open evaluation are gone.
type jobAllocSummary struct {
	ns     string
	id     fleet.JobID
	allocs []fleet.AllocID // sorted; shared with older summaries
	groups map[string]fleet.TaskGroupSummary
	live   int         // allocations that are not terminal
	open   int         // evaluations that are not terminal
	newest fleet.Index // the newest ModifyIndex of the allocations

	// added and removed are the changes of allocs by the entry that is being applied.
	added   []fleet.AllocID
	removed map[fleet.AllocID]bool
}

// nodeAllocSummary lists a node's allocations and adds up the resources that they occupy. added and
// removed are the changes of allocs by the entry that is being applied.
type nodeAllocSummary struct {
	node    fleet.NodeID
	allocs  []fleet.AllocID // sorted; shared with older summaries
	used    fleet.Resources
	added   []fleet.AllocID
	removed map[fleet.AllocID]bool
}

var jobSummaryTable = table[jobAllocSummary]{
	name: "job rosters", key: func(r *jobAllocSummary) []byte { return jobKeyOf(r.ns, r.id) },
	describe: func(d *describer, table string, r *jobAllocSummary) {
		d.writeTableLine(table, r.ns, r.id, r.allocs, r.groups, r.live, r.open, r.newest)
	},
}

var nodeSummaryTable = table[nodeAllocSummary]{
	name: "node rosters", key: func(r *nodeAllocSummary) []byte { return idKey(r.node) },
	describe: func(d *describer, table string, r *nodeAllocSummary) {
		d.writeTableLine(table, r.node, r.allocs, r.used)
	},
}

// ownJobSummary returns a copy of a job's summary that this entry may change. It makes an empty one if
// there is none. The job's status is computed again at commit.
func (t *tx) ownJobSummary(ns string, id fleet.JobID) *jobAllocSummary {
	k := jobKeyOf(ns, id)
	r := jobSummaryTable.ownRow(t, k, func(r *jobAllocSummary) *jobAllocSummary {
		c := *r
		c.groups = maps.Clone(r.groups)
		return &c
	})
	if r == nil {
		r = &jobAllocSummary{ns: ns, id: id, groups: map[string]fleet.TaskGroupSummary{}}
		jobSummaryTable.putRow(t, r)
	}
	return r
}

// ownNodeSummary returns a copy of a node's summary that this entry may change. It makes an empty one if
// there is none.
func (t *tx) ownNodeSummary(id fleet.NodeID) *nodeAllocSummary {
	k := idKey(id)
	r := nodeSummaryTable.ownRow(t, k, func(r *nodeAllocSummary) *nodeAllocSummary {
		c := *r
		return &c
	})
	if r == nil {
		r = &nodeAllocSummary{node: id}
		nodeSummaryTable.putRow(t, r)
	}
	return r
}

// updateSummaries counts the change of an allocation from old to new in the summaries of its job and node.
// old is nil for a new allocation, new for a removed one. It must be called for every change of an
// allocation.
func (t *tx) updateSummaries(old, new *fleet.Alloc) {
	a := new
	if a == nil {
		a = old
	}
	job, node := t.ownJobSummary(a.Namespace, a.JobID), t.ownNodeSummary(a.NodeID)
	if old != nil {
		job.countAlloc(old, -1)
		if old.OccupiesNode() {
			node.used = node.used.Sub(old.AllocatedResources)
		}
	}
	if new != nil {
		job.countAlloc(new, 1)
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
		job.dropAllocID(a.ID)
		node.dropAllocID(a.ID)
	}
}

// countAlloc adds n to the counts that the allocation belongs to: 1 when it joins them, -1 when it leaves.
func (r *jobAllocSummary) countAlloc(a *fleet.Alloc, n int) {
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
	if g == (fleet.TaskGroupSummary{}) {
		delete(r.groups, a.TaskGroup)
	} else {
		r.groups[a.TaskGroup] = g
	}
	if !a.Terminal() {
		r.live += n
	}
}

// dropAllocID removes an allocation from the list at commit.
func (r *jobAllocSummary) dropAllocID(id fleet.AllocID) {
	if r.removed == nil {
		r.removed = map[fleet.AllocID]bool{}
	}
	r.removed[id] = true
}

// dropAllocID removes an allocation from the list at commit.
func (r *nodeAllocSummary) dropAllocID(id fleet.AllocID) {
	if r.removed == nil {
		r.removed = map[fleet.AllocID]bool{}
	}
	r.removed[id] = true
}

// finishSummaries updates, at the end of an entry, the allocation lists of summaries and deployments, and
// the statuses of the jobs that were touched. It removes empty summaries.
func (t *tx) finishSummaries() {
	for k, r := range nodeSummaryTable.changedRows(t) {
		r.allocs = mergeAllocIDs(r.allocs, r.added, r.removed)
		r.added, r.removed = nil, nil
		if len(r.allocs) == 0 {
			nodeSummaryTable.removeRow(t, []byte(k))
		}
	}
	for _, r := range deploymentTable.changedRows(t) {
		if r != nil {
			r.allocs = mergeAllocIDs(r.allocs, r.added, r.removed)
			r.added, r.removed = nil, nil
		}
	}
	for k, r := range jobSummaryTable.changedRows(t) {
		shrunk := len(r.removed) > 0
		r.allocs = mergeAllocIDs(r.allocs, r.added, r.removed)
		r.added, r.removed = nil, nil
		if shrunk {
			r.newest = t.newestModifyIndex(r.allocs)
		}
		t.updateJobStatus([]byte(k), r)
		if len(r.allocs) == 0 && r.open == 0 {
			jobSummaryTable.removeRow(t, []byte(k))
		}
	}
}

// newestModifyIndex returns the greatest ModifyIndex of the allocations ids, or 0.
func (t *tx) newestModifyIndex(ids []fleet.AllocID) fleet.Index {
	var newest fleet.Index
	for _, id := range ids {
		newest = max(newest, t.currentAlloc(id).ModifyIndex)
	}
	return newest
}

// mergeAllocIDs returns the sorted list old with the ids added and without those removed. old is not
// changed; added is sorted in place.
func mergeAllocIDs(old, added []fleet.AllocID, removed map[fleet.AllocID]bool) []fleet.AllocID {
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

// JobSummary counts a job's allocations by group and client status; ok is false if there is no such job.
func (v *View) JobSummary(ns string, id fleet.JobID) (fleet.JobSummary, bool) {
	row, ok := jobTable.watchRow(v, jobKeyOf(ns, id))
	if !ok {
		return fleet.JobSummary{}, false
	}
	s := fleet.JobSummary{
		Namespace: ns, JobID: id, Summary: map[string]fleet.TaskGroupSummary{},
		CreateIndex: row.job.CreateIndex, ModifyIndex: row.job.ModifyIndex,
	}
	for _, g := range row.job.TaskGroups {
		s.Summary[g.Name] = fleet.TaskGroupSummary{}
	}
	if r, ok := jobSummaryTable.watchRow(v, jobKeyOf(ns, id)); ok {
		maps.Copy(s.Summary, r.groups)
		s.ModifyIndex = max(s.ModifyIndex, r.newest)
	}
	for name, n := range row.queued {
		g := s.Summary[name]
		g.Queued = n
		s.Summary[name] = g
	}
	return s, true
}

// Used returns the resources that allocations occupy on a node (fleet.Alloc.OccupiesNode).
func (v *View) Used(id fleet.NodeID) fleet.Resources {
	r, ok := nodeSummaryTable.watchRow(v, idKey(id))
	if !ok {
		return fleet.Resources{}
	}
	return r.used
}
