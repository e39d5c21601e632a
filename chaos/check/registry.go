package check

import (
	"slices"
	"time"

	"skerry/fleet"
)

// fleetRegistry has the nodes' names, the jobs and the allocations of the fleet, as they were observed last.
// All checkers share it.
type fleetRegistry struct {
	names  map[fleet.NodeID]string // names of edges
	jobs   map[fleet.JobID]*jobFact
	allocs map[fleet.AllocID]*allocFact
	places map[string][]fleet.AllocID // allocations by namespace and name
	// changed is when a job was last changed, registered or stopped.
	changed time.Duration
}

// jobFact is a job as it was last registered or stopped.
type jobFact struct {
	job     *fleet.Job
	changed time.Duration
	// unsure says that the hubs were restored from an older copy since then, and may have an older job.
	unsure bool
}

// allocFact is an allocation as a hub or an entry showed it last.
type allocFact struct {
	alloc fleet.Alloc // without Job, TaskStates, Metrics
	group *fleet.TaskGroup
	first time.Duration // when it was seen first
	// stopped is when hubs were first observed to want the allocation stopped; 0: they do not.
	stopped time.Duration
	// stoppedAs is its client status then.
	stoppedAs string
	// stoppedLast is when that was observed last: hubs that were restored may have wanted it to run meanwhile.
	stoppedLast time.Duration
	seen        time.Duration // when it was observed last
	// stale says that the hubs were restored from an older copy since the last observation.
	stale bool
	// ended says that its edge reported its end, system that its job runs on every
	// node.
	ended, system bool
	// canary says that it was placed as a canary, beside the current allocation of its name.
	canary bool
}

// ensure returns the value of a key. It adds a zero value for a new key.
func ensure[K comparable, V any](m map[K]*V, key K) *V {
	if m[key] == nil {
		m[key] = new(V)
	}
	return m[key]
}

// nodeStatuses calls f with each node whose session the entry opens or whose rows it applies, and the node's status
// after the entry.
func (e *Effects) nodeStatuses(f func(fleet.NodeID, fleet.NodeStatus)) {
	if e.Opened != nil {
		f(e.Opened.Node, e.Opened.Status)
	}
	for i := range e.Batches {
		if b := &e.Batches[i]; b.Code == "" {
			f(b.Node, b.Status)
		}
	}
}

// newFleetRegistry returns an empty registry.
func newFleetRegistry() fleetRegistry {
	return fleetRegistry{
		names: map[fleet.NodeID]string{}, jobs: map[fleet.JobID]*jobFact{}, allocs: map[fleet.AllocID]*allocFact{},
		places: map[string][]fleet.AllocID{},
	}
}

// edgeNameOf returns the name of a node's edge, or the short id where the name is not known.
func (c *fleetRegistry) edgeNameOf(id fleet.NodeID) string {
	if n := c.names[id]; n != "" {
		return n
	}
	return fleet.Short(id)
}

// recordNodeName records the name of a node's edge. If several edges use one identity, the first name stays.
func (c *fleetRegistry) recordNodeName(id fleet.NodeID, name string) {
	if c.names[id] == "" && name != "" {
		c.names[id] = name
	}
}

// recordJob records a job that was registered or stopped at now.
func (c *fleetRegistry) recordJob(j *fleet.Job, now time.Duration) {
	c.jobs[j.ID] = &jobFact{job: j, changed: now}
	c.changed = max(c.changed, now)
}

// recordEffects records the nodes' names and the allocations of an entry's effects.
func (c *fleetRegistry) recordEffects(e *Effects, now time.Duration) {
	for i := range e.Nodes {
		c.recordNodeName(e.Nodes[i].ID, e.Nodes[i].Name)
	}
	for i := range e.Allocs {
		c.recordAllocation(&e.Allocs[i], now)
	}
}

// recordHubView records the nodes and allocations that a hub shows. Allocations older than the known ones are
// ignored, and so are those of a hub behind the entry `told`, the newest one whose effects are known.
func (c *fleetRegistry) recordHubView(h *Hub, told fleet.Index, now time.Duration) {
	for i := range h.Nodes {
		c.recordNodeName(h.Nodes[i].ID, h.Nodes[i].Name)
	}
	for i := range h.Allocs {
		known := c.allocs[h.Allocs[i].ID]
		switch {
		case known != nil && !known.stale && known.alloc.ModifyIndex > h.Allocs[i].ModifyIndex:
			known.seen = now
		case h.Index >= told:
			c.recordAllocation(&h.Allocs[i], now)
		}
	}
}

// recordAllocation records an allocation, without its job, metrics and task states. It also records its group, whether
// it is a canary, and when it first had to stop.
func (c *fleetRegistry) recordAllocation(a *fleet.Alloc, now time.Duration) {
	f := c.allocs[a.ID]
	if f == nil {
		f = &allocFact{first: now}
		c.allocs[a.ID] = f
		c.places[qualifiedName(a)] = append(c.places[qualifiedName(a)], a.ID)
	}
	if a.ServerTerminal() && !f.alloc.ServerTerminal() {
		f.stoppedLast = now
	}
	f.seen, f.stale = now, false
	f.alloc = *a
	f.alloc.Job, f.alloc.TaskStates, f.alloc.Metrics, f.alloc.AllocStates = nil, nil, nil, a.AllocStates
	if g := a.Group(); g != nil {
		f.group = g
	} else if j := c.jobs[a.JobID]; j != nil && (f.group == nil || j.job.Version == a.JobVersion) {
		f.group = j.job.Group(a.TaskGroup)
	}
	f.canary = f.canary || a.DeploymentStatus.IsCanary()
	if a.Job != nil {
		f.system = fleet.RunsEverywhere(a.Job.Type)
	} else if j := c.jobs[a.JobID]; j != nil {
		f.system = fleet.RunsEverywhere(j.job.Type)
	}
	if a.ServerTerminal() && f.stopped == 0 {
		f.stopped, f.stoppedAs = max(now, 1), a.ClientStatus
	}
}

// recordEndedAllocs marks the allocations as ended that applied rows report as complete or failed.
func (c *fleetRegistry) recordEndedAllocs(batches []Batch) {
	for i := range batches {
		for k := range batches[i].Rows {
			row := &batches[i].Rows[k]
			f := c.allocs[row.Alloc]
			if f != nil && batches[i].Code == "" && (row.ClientStatus == fleet.ClientComplete || row.ClientStatus == fleet.ClientFailed) {
				f.ended = true
			}
		}
	}
}

// acceptOlderViews marks all allocations stale and all jobs unsure, after the hubs were restored from an older copy.
// Views with older versions are then accepted.
func (c *fleetRegistry) acceptOlderViews() {
	c.markAllocsStale()
	for _, f := range c.jobs {
		f.unsure = true
	}
}

// markAllocsStale marks all known allocations as stale until they are observed again.
func (c *fleetRegistry) markAllocsStale() {
	for _, f := range c.allocs {
		f.stale = true
	}
}

// keptAllocs is for how long an ended allocation is remembered after it was observed last.
const keptAllocs = time.Hour

// forgetEndedWork drops terminal allocations that were not observed for keptAllocs, and jobs that were stopped
// before that and have no allocation.
func (c *fleetRegistry) forgetEndedWork(now time.Duration) {
	lives := map[fleet.JobID]bool{}
	for _, f := range c.allocs {
		lives[f.alloc.JobID] = true
	}
	for id, f := range c.jobs {
		if f.job.Stop && !lives[id] && now-f.changed > keptAllocs {
			delete(c.jobs, id)
		}
	}
	for id, f := range c.allocs {
		if now-f.seen > keptAllocs && f.alloc.Terminal() {
			c.dropAllocation(id, f)
		}
	}
}

// dropAllocation removes an allocation, also from the list of its place.
func (c *fleetRegistry) dropAllocation(id fleet.AllocID, f *allocFact) {
	delete(c.allocs, id)
	at := qualifiedName(&f.alloc)
	c.places[at] = slices.DeleteFunc(c.places[at], func(other fleet.AllocID) bool { return other == id })
	if len(c.places[at]) == 0 {
		delete(c.places, at)
	}
}

// qualifiedName returns the namespace and name of an allocation. At most one allocation at a time may hold it.
func qualifiedName(a *fleet.Alloc) string { return a.Namespace + "/" + a.Name }
