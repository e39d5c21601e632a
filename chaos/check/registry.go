package check

import (
	"slices"
	"time"

	"skerry/fleet"
)

// fleetRegistry is who takes part, as far as checkers have to know: nodes, jobs, allocations.
type fleetRegistry struct {
	names  map[fleet.NodeID]string
	jobs   map[fleet.JobID]*jobFact
	allocs map[fleet.AllocID]*allocFact
	places map[string][]fleet.AllocID // allocations by place
	// changed is when a job was last changed, registered or stopped.
	changed time.Duration
}

// jobFact is a job as it was registered last, and the rules of its versions.
type jobFact struct {
	job     *fleet.Job
	changed time.Duration
	// unsure says that the hubs were put back since: they may have an older one.
	unsure bool
}

// allocFact is an allocation as a hub had it last.
type allocFact struct {
	alloc fleet.Alloc // without Job, TaskStates, Metrics
	group *fleet.TaskGroup
	first time.Duration // when it was seen first
	// stopped is when a hub was first seen to want it stopped; 0: none does.
	stopped time.Duration
	seen    time.Duration // by any hub
	// stale says that the hubs were put back since it was seen last.
	stale bool
	// ended says that its edge reported its end, system that its job runs on every
	// node.
	ended, system bool
	// canary says that it was placed beside what holds its place.
	canary bool
}

// ensure returns the value of a key, made where there is none.
func ensure[K comparable, V any](m map[K]*V, key K) *V {
	if m[key] == nil {
		m[key] = new(V)
	}
	return m[key]
}

// nodeStatuses calls f with each node that has a session by the entry, and its status after it.
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

func newFleetRegistry() fleetRegistry {
	return fleetRegistry{
		names: map[fleet.NodeID]string{}, jobs: map[fleet.JobID]*jobFact{}, allocs: map[fleet.AllocID]*allocFact{},
		places: map[string][]fleet.AllocID{},
	}
}

// edgeNameOf is an edge's name, as far as it is known.
func (c *fleetRegistry) edgeNameOf(id fleet.NodeID) string {
	if n := c.names[id]; n != "" {
		return n
	}
	return fleet.Short(id)
}

// recordNodeName notes which node an edge is. Of several that take themselves for one the
// first counts.
func (c *fleetRegistry) recordNodeName(id fleet.NodeID, name string) {
	if c.names[id] == "" && name != "" {
		c.names[id] = name
	}
}

func (c *fleetRegistry) recordJob(j *fleet.Job, now time.Duration) {
	c.jobs[j.ID] = &jobFact{job: j, changed: now}
	c.changed = max(c.changed, now)
}

func (c *fleetRegistry) recordEffects(e *Effects, now time.Duration) {
	for i := range e.Nodes {
		c.recordNodeName(e.Nodes[i].ID, e.Nodes[i].Name)
	}
	for i := range e.Allocs {
		c.recordAllocation(&e.Allocs[i], now)
	}
}

// recordHubView takes what a hub shows. One that lags behind the newest entry that is told may
// still have an older snapshot.
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

func (c *fleetRegistry) recordAllocation(a *fleet.Alloc, now time.Duration) {
	f := c.allocs[a.ID]
	if f == nil {
		f = &allocFact{first: now}
		c.allocs[a.ID] = f
		c.places[place(a)] = append(c.places[place(a)], a.ID)
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
		f.stopped = max(now, 1)
	}
}

// recordEndedAllocs takes what edges report of their allocations' ends.
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

// acceptOlderViews has hubs' views count that are older than what was seen.
func (c *fleetRegistry) acceptOlderViews() {
	c.markAllocsStale()
	for _, f := range c.jobs {
		f.unsure = true
	}
}

// markAllocsStale has all that is known of allocations wait for what tells of it anew.
func (c *fleetRegistry) markAllocsStale() {
	for _, f := range c.allocs {
		f.stale = true
	}
}

// keptAllocs is how long an allocation is remembered that no hub has any more.
const keptAllocs = time.Hour

// forgetEndedWork lets go of allocations that ended long ago, and of jobs that were stopped
// then and have none.
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

func (c *fleetRegistry) dropAllocation(id fleet.AllocID, f *allocFact) {
	delete(c.allocs, id)
	at := place(&f.alloc)
	c.places[at] = slices.DeleteFunc(c.places[at], func(other fleet.AllocID) bool { return other == id })
	if len(c.places[at]) == 0 {
		delete(c.places, at)
	}
}

// place names what one allocation alone may hold.
func place(a *fleet.Alloc) string { return a.Namespace + "/" + a.Name }
