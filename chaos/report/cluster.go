package report

import (
	"maps"
	"slices"
	"time"

	"skerry/chaos/check"
	"skerry/fleet"
)

// States of a hub in the timeline.
const (
	stateUp    = "up"
	stateLeads = "leads"
)

// Ends of an allocation.
const (
	endComplete = fleet.ClientComplete
	endFailed   = fleet.ClientFailed
	endLost     = fleet.ClientLost
	endStopped  = "stopped"
)

// cluster is the state of nodes and allocations over time, gathered from all hubs. Where two hubs differ, the
// one with the newer entry counts.
type cluster struct {
	names    map[fleet.NodeID]string
	nodes    map[fleet.NodeID]*nodeFact
	allocs   map[fleet.AllocID]*allocFact
	newest   fleet.Index       // newest entry whose effects are known
	statuses map[string][]span // of nodes, by edge name; closeSpans sets it
}

// nodeFact is the status of a node over time.
type nodeFact struct {
	status stateSpans
	index  fleet.Index // of the entry that set the last status
}

// allocFact is an allocation and its status over time. Its last status may be its end; a lost allocation may
// still come back or end in another way.
type allocFact struct {
	fleet.Alloc
	from   time.Duration // when it was first observed
	status stateSpans
	index  fleet.Index // of the entry that set the last status
}

// newCluster returns a cluster without nodes and allocations.
func newCluster() cluster {
	return cluster{names: map[fleet.NodeID]string{}, nodes: map[fleet.NodeID]*nodeFact{}, allocs: map[fleet.AllocID]*allocFact{}}
}

// resetIndexes forgets the indexes of all states, so that states with lower indexes count again: hubs are put
// back to an older copy.
func (c *cluster) resetIndexes() {
	c.newest = 0
	for _, n := range c.nodes {
		n.index = 0
	}
	for _, a := range c.allocs {
		a.index = 0
	}
}

// applyEffects records the changes of an entry at a time. An entry that is not newer than the last one, or has
// no effects, is ignored.
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

// recordBatchRows records the node's status and the allocations' client statuses that a batch of rows sets.
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

// recordHubState records all nodes and allocations that a hub shows.
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

// recordNodeName records the name of a node. The first name stays.
func (c *cluster) recordNodeName(n *fleet.Node) {
	if n.Name != "" && c.names[n.ID] == "" {
		c.names[n.ID] = n.Name
	}
}

// recordNodeStatus records that a node has a status from a time on, unless a newer entry set its status
// already.
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

// recordAlloc records an allocation and its status from a time on, unless a newer entry set it already. It does
// not keep the job.
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

// updateStatus starts a span with the present status at a time. A complete allocation that hubs had stopped has
// the status "stopped".
func (f *allocFact) updateStatus(at time.Duration) {
	state := f.ClientStatus
	if state == fleet.ClientComplete && f.ServerTerminal() {
		state = endStopped
	}
	f.status.setState(at, state)
}

// closeSpans ends all open spans at the run's end, and fills statuses.
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
