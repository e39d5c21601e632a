package state

import (
	"iter"
	"slices"

	"skerry/fleet"
)

// currentAlloc returns the allocation as this entry has left it so far, or nil. The caller must not change
// it.
func (t *tx) currentAlloc(id fleet.AllocID) *allocRow { return allocTable.currentRow(t, idKey(id)) }

// ownAlloc returns a copy of the allocation that this entry may change in place, or nil. Fields that
// summaries count (statuses, resources) may only be changed through changeAlloc.
func (t *tx) ownAlloc(id fleet.AllocID) *allocRow {
	return allocTable.ownRow(t, idKey(id), func(r *allocRow) *allocRow {
		c := *r
		return &c
	})
}

// allocsOn returns the ids of the node's allocations, without those that this entry placed.
func (t *tx) allocsOn(id fleet.NodeID) []fleet.AllocID {
	if r := nodeSummaryTable.currentRow(t, idKey(id)); r != nil {
		return r.allocs
	}
	return nil
}

// changeAlloc calls change with the entry's copy of an existing allocation, and updates all that depends
// on it: its modify indexes, the summaries, its deployment, the catalogue of services, and the freed
// capacity. A retired allocation that runs again gets the desired status stop. It returns the changed
// allocation.
func (t *tx) changeAlloc(id fleet.AllocID, now int64, change func(*allocRow)) *allocRow {
	a := t.ownAlloc(id)
	before := a.Alloc
	change(a)
	if a.Retired && !a.ClientTerminal() && !a.ServerTerminal() {
		a.DesiredStatus, a.DesiredDescription = fleet.DesiredStop, "it had ended, and runs again"
	}
	a.ModifyIndex, a.ModifyTime = t.index, now
	if a.DesiredStatus != before.DesiredStatus || a.Retired != before.Retired || a.JobHash != before.JobHash || a.JobVersion != before.JobVersion ||
		a.DeploymentID != before.DeploymentID || !slices.Equal(a.StopWindows, before.StopWindows) ||
		a.ServerTerminal() && a.DesiredTransition.NoShutdownDelay != before.DesiredTransition.NoShutdownDelay {
		a.SetFormerRunsAlone(before.RunsAloneFor(receivedBy(nodeTable.currentRow(t, idKey(a.NodeID)))))
		a.AllocModifyIndex = t.index
		t.noteDesiredChange(a.NodeID)
	}
	if a.Job != before.Job {
		t.addBodyRefs(a.Job, 1)
		t.addBodyRefs(before.Job, -1)
	}
	t.updateSummaries(&before, &a.Alloc)
	t.countInDeployment(&before, &a.Alloc)
	t.noteServiceChange(&before, &a.Alloc)
	allocTable.markChanged(t)
	if before.OccupiesNode() && !a.OccupiesNode() {
		t.noteFreedNode(a.NodeID)
		t.dropMissingDevices(a.NodeID, a.ID)
	}
	return a
}

// receivedBy returns the newest desired index that the edge of a node has; 0 for a node that is not known.
func receivedBy(n *nodeRow) fleet.Index {
	if n == nil {
		return 0
	}
	return n.Received
}

// newAlloc stores a new allocation, whose Job must be set, and counts it in the summaries and its
// deployment.
func (t *tx) newAlloc(a fleet.Alloc, now int64) *allocRow {
	a.CreateIndex, a.ModifyIndex, a.AllocModifyIndex = t.index, t.index, t.index
	a.CreateTime, a.ModifyTime = now, now
	row := &allocRow{Alloc: a}
	allocTable.putRow(t, row)
	t.addBodyRefs(a.Job, 1)
	t.updateSummaries(nil, &row.Alloc)
	t.countInDeployment(nil, &row.Alloc)
	t.noteDesiredChange(a.NodeID)
	allocTable.markChanged(t)
	return row
}

// dropAlloc removes an allocation from the state, and from all counts.
func (t *tx) dropAlloc(a *allocRow) {
	allocTable.removeRow(t, idKey(a.ID))
	t.addBodyRefs(a.Job, -1)
	t.updateSummaries(&a.Alloc, nil)
	t.countInDeployment(&a.Alloc, nil)
	t.noteServiceChange(&a.Alloc, nil)
	allocTable.markChanged(t)
}

// noteDesiredChange sets the node's DesiredIndex to this entry, so that a hub sends its edge the new
// desired state.
func (t *tx) noteDesiredChange(id fleet.NodeID) {
	desiredTable.putRow(t, &desiredRow{id, t.index})
}

// noteFreedNode records that a node has new free capacity, which unblocks evaluations. It does nothing if
// the node is not schedulable.
func (t *tx) noteFreedNode(id fleet.NodeID) {
	if n := nodeTable.currentRow(t, idKey(id)); n != nil && n.Schedulable() {
		t.noteFreedClass(&n.Node)
	}
}

// allocStop applies the command AllocStop: it flags allocations to be migrated and stores an evaluation
// for each job. The plan of that evaluation stops them.
func (t *tx) allocStop(c AllocStop) Result {
	w := pendingEvals{seed: c.EvalSeed, now: c.Now}
	for _, id := range c.Allocs {
		a := t.currentAlloc(id)
		if a == nil {
			return refusal(fleet.CodeNotFound, "stop allocation %s: there is no such allocation", fleet.Short(id))
		}
		if a.Terminal() && !a.AwaitsWindow() {
			if c.NoShutdownDelay {
				t.skipShutdownDelay(a, c.Now)
			}
			continue
		}
		t.changeAlloc(id, c.Now, func(a *allocRow) {
			a.DesiredTransition.Migrate = true
			a.DesiredTransition.Reschedule = a.DesiredTransition.Reschedule || c.Reschedule
			a.DesiredTransition.NoShutdownDelay = a.DesiredTransition.NoShutdownDelay || c.NoShutdownDelay
			a.history.appendEntries(t.newAllocHubEvent(a, "stop asked for", "", c.Now))
		})
		w.requestEval(a.Namespace, a.JobID, fleet.TriggerAllocStop, nil)
	}
	var res Result
	if ids := t.storePendingEvals(&w); len(ids) > 0 {
		res.Eval = ids[0]
	}
	return res
}

// skipShutdownDelay tells the allocation's edge to leave out the shutdown_delay, even if the stop was sent
// before. It does nothing to an allocation that has ended.
func (t *tx) skipShutdownDelay(a *allocRow, now int64) {
	if a.ClientTerminal() || a.DesiredTransition.NoShutdownDelay {
		return
	}
	t.changeAlloc(a.ID, now, func(a *allocRow) {
		a.DesiredTransition.NoShutdownDelay = true
		if a.ServerTerminal() {
			a.history.appendEntries(t.newAllocHubEvent(a, "stop without shutdown_delay asked for", "", now))
		}
	})
}

// newAllocHubEvent returns a history entry of this hub for an allocation. The caller appends it to the
// history.
func (t *tx) newAllocHubEvent(a *allocRow, event, message string, now int64) historyEntry {
	return historyEntry{index: t.index, vital: true, hubEvent: &hubEvent{Event: event, Message: message, Node: a.NodeID, Time: now}}
}

// Alloc returns an allocation; ok is false if there is none.
func (v *View) Alloc(id fleet.AllocID) (*fleet.Alloc, bool) {
	row, ok := allocTable.watchRow(v, idKey(id))
	if !ok {
		return nil, false
	}
	return &row.Alloc, true
}

// Allocs iterates over a namespace's allocations ("*": all namespaces) whose id starts with prefix.
func (v *View) Allocs(ns, prefix string) iter.Seq[*fleet.Alloc] {
	rows := allocTable.watchTable(v, indexID, []byte(prefix))
	return func(yield func(*fleet.Alloc) bool) {
		for r := range rows {
			if (ns == "*" || r.Namespace == ns) && !yield(&r.Alloc) {
				return
			}
		}
	}
}

// AllocsByJob iterates over a job's allocations. The job itself may be purged.
func (v *View) AllocsByJob(ns string, id fleet.JobID) iter.Seq[*fleet.Alloc] {
	r, ok := jobSummaryTable.watchRow(v, jobKeyOf(ns, id))
	if !ok {
		return v.allocList(nil)
	}
	return v.allocList(r.allocs)
}

// AllocsByNode iterates over a node's allocations.
func (v *View) AllocsByNode(id fleet.NodeID) iter.Seq[*fleet.Alloc] {
	r, ok := nodeSummaryTable.watchRow(v, idKey(id))
	if !ok {
		return v.allocList(nil)
	}
	return v.allocList(r.allocs)
}

// AllocsByEval iterates over the allocations that an evaluation placed. It is empty once the evaluation is
// removed.
func (v *View) AllocsByEval(id fleet.EvalID) iter.Seq[*fleet.Alloc] {
	e, ok := v.Eval(id)
	if !ok {
		return v.allocList(nil)
	}
	job := v.AllocsByJob(e.Namespace, e.JobID)
	return func(yield func(*fleet.Alloc) bool) {
		for a := range job {
			if a.EvalID == id && !yield(a) {
				return
			}
		}
	}
}

// allocList iterates over the allocations ids without watching them: the caller watches their summary,
// which changes whenever one of them does.
func (v *View) allocList(ids []fleet.AllocID) iter.Seq[*fleet.Alloc] {
	return func(yield func(*fleet.Alloc) bool) {
		l := newLookup()
		for _, id := range ids {
			l.key = appendKeyPart(l.key[:0], string(id))
			if row := allocTable.lookUpRow(v.txn, l); row != nil && !yield(&row.Alloc) {
				return
			}
		}
	}
}
