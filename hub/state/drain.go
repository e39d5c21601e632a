package state

import (
	"maps"
	"time"

	"skerry/fleet"
)

// NodeDrain starts the drain of a node, or changes its strategy; without a Drain it cancels the drain. A
// drained node takes no new allocations, also after the drain, until it is marked eligible. MarkEligible
// does so when the drain is canceled.
type NodeDrain struct {
	command
	NodeID       fleet.NodeID
	Drain        *fleet.DrainStrategy // with ForceDeadline and StartedAt; nil: cancel the drain
	MarkEligible bool
	Meta         map[string]string
	Accessor     string // of the token that asks for it; "": there is none, or an older release wrote the entry
	EvalSeed     string
	Now          int64
}

// DrainStep flags allocations of draining nodes for migration, and completes drains. Allocations and nodes
// that have changed since the drainer read them are skipped.
type DrainStep struct {
	command
	Migrate  []fleet.AllocID
	Done     []NodeDrained
	EvalSeed string
	Now      int64
}

// NodeDrained names a drain to complete. StartedAt and ForceDeadline are those that the drainer saw: if
// the node has another drain or another deadline by now, its drain goes on.
type NodeDrained struct {
	NodeID        fleet.NodeID
	StartedAt     time.Time
	ForceDeadline time.Time
	Deadlined     bool // the drain ends because its deadline was reached
}

// NodePurge removes the record of a node. Jobs with allocations there are evaluated, and replace them. It
// is refused (conflict) if the node has a session, because its edge would register it again.
type NodePurge struct {
	command
	NodeID   fleet.NodeID
	EvalSeed string
	Now      int64
}

// NodeEvaluate stores an evaluation for every job with an allocation on a node, and for every job that
// runs on all nodes.
type NodeEvaluate struct {
	command
	NodeID   fleet.NodeID
	EvalSeed string
	Now      int64
}

// EventDrain is the subsystem of a node's events about its drain. DetailDrainOverdue is the detail
// of the event that a drain ended by its deadline.
const (
	EventDrain         = "Drain"
	DetailDrainOverdue = "deadline_reached"
)

// nodeDrain applies the command NodeDrain: it starts the drain of a node, changes its strategy, or cancels
// it.
func (t *tx) nodeDrain(c NodeDrain) Result {
	n := t.ownNodeRow(c.NodeID)
	w := pendingEvals{seed: c.EvalSeed, now: c.Now}
	switch {
	case n == nil:
		return refusal(fleet.CodeNotFound, "drain node %s: there is no such node", fleet.Short(c.NodeID))
	case c.Drain == nil:
		t.cancelDrain(n, c, &w)
	default:
		t.setDrainStrategy(n, c)
	}
	return Result{Evals: t.storePendingEvals(&w)}
}

// setDrainStrategy starts a drain or changes its strategy, and makes the node ineligible. The same
// strategy again changes nothing.
func (t *tx) setDrainStrategy(n *nodeRow, c NodeDrain) {
	now := time.Unix(0, c.Now).UTC()
	next, message := *c.Drain, "Node drain strategy set"
	if old := n.DrainStrategy; old != nil {
		if old.Equal(&next) && maps.Equal(n.LastDrain.Meta, c.Meta) {
			return
		}
		next.StartedAt, message = old.StartedAt, "Node drain strategy updated"
	}
	n.DrainStrategy = &next
	n.SchedulingEligibility = fleet.NodeIneligible
	n.LastDrain = &fleet.DrainMetadata{StartedAt: next.StartedAt, UpdatedAt: now, Status: fleet.DrainDraining, AccessorID: c.Accessor, Meta: c.Meta}
	t.nodeChanged(n)
	n.addNodeEvent(EventDrain, message, c.Now, t.index)
	t.recordNodeEvent(n, "drain", message, c.Now)
}

// cancelDrain cancels the drain of a node, if it has one, and makes the node eligible if c says so.
// Migrations that were asked for go on.
func (t *tx) cancelDrain(n *nodeRow, c NodeDrain, w *pendingEvals) {
	if n.DrainStrategy != nil {
		n.endDrain(fleet.DrainCanceled, c.Now)
		n.LastDrain.AccessorID, n.LastDrain.Meta = c.Accessor, c.Meta
		t.nodeChanged(n)
		n.addNodeEvent(EventDrain, "Node drain disabled", c.Now, t.index)
		t.recordNodeEvent(n, "drain canceled", "", c.Now)
	}
	if c.MarkEligible && n.SchedulingEligibility != fleet.NodeEligible {
		t.setEligibility(n, fleet.NodeEligible, w)
	}
}

// endDrain removes the node's drain strategy and records status as the outcome of its last drain.
func (n *nodeRow) endDrain(status string, now int64) {
	last := fleet.DrainMetadata{}
	if n.LastDrain != nil {
		last = *n.LastDrain
	}
	last.Status, last.StartedAt, last.UpdatedAt = status, n.DrainStrategy.StartedAt, time.Unix(0, now).UTC()
	n.LastDrain, n.DrainStrategy = &last, nil
}

// drainStep applies the command DrainStep: it flags allocations of draining nodes for migration, stores
// evaluations of their jobs, and completes drains.
func (t *tx) drainStep(c DrainStep) Result {
	w := pendingEvals{seed: c.EvalSeed, now: c.Now}
	for _, id := range c.Migrate {
		a := t.currentAlloc(id)
		if a == nil || a.Terminal() || a.DesiredTransition.Migrate {
			continue
		}
		if n := nodeTable.currentRow(t, idKey(a.NodeID)); n == nil || n.DrainStrategy == nil {
			continue
		}
		t.changeAlloc(id, c.Now, func(a *allocRow) {
			a.DesiredTransition.Migrate = true
			a.history.appendEntries(t.newAllocHubEvent(a, "drained", "its node is being drained", c.Now))
		})
		w.requestEval(a.Namespace, a.JobID, fleet.TriggerNodeDrain, nil)
	}
	for _, d := range c.Done {
		t.completeDrain(d, c.Now)
	}
	return Result{Evals: t.storePendingEvals(&w)}
}

// completeDrain ends a drain whose node has nothing left to migrate. It does nothing if the node has
// another drain.
func (t *tx) completeDrain(d NodeDrained, now int64) {
	known := nodeTable.currentRow(t, idKey(d.NodeID))
	if known == nil || known.DrainStrategy == nil ||
		!known.DrainStrategy.StartedAt.Equal(d.StartedAt) || !known.DrainStrategy.ForceDeadline.Equal(d.ForceDeadline) {
		return
	}
	n := t.ownNodeRow(d.NodeID)
	n.endDrain(fleet.DrainComplete, now)
	t.nodeChanged(n)
	why := ""
	n.addNodeEvent(EventDrain, "Node drain complete", now, t.index)
	if d.Deadlined {
		n.Events[len(n.Events)-1].Details = map[string]string{DetailDrainOverdue: "true"}
		why = "its deadline was reached"
	}
	t.recordNodeEvent(n, "drain complete", why, now)
}

// nodePurge applies the command NodePurge: it removes a node without a session, and stores evaluations of
// the jobs with allocations there.
func (t *tx) nodePurge(c NodePurge) Result {
	n := nodeTable.currentRow(t, idKey(c.NodeID))
	switch {
	case n == nil:
		return refusal(fleet.CodeNotFound, "purge node %s: there is no such node", fleet.Short(c.NodeID))
	case n.Status == fleet.NodeReady || n.Status == fleet.NodeInitializing:
		return Result{Err: fleet.Errorf(fleet.CodeConflict, "purge node %s: it is %s, and its edge would register it again", fleet.Short(c.NodeID), n.Status).
			WithHint("stop its agent first, and wait until the node is down or disconnected")}
	}
	w := pendingEvals{seed: c.EvalSeed, now: c.Now}
	allocs := t.allocsOn(c.NodeID)
	for _, id := range allocs {
		if a := t.currentAlloc(id); !a.ClientTerminal() {
			w.requestEval(a.Namespace, a.JobID, fleet.TriggerNodeUpdate, &n.Node)
		}
	}
	t.removeNode(n.ID, len(allocs) == 0)
	return Result{Evals: t.storePendingEvals(&w)}
}

// removeNode removes a node. empty says that it has no allocations; otherwise its DesiredIndex is kept.
func (t *tx) removeNode(id fleet.NodeID, empty bool) {
	if n := nodeTable.currentRow(t, idKey(id)); n != nil {
		t.noteSiteChange(&n.Node)
	}
	nodeTable.removeRow(t, idKey(id))
	nodeTable.markChanged(t)
	if empty {
		desiredTable.removeRow(t, idKey(id))
	}
}

// nodeEvaluate applies the command NodeEvaluate: it stores evaluations of all jobs with allocations on a
// node, and of those that run on every node.
func (t *tx) nodeEvaluate(c NodeEvaluate) Result {
	n := nodeTable.currentRow(t, idKey(c.NodeID))
	if n == nil {
		return refusal(fleet.CodeNotFound, "evaluate node %s: there is no such node", fleet.Short(c.NodeID))
	}
	w := pendingEvals{seed: c.EvalSeed, now: c.Now}
	for _, id := range t.allocsOn(c.NodeID) {
		a := t.currentAlloc(id)
		w.requestEval(a.Namespace, a.JobID, fleet.TriggerNodeUpdate, &n.Node)
	}
	t.requestSystemEvals(&w, &n.Node)
	return Result{Evals: t.storePendingEvals(&w)}
}
