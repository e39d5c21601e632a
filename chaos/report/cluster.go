package report

import (
	"maps"
	"slices"
	"time"

	"skerry/chaos/check"
	"skerry/fleet"
)

// States of hubs.
const (
	stateUp    = "up"
	stateLeads = "leads"
)

// How an allocation ended.
const (
	endComplete = fleet.ClientComplete
	endFailed   = fleet.ClientFailed
	endLost     = fleet.ClientLost
	endStopped  = "stopped"
)

// cluster is what the hubs together say of nodes and allocations: of two hubs the
// one with the newer entry is right.
type cluster struct {
	names    map[fleet.NodeID]string
	nodes    map[fleet.NodeID]*nodeFact
	allocs   map[fleet.AllocID]*allocFact
	newest   fleet.Index       // whose effects are known
	statuses map[string][]span // of nodes, by edge; once all is in
}

// nodeFact is a node, as the hubs have it.
type nodeFact struct {
	status stateSpans
	index  fleet.Index // of the entry that said so
}

// allocFact is an allocation, as the hubs have it. Its status is how it ended, too: one that was
// given up for lost may come back, or end once more.
type allocFact struct {
	fleet.Alloc
	from   time.Duration // first seen
	status stateSpans
	index  fleet.Index
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
		f.index, f.ClientStatus = index, row.ClientStatus
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
		f = &allocFact{from: at}
		c.allocs[a.ID] = f
	}
	if index < f.index {
		return
	}
	f.index, f.Alloc = index, *a
	f.Job = nil
	f.updateStatus(at)
}

func (f *allocFact) updateStatus(at time.Duration) {
	state := f.ClientStatus
	if state == fleet.ClientComplete && f.ServerTerminal() {
		state = endStopped
	}
	f.status.setState(at, state)
}

// closeSpans closes what is open at the run's end.
func (c *cluster) closeSpans(at time.Duration) {
	c.statuses = map[string][]span{}
	for _, id := range slices.Sorted(maps.Keys(c.nodes)) {
		status := &c.nodes[id].status
		status.close(at)
		if name := c.names[id]; c.statuses[name] == nil {
			c.statuses[name] = status.spans
		}
	}
	for _, f := range c.allocs {
		f.status.close(at)
	}
}
