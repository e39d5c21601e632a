package report

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"skerry/chaos/check"
	"skerry/fleet"
)

// States of lanes, beside those of nodes and allocations.
const (
	stateUp           = "up"
	stateLeads        = "leads"
	stateConnected    = "connected"
	stateDisconnected = "away"
	stateFenced       = "fenced"
	stateStopping     = "stopping" // the hub wants it gone; its edge has not confirmed
)

// cluster is what the hubs together say of nodes and allocations: of two hubs the
// one with the newer entry is right.
type cluster struct {
	names  map[fleet.NodeID]string
	nodes  map[fleet.NodeID]*nodeFact
	allocs map[fleet.AllocID]*allocFact
	newest fleet.Index // whose effects are known
	// Once all is in: allocations and the node's lane by edge.
	byEdge   map[string][]*allocFact
	statuses map[string]*stateSpans
}

// nodeFact is a node, as the hubs have it.
type nodeFact struct {
	status stateSpans
	index  fleet.Index // of the entry that said so
}

// allocFact is an allocation, as the hubs have it.
type allocFact struct {
	id       fleet.AllocID
	name     string
	job      fleet.JobID
	node     fleet.NodeID
	previous fleet.AllocID
	from, to time.Duration // first seen; its last end
	status   stateSpans
	desired  string
	client   string
	index    fleet.Index
	// ends are how it ended, and when: one that was given up for lost may come back,
	// or end once more. Empty: it is there.
	ends []mark
	back bool // it runs again after the last of ends
}

func newCluster() cluster {
	return cluster{names: map[fleet.NodeID]string{}, nodes: map[fleet.NodeID]*nodeFact{}, allocs: map[fleet.AllocID]*allocFact{}}
}

// resetIndexes forgets how new what is known is: hubs are put back to an older copy.
func (c *cluster) resetIndexes() {
	c.newest = 0
	for _, n := range c.nodes {
		n.index = 0
	}
	for _, a := range c.allocs {
		a.index = 0
	}
}

// applyEffects takes what an entry did. Only effects say that.
func (c *cluster) applyEffects(at time.Duration, a *check.Applied) {
	e := a.Effects
	if e == nil || a.Index <= c.newest {
		return
	}
	c.newest = a.Index
	for i := range e.Nodes {
		c.recordNodeName(&e.Nodes[i])
	}
	if e.Opened != nil {
		c.recordNodeStatus(at, e.Opened.Node, e.Opened.Status, a.Index)
	}
	for _, m := range e.Moved {
		c.recordNodeStatus(at, m.Node, m.Status, a.Index)
	}
	for i := range e.Batches {
		if b := &e.Batches[i]; b.Code == "" {
			c.recordBatchRows(at, b, a.Index)
		}
	}
	for i := range e.Allocs {
		c.recordAlloc(at, &e.Allocs[i], a.Index)
	}
}

// recordBatchRows takes the client statuses that an edge's rows bring.
func (c *cluster) recordBatchRows(at time.Duration, b *check.Batch, index fleet.Index) {
	c.recordNodeStatus(at, b.Node, b.Status, index)
	for i := range b.Rows {
		row := &b.Rows[i]
		f := c.allocs[row.Alloc]
		if f == nil || row.ClientStatus == "" || index < f.index {
			continue
		}
		f.index, f.client = index, row.ClientStatus
		f.updateStatus(at)
	}
}

// recordHubState takes a hub's whole state.
func (c *cluster) recordHubState(at time.Duration, h *check.Hub) {
	for i := range h.Nodes {
		n := &h.Nodes[i]
		c.recordNodeName(n)
		c.recordNodeStatus(at, n.ID, n.Status, max(h.Index, n.ModifyIndex))
	}
	for i := range h.Allocs {
		c.recordAlloc(at, &h.Allocs[i], max(h.Index, h.Allocs[i].ModifyIndex))
	}
}

func (c *cluster) recordNodeName(n *fleet.Node) {
	if n.Name != "" && c.names[n.ID] == "" {
		c.names[n.ID] = n.Name
	}
}

func (c *cluster) recordNodeStatus(at time.Duration, id fleet.NodeID, status fleet.NodeStatus, index fleet.Index) {
	f := c.nodes[id]
	if f == nil {
		f = &nodeFact{}
		c.nodes[id] = f
	}
	if index < f.index || status == "" {
		return
	}
	f.index = index
	f.status.setState(at, string(status))
}

func (c *cluster) recordAlloc(at time.Duration, a *fleet.Alloc, index fleet.Index) {
	f := c.allocs[a.ID]
	if f == nil {
		f = &allocFact{id: a.ID, from: at}
		c.allocs[a.ID] = f
	}
	if index < f.index {
		return
	}
	f.index = index
	f.name, f.job, f.node, f.previous = a.Name, a.JobID, a.NodeID, a.PreviousAllocation
	f.desired, f.client = a.DesiredStatus, a.ClientStatus
	f.updateStatus(at)
}

// updateStatus sets the lane to what is known. One that is over has no state: its end is
// a mark.
func (f *allocFact) updateStatus(at time.Duration) {
	f.back = false
	switch f.client {
	case fleet.ClientComplete, fleet.ClientFailed, fleet.ClientLost:
		f.status.setState(at, "")
		how := f.endSign()
		if n := len(f.ends); n == 0 || f.ends[n-1].sort != how {
			f.ends = append(f.ends, mark{at: at, sort: how, title: f.displayName() + ": " + how})
			f.to = at
		}
		return
	}
	f.back = len(f.ends) > 0
	if (f.client == fleet.ClientRunning || f.client == fleet.ClientPending) && f.isStopDesired() {
		f.status.setState(at, stateStopping)
	} else {
		f.status.setState(at, f.client)
	}
}

func (f *allocFact) isStopDesired() bool {
	return f.desired == fleet.DesiredStop || f.desired == fleet.DesiredEvict
}

// endSign is how an allocation that is over ended.
func (f *allocFact) endSign() string {
	switch {
	case f.client == fleet.ClientLost:
		return signLost
	case f.client == fleet.ClientFailed:
		return signFailed
	case f.isStopDesired():
		return signStopped
	}
	return signComplete
}

// hasEnded reports whether it ended and is not back.
func (f *allocFact) hasEnded() bool { return len(f.ends) > 0 && !f.back }

// closeAndGroupByEdge closes what is open at the run's end.
func (c *cluster) closeAndGroupByEdge(at time.Duration) {
	c.byEdge, c.statuses = map[string][]*allocFact{}, map[string]*stateSpans{}
	for _, id := range slices.Sorted(maps.Keys(c.nodes)) {
		status := &c.nodes[id].status
		status.close(at)
		if name := c.names[id]; c.statuses[name] == nil {
			c.statuses[name] = status
		}
	}
	for _, f := range c.allocs {
		if !f.hasEnded() {
			f.to = at
		}
		f.status.close(at)
		c.byEdge[c.names[f.node]] = append(c.byEdge[c.names[f.node]], f)
	}
	for _, facts := range c.byEdge {
		slices.SortFunc(facts, func(a, b *allocFact) int {
			return cmp.Or(cmp.Compare(a.job, b.job), cmp.Compare(a.from, b.from), cmp.Compare(a.id, b.id))
		})
	}
}

// allocsOfEdge returns an edge's allocations, by job and beginning.
func (c *cluster) allocsOfEdge(edge string) []*allocFact { return c.byEdge[edge] }

// edgeStatus returns the lane of an edge's node.
func (c *cluster) edgeStatus(edge string) *stateSpans {
	if l := c.statuses[edge]; l != nil {
		return l
	}
	return &stateSpans{}
}

// displayName names an allocation for people.
func (f *allocFact) displayName() string { return f.name + " " + fleet.Short(f.id) }
