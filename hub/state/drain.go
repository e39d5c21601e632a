package state

import (
	"maps"
	"time"

	"skerry/fleet"
)

// NodeDrain begins to empty a node, or changes how; without a Drain it ends that.
// A node that is emptied takes no new work, and afterwards neither, until somebody
// says so (MarkEligible, with an end).
type NodeDrain struct {
	command
	NodeID       fleet.NodeID
	Drain        *fleet.DrainStrategy // ForceDeadline and StartedAt set; nil: cancel
	MarkEligible bool
	Meta         map[string]string
	EvalSeed     string
	Now          int64
}

// DrainStep is what the drainer decided: allocations that are to go elsewhere, and
// nodes that are done. What changed since it looked is left out.
type DrainStep struct {
	command
	Migrate  []fleet.AllocID
	Done     []NodeDrained
	EvalSeed string
	Now      int64
}

// NodeDrained is a node that has nothing left to wait for. StartedAt and
// ForceDeadline are of the drain that was looked at: another one, or one that was
// given more time since, goes on.
type NodeDrained struct {
	NodeID        fleet.NodeID
	StartedAt     time.Time
	ForceDeadline time.Time
	Deadlined     bool // its deadline ended it
}

// NodePurge forgets a node that is gone for good, and gives up what it had. It is
// refused (conflict) where the node has a session: it would come right back.
type NodePurge struct {
	command
	NodeID   fleet.NodeID
	EvalSeed string
	Now      int64
}

// NodeEvaluate asks for an evaluation of every job that has something on a node,
// and of those that run on all nodes.
type NodeEvaluate struct {
	command
	NodeID   fleet.NodeID
	EvalSeed string
	Now      int64
}

// Subsystem of a node's events about its drain, and the detail of one that its
// deadline ended.
const (
	EventDrain         = "Drain"
	DetailDrainOverdue = "deadline_reached"
)

func (t *tx) nodeDrain(c NodeDrain) Result {
	n := t.ownNodeRow(c.NodeID)
	w := pendingEvals{seed: c.EvalSeed, now: c.Now}
	switch {
	case n == nil:
		return refused(fleet.CodeNotFound, "drain node %s: there is no such node", fleet.Short(c.NodeID))
	case c.Drain == nil:
		t.cancelDrain(n, c, &w)
	default:
		t.setDrainStrategy(n, c)
	}
	return Result{Evals: t.storePendingEvals(&w)}
}

// setDrainStrategy begins a drain, or changes one; the same once more changes nothing.
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
	n.LastDrain = &fleet.DrainMetadata{StartedAt: next.StartedAt, UpdatedAt: now, Status: fleet.DrainDraining, Meta: c.Meta}
	t.nodeChanged(n)
	n.addNodeEvent(EventDrain, message, c.Now, t.index)
	t.recordNodeEvent(n, "drain", message, c.Now)
}

// cancelDrain ends a drain that is not done. What is on its way elsewhere goes on.
func (t *tx) cancelDrain(n *nodeRow, c NodeDrain, w *pendingEvals) {
	if n.DrainStrategy != nil {
		n.endDrain(fleet.DrainCanceled, c.Now)
		n.LastDrain.Meta = c.Meta
		t.nodeChanged(n)
		n.addNodeEvent(EventDrain, "Node drain disabled", c.Now, t.index)
		t.recordNodeEvent(n, "drain canceled", "", c.Now)
	}
	if c.MarkEligible && n.SchedulingEligibility != fleet.NodeEligible {
		t.setEligibility(n, fleet.NodeEligible, w)
	}
}

// endDrain ends the drain of the entry's own copy of a node.
func (n *nodeRow) endDrain(status string, now int64) {
	last := fleet.DrainMetadata{}
	if n.LastDrain != nil {
		last = *n.LastDrain
	}
	last.Status, last.StartedAt, last.UpdatedAt = status, n.DrainStrategy.StartedAt, time.Unix(0, now).UTC()
	n.LastDrain, n.DrainStrategy = &last, nil
}

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

func (t *tx) nodePurge(c NodePurge) Result {
	n := nodeTable.currentRow(t, idKey(c.NodeID))
	switch {
	case n == nil:
		return refused(fleet.CodeNotFound, "purge node %s: there is no such node", fleet.Short(c.NodeID))
	case n.Status == fleet.NodeReady || n.Status == fleet.NodeInitializing:
		return Result{Err: fleet.Errorf(fleet.CodeConflict, "purge node %s: it is %s, and would come right back", fleet.Short(c.NodeID), n.Status).
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

// removeNode forgets a node; what it was last told is kept for as long as something
// of it is.
func (t *tx) removeNode(id fleet.NodeID, empty bool) {
	nodeTable.removeRow(t, idKey(id))
	nodeTable.markChanged(t)
	if empty {
		desiredTable.removeRow(t, idKey(id))
	}
}

func (t *tx) nodeEvaluate(c NodeEvaluate) Result {
	n := nodeTable.currentRow(t, idKey(c.NodeID))
	if n == nil {
		return refused(fleet.CodeNotFound, "evaluate node %s: there is no such node", fleet.Short(c.NodeID))
	}
	w := pendingEvals{seed: c.EvalSeed, now: c.Now}
	for _, id := range t.allocsOn(c.NodeID) {
		a := t.currentAlloc(id)
		w.requestEval(a.Namespace, a.JobID, fleet.TriggerNodeUpdate, &n.Node)
	}
	t.requestSystemEvals(&w, &n.Node)
	return Result{Evals: t.storePendingEvals(&w)}
}
