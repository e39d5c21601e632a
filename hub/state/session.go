package state

import (
	"fmt"
	"math"
	"time"

	"skerry/fleet"
)

// sessionOpen applies the command SessionOpen: it gives the node a new epoch, and makes it ready if its
// history is applied, else initializing. A refused command changes nothing.
func (t *tx) sessionOpen(c SessionOpen) Result {
	known := nodeTable.currentRow(t, idKey(c.NodeID))
	if res := t.refuseRevoked("open a session", c.NodeID); res != nil {
		return *res
	}
	switch {
	case known == nil && c.Node == nil:
		return refusal(fleet.CodeNotFound, "open a session of node %s: it is not registered", fleet.Short(c.NodeID))
	case c.Node != nil && c.Node.ID != c.NodeID:
		return refusal(fleet.CodeInvalid, "open a session of node %s: it describes node %s",
			fleet.Short(c.NodeID), fleet.Short(c.Node.ID))
	case known != nil && c.Session <= known.Session:
		res := refusal(fleet.CodeStaleSession, "open session %d of node %s: it had session %d already",
			c.Session, fleet.Short(c.NodeID), known.Session)
		res.Session = sessionResult(&known.Node)
		return res
	case known != nil && c.Follows > 0 && known.Epoch != c.Follows && known.Instance != c.Instance:
		return refusal(fleet.CodeConflict, "open a session of node %s: the session of epoch %d, which was over, is not the newest: that has epoch %d",
			fleet.Short(c.NodeID), c.Follows, known.Epoch)
	}
	w := pendingEvals{seed: c.EvalSeed, now: c.Now}
	if c.Node != nil {
		t.storeNodeDescription(c.Node, &w)
	}
	n := t.ownNodeRow(c.NodeID)
	stillReady := n.Status == fleet.NodeReady && n.DisconnectedAt == 0
	away := n.Status == fleet.NodeDisconnected || n.Status == fleet.NodeDown
	n.Epoch++
	n.Session, n.Instance, n.BootID = c.Session, c.Instance, c.BootID
	n.Hub, n.JournalHead, n.DisconnectedAt = c.Hub, c.Head, 0
	n.Orphans = nil // the edge reports its orphans again in every session
	n.Newcomer, n.SessionOver = nil, false
	n.Readmit = n.Readmit && c.Lost == ""
	if c.Lost != "" {
		n.JournalHead = n.Applied + 1 // the edge will send at least the row that records the loss
	}
	if c.Addr != "" {
		n.Address = c.Addr
	}
	t.nodeChanged(n)
	t.recordNodeEvent(n, "session", fmt.Sprintf("epoch %d on hub %s from %s", n.Epoch, c.Hub, c.Addr), c.Now)
	if c.Lost != "" {
		n.addNodeEvent("Edge", "Journal damaged: "+c.Lost, c.Now, t.index)
		t.recordNodeEvent(n, "journal damaged", c.Lost, c.Now)
	}
	if !stillReady || c.Lost != "" {
		t.admitNodeSession(n, away, c.Lost, &w)
	}
	if n.Status == fleet.NodeReady { // else its jobs are evaluated once its history is in
		t.storePendingEvals(&w)
	}
	return Result{Session: sessionResult(&n.Node)}
}

// sessionResult returns the node's state for the answer to a SessionOpen.
func sessionResult(n *fleet.Node) *SessionResult {
	return &SessionResult{Epoch: n.Epoch, Status: n.Status, Applied: n.Applied, Session: n.Session, ChainHash: n.ChainHash}
}

// admitNodeSession handles the new session of a node that is not ready, or that has lost rows: the node
// becomes ready if its history is applied, else initializing. away says that the node was disconnected or
// down.
func (t *tx) admitNodeSession(n *nodeRow, away bool, lost string, w *pendingEvals) {
	if away || n.lastSessionOpen == 0 {
		// A node that lost its link again before its history was applied keeps the older
		// index: the changes that it reported in between still need an evaluation.
		n.lastSessionOpen = t.index
	}
	if away {
		n.addNodeEvent("Cluster", "Node reconnected", w.now, t.index)
		t.recordOnAllocs(n, fleet.EventNodeReconnected, fmt.Sprintf("epoch %d", n.Epoch), w.now)
	}
	if n.Applied >= n.JournalHead {
		t.markNodeReady(n, w)
		return
	}
	why := fmt.Sprintf("waiting for its history: row %d of %d", n.Applied, n.JournalHead)
	if lost != "" {
		why = "waiting for its journal to go on: " + lost
	}
	t.setNodeStatus(n, fleet.NodeInitializing, why, w.now)
}

// markNodeReady makes a node ready whose history is applied. Its unknown allocations get the status that
// the edge reported, and the jobs that need a decision get one evaluation each.
func (t *tx) markNodeReady(n *nodeRow, w *pendingEvals) {
	t.setNodeStatus(n, fleet.NodeReady, "", w.now)
	t.recordNodeEvent(n, "ready", fmt.Sprintf("history in up to row %d", n.Applied), w.now)
	t.recordOnAllocs(n, "node ready", "", w.now)
	for _, id := range t.allocsOn(n.ID) {
		a := t.currentAlloc(id)
		if a.ClientStatus == fleet.ClientUnknown {
			a = t.changeAlloc(id, w.now, func(a *allocRow) { a.ClientStatus = effectiveStatus(&a.Alloc, true) })
		}
		trigger := fleet.TriggerNodeUpdate
		switch {
		case a.ModifyIndex > n.lastSessionOpen && t.isReplacementWaiting(&a.Alloc):
			trigger = fleet.TriggerRetryFailedAlloc
		case !t.needsEvaluation(&a.Alloc, n.lastSessionOpen):
			continue
		case a.NeedsToReconnect():
			trigger = fleet.TriggerReconnect
		}
		w.requestEval(a.Namespace, a.JobID, trigger, &n.Node)
	}
	t.requestSystemEvals(w, &n.Node)
}

// nodeStatus applies the command NodeStatus: it makes nodes that missed their deadline disconnected or
// down. Result.Moved names the nodes whose status changed.
func (t *tx) nodeStatus(c NodeStatus) Result {
	var res Result
	w := pendingEvals{seed: c.EvalSeed, now: c.Now}
	for _, m := range c.Nodes {
		if t.handleMissedHeartbeat(m, &w) {
			res.Moved = append(res.Moved, m.NodeID)
		}
	}
	t.storePendingEvals(&w)
	return res
}

// handleMissedHeartbeat makes a node disconnected or down, and adds evaluations of its jobs to w. It
// reports whether the status changed.
func (t *tx) handleMissedHeartbeat(m NodeMissed, w *pendingEvals) bool {
	known := nodeTable.currentRow(t, idKey(m.NodeID))
	if known == nil || known.Epoch != m.Epoch || known.Status == fleet.NodeDown {
		return false
	}
	lives := t.hasKeptAlloc(known, time.Unix(0, w.now))
	if known.Status == fleet.NodeDisconnected && lives {
		return false
	}
	since := fleet.Index(math.MaxUint64)
	if known.Status == fleet.NodeInitializing {
		since = known.lastSessionOpen // changes that it reported since then have not been evaluated
	}
	n := t.ownNodeRow(m.NodeID)
	status := fleet.NodeDown
	if lives {
		status = fleet.NodeDisconnected
	}
	n.SessionOver = n.SessionOver || m.SessionOver
	said := hubEvent{Event: string(status), Message: m.Reason, Node: n.ID, Time: w.now}
	if n.DisconnectedAt == 0 {
		n.DisconnectedAt = lastContact(&n.Node, m.LastHeard, w.now)
		said.Since = n.DisconnectedAt
		n.addNodeEvent("Cluster", "Node heartbeat missed", w.now, t.index)
	} else {
		n.addNodeEvent("Cluster", "Node is down: nothing waits for it any more", w.now, t.index)
	}
	t.setNodeStatus(n, status, m.Reason, w.now)
	t.addNodeHistory(n, &said)
	of := said
	of.Event = "node " + said.Event
	t.addAllocHistory(n, &of)
	t.markStoppingUnknown(n, m.Reason, w.now)
	for _, id := range t.allocsOn(n.ID) {
		if a := t.currentAlloc(id); t.needsEvaluation(&a.Alloc, since) {
			w.requestEval(a.Namespace, a.JobID, fleet.TriggerNodeUpdate, &n.Node)
		}
	}
	return true
}

// markStoppingUnknown makes allocations of a disconnected or down node unknown that were told to stop:
// nobody knows whether they have stopped. In a node pool with Nomad's rules they stay as they are, and an
// evaluation makes those of a down node lost.
func (t *tx) markStoppingUnknown(n *nodeRow, why string, now int64) {
	for _, id := range t.allocsOn(n.ID) {
		a := t.currentAlloc(id)
		if a.ClientStatus == fleet.ClientUnknown || !t.isStoppingOutOfReach(&a.Alloc, n) {
			continue
		}
		t.changeAlloc(id, now, func(a *allocRow) {
			a.ClientStatus = fleet.ClientUnknown
			a.history.appendEntries(t.newAllocHubEvent(a, fleet.ClientUnknown, why, now))
		})
	}
}

// isStoppingOutOfReach reports whether an allocation was told to stop, has not confirmed that, and is
// unknown until its node returns: n is away, and its node pool does not have Nomad's rules. One of which its
// edge has never said anything is lost with a down node, so that nothing keeps the records of both.
func (t *tx) isStoppingOutOfReach(a *fleet.Alloc, n *nodeRow) bool {
	if !isAway(n.Status) || !a.ServerTerminal() || a.ClientTerminal() || n.Status == fleet.NodeDown && a.ReportedStatus == "" {
		return false
	}
	p := t.poolOf(n.NodePool)
	return p == nil || p.DefaultDisconnect != fleet.DisconnectNomad
}

// lastContact returns when the node was last in contact: heard, but not before its last change of status,
// and not after now. If heard is 0 it returns now. Times are UnixNano.
func lastContact(n *fleet.Node, heard, now int64) int64 {
	if heard == 0 {
		return now
	}
	return min(max(heard, n.StatusUpdatedAt*int64(time.Second)), now)
}

// hasKeptAlloc reports whether a node has an allocation that is to be kept while the node has no link.
// Then the node becomes disconnected instead of down.
func (t *tx) hasKeptAlloc(n *nodeRow, now time.Time) bool {
	for _, id := range t.allocsOn(n.ID) {
		a := t.currentAlloc(id)
		alive := a.ClientStatus == fleet.ClientRunning || a.ClientStatus == fleet.ClientUnknown
		if alive && !a.ServerTerminal() && t.keepsAbsentAlloc(&a.Alloc, n.NodePool, now) {
			return true
		}
	}
	return false
}

// keepsAbsentAlloc reports whether an allocation is to be kept while its node is away: until lost_after if
// its group sets that, for good if the group forbids a replacement, else by the default of the node pool.
func (t *tx) keepsAbsentAlloc(a *fleet.Alloc, pool string, now time.Time) bool {
	var d *fleet.Disconnect
	if g := a.Group(); g != nil {
		d = g.Disconnect
	}
	switch {
	case d != nil && d.LostAfter != nil && *d.LostAfter > 0:
		since := a.LastUnknown()
		return since.IsZero() || now.Sub(since) < *d.LostAfter
	case d != nil && d.Replace != nil && !*d.Replace:
		return true
	}
	p := t.poolOf(pool)
	return p == nil || p.DefaultDisconnect != fleet.DisconnectNomad
}

// needsEvaluation reports whether the job of an allocation must be evaluated because the node's status
// changed. A change of the allocation up to the entry since was evaluated before.
func (t *tx) needsEvaluation(a *fleet.Alloc, since fleet.Index) bool {
	jobType := fleet.JobTypeService
	if a.Job != nil {
		jobType = a.Job.Type
	}
	switch {
	case jobType == fleet.JobTypeSysBatch:
		return !a.ClientTerminal()
	case jobType == fleet.JobTypeSystem && a.ClientTerminal():
		// A stopped allocation that is not replaced yet is deferred with its node.
		row := jobTable.currentRow(t, jobKeyOf(a.Namespace, a.JobID))
		return row != nil && !row.job.Stop && (!a.NoLongerWanted() || a.NextAllocation == "")
	case jobType == fleet.JobTypeBatch && a.ClientTerminal():
		return !a.NoLongerWanted() && (a.NeedsToReconnect() || a.ModifyIndex > since)
	}
	return !a.NoLongerWanted() || !a.ClientTerminal()
}
