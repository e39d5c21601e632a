package state

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"skerry/fleet"
	"skerry/syncproto"
)

// allocUpdates applies the command AllocUpdates: it applies journal rows of edges. Each batch is applied
// or refused as a whole, independently of the others.
// The report of an edge is always stored (ReportedStatus, TaskStates, history). ClientStatus follows it
// with two exceptions: unknown stays until the node is ready again, and lost stays until the edge reports
// that the allocation has ended.
func (t *tx) allocUpdates(c AllocUpdates) Result {
	w := pendingEvals{seed: c.EvalSeed, now: c.Now}
	res := Result{Updates: make([]BatchResult, 0, len(c.Batches))}
	for _, b := range c.Batches {
		res.Updates = append(res.Updates, t.applyNodeBatch(b, &w))
	}
	t.storePendingEvals(&w)
	return res
}

// applyNodeBatch applies the batch of one node, and adds the evaluations that it causes to w.
func (t *tx) applyNodeBatch(b NodeRows, w *pendingEvals) BatchResult {
	known := nodeTable.currentRow(t, idKey(b.NodeID))
	if known == nil {
		return BatchResult{Code: fleet.CodeNotFound, Message: fmt.Sprintf("node %s is not registered", fleet.Short(b.NodeID))}
	}
	fresh, err := t.verifyNodeRows(known, b)
	if err != nil {
		return BatchResult{Code: err.Code, Message: err.Message, Applied: known.Applied, Status: known.Status}
	}
	n := t.ownNodeRow(b.NodeID)
	n.Received = max(n.Received, b.Received)
	if len(fresh.rows) > 0 {
		t.applyRows(n, fresh, w)
	}
	return BatchResult{Applied: n.Applied, Status: n.Status}
}

// freshRows holds the rows of a batch that are not applied yet.
type freshRows struct {
	rows        [][]byte
	transitions []fleet.Transition // rows, decoded
	chain       []byte             // chain hash after the last row
	missing     fleet.Seq          // number of rows before these that the edge has lost (Base)
	prev        []byte             // chain hash before the batch
}

// verifyNodeRows checks a batch against its node, and returns the rows that are not applied yet. It fails
// if the epoch is over, the node is away, or the rows leave a gap, are malformed, or name allocations of
// another node.
func (t *tx) verifyNodeRows(n *nodeRow, b NodeRows) (freshRows, *fleet.Error) {
	switch {
	case n.Epoch != b.Epoch:
		return freshRows{}, fleet.Errorf(fleet.CodeStaleEpoch, "epoch %d of node %s is over: it is at %d",
			b.Epoch, fleet.Short(n.ID), n.Epoch)
	case n.Status != fleet.NodeInitializing && n.Status != fleet.NodeReady:
		return freshRows{}, fleet.Errorf(fleet.CodeNodeNotReady,
			"node %s is %s and not allowed to update allocs before it heartbeats", fleet.Short(n.ID), n.Status)
	case len(b.Rows) == 0:
		return freshRows{}, nil
	case b.First == 0 || b.First > n.Applied+1 && !b.Base:
		return freshRows{}, fleet.Errorf(fleet.CodeGap, "rows of node %s begin at %d: the next one is %d",
			fleet.Short(n.ID), b.First, n.Applied+1)
	}
	f, err := skipAppliedRows(n, b)
	if err != nil {
		return freshRows{}, err
	}
	f.transitions = make([]fleet.Transition, 0, len(f.rows))
	for i, raw := range f.rows {
		seq := b.First + fleet.Seq(len(b.Rows)-len(f.rows)+i)
		tr, err := syncproto.DecodeRow(raw)
		switch {
		case err != nil:
			return freshRows{}, fleet.Errorf(fleet.CodeFrameBad, "row %d of node %s: %v", seq, fleet.Short(n.ID), err)
		case tr.Seq != seq:
			return freshRows{}, fleet.Errorf(fleet.CodeFrameBad, "row %d of node %s has the number %d", seq, fleet.Short(n.ID), tr.Seq)
		}
		if a := t.currentAlloc(tr.Alloc); a != nil && a.NodeID != n.ID {
			return freshRows{}, fleet.Errorf(fleet.CodeForeignAlloc, "row %d of node %s names allocation %s of node %s",
				seq, fleet.Short(n.ID), fleet.Short(tr.Alloc), fleet.Short(a.NodeID))
		}
		f.transitions = append(f.transitions, tr)
	}
	return f, nil
}

// skipAppliedRows returns the rows of a batch that are not applied yet. It fails with CodeFork if their
// chain of hashes does not continue the node's.
func skipAppliedRows(n *nodeRow, b NodeRows) (freshRows, *fleet.Error) {
	f := freshRows{rows: b.Rows, chain: b.Prev, prev: b.Prev}
	if b.First > n.Applied+1 {
		f.missing = b.First - n.Applied - 1
	} else {
		skip := int(min(uint64(n.Applied+1-b.First), uint64(len(b.Rows))))
		for _, raw := range b.Rows[:skip] {
			f.chain = syncproto.ChainHash(f.chain, raw)
		}
		f.rows = b.Rows[skip:]
		reached := b.First+fleet.Seq(skip) == n.Applied+1
		if reached && !bytes.Equal(f.chain, n.ChainHash) {
			return f, fleet.Errorf(fleet.CodeFork, "row %d of node %s does not follow from what is applied: its chain forked",
				b.First, fleet.Short(n.ID))
		}
	}
	for _, raw := range f.rows {
		f.chain = syncproto.ChainHash(f.chain, raw)
	}
	return f, nil
}

// applyRows applies verified rows to a node (the entry's own copy) and to its allocations. If they
// complete the history of an initializing node, the node becomes ready. Evaluations are added to w.
func (t *tx) applyRows(n *nodeRow, f freshRows, w *pendingEvals) {
	if f.missing > 0 {
		n.history.appendEntries(historyEntry{index: t.index, vital: true, hubEvent: &hubEvent{
			Event: fleet.EventGap, Node: n.ID, Time: w.now, Gone: uint64(f.missing),
			Message: fmt.Sprintf("%d rows before row %d are gone from the edge's journal", f.missing, f.transitions[0].Seq),
		}})
	}
	rows := map[fleet.AllocID][]int{}
	var order []fleet.AllocID
	offline := make([]bool, len(f.rows))
	for i, tr := range f.transitions {
		switch tr.Kind {
		case fleet.TransitionDisconnect, fleet.TransitionAgent: // an agent starts without a link
			n.linkDown = true
		case fleet.TransitionReconnect:
			n.linkDown = false
		}
		if tr.Seq > n.JournalHead { // written after this session reported its journal head
			n.linkDown = false
		}
		offline[i] = n.linkDown
		if tr.Alloc == "" || t.currentAlloc(tr.Alloc) == nil {
			n.history.appendEntries(t.rowEntry(f, i, n.linkDown))
			if tr.Volume != nil {
				t.applyVolumeReport(n, &tr, w)
			}
			if tr.Prefetch != nil {
				t.applyPrefetchReport(n, &tr, w.now)
			}
			if tr.Site != nil {
				t.recordSiteAction(n, tr.Site, w.now)
			}
			t.forgetEndedOrphan(n, &tr)
			continue
		}
		if rows[tr.Alloc] == nil {
			order = append(order, tr.Alloc)
		}
		rows[tr.Alloc] = append(rows[tr.Alloc], i)
	}
	n.Applied = f.transitions[len(f.transitions)-1].Seq
	n.ChainHash = f.chain
	n.Readmit = false // the journal continues the applied rows again
	final := n.Status == fleet.NodeReady
	for _, id := range order {
		before := t.currentAlloc(id).Alloc
		about := rows[id]
		after := t.changeAlloc(id, w.now, func(a *allocRow) {
			a.TaskStates = copyTaskStates(a.TaskStates, len(about))
			entries := make([]historyEntry, 0, len(about))
			for _, i := range about {
				if ends := f.transitions[i].ClientStatus; !a.endedBeforeRestore || ends == fleet.ClientComplete || ends == fleet.ClientFailed {
					applyTransition(&a.Alloc, &f.transitions[i], w.now)
				}
				t.applyHealthTransition(&a.Alloc, &f.transitions[i], w.now)
				entries = append(entries, t.rowEntry(f, i, offline[i]))
			}
			trimTaskEvents(a.TaskStates)
			a.history.appendEntries(entries...)
			a.ClientStatus = effectiveStatus(&a.Alloc, final)
		})
		if final {
			t.enqueueEval(&before, &after.Alloc, n, w)
		}
	}
	switch {
	case n.Status != fleet.NodeInitializing:
	case n.Applied >= n.JournalHead:
		t.markNodeReady(n, w)
	default:
		n.StatusDescription = fmt.Sprintf("waiting for its history: row %d of %d", n.Applied, n.JournalHead)
	}
}

// forgetEndedOrphan removes an allocation that the cluster does not know from the node's orphans, once its
// edge reports that it has ended.
func (t *tx) forgetEndedOrphan(n *nodeRow, tr *fleet.Transition) {
	if i := slices.Index(n.Orphans, tr.Alloc); i >= 0 && fleet.IsClientTerminal(tr.ClientStatus) {
		n.Orphans = slices.Delete(slices.Clone(n.Orphans), i, i+1)
		t.nodeChanged(n)
	}
}

// rowEntry returns the history entry of the i-th row of f.
func (t *tx) rowEntry(f freshRows, i int, offline bool) historyEntry {
	tr := &f.transitions[i]
	return historyEntry{index: t.index, row: f.rows[i], offline: offline, vital: !tr.Droppable()}
}

// copyTaskStates returns a copy of task states, with capacity for that many more events of each task.
func copyTaskStates(states map[string]fleet.TaskState, events int) map[string]fleet.TaskState {
	own := maps.Clone(states)
	for task, state := range own {
		state.Events = append(make([]fleet.TaskEvent, 0, len(state.Events)+events), state.Events...)
		own[task] = state
	}
	return own
}

// trimTaskEvents drops all but the newest fleet.TaskEventsKept events of each task, in place.
func trimTaskEvents(states map[string]fleet.TaskState) {
	for task, state := range states {
		if state.Events = keepNewest(state.Events, fleet.TaskEventsKept); len(state.Events) == 0 {
			state.Events = nil // the same as after reading a snapshot
		}
		states[task] = state
	}
}

// applyTransition applies a row to its allocation: reported status, task state and task event. The caller
// must own a's TaskStates. now is when the row is applied, not when the edge wrote it.
func applyTransition(a *fleet.Alloc, tr *fleet.Transition, now int64) {
	if tr.ClientStatus != "" {
		a.ReportedStatus, a.ClientDescription = tr.ClientStatus, tr.ClientDescription
	}
	a.StoppedOnEdge = a.StoppedOnEdge || tr.StoppedOnEdge
	if tr.Network != nil && tr.Task == "" {
		a.NetworkStatus = tr.Network
	}
	switch {
	case tr.Hold != nil:
		a.Held = tr.Hold
	case tr.Released:
		a.Held = nil
	}
	if tr.Task == "" || tr.TaskState == nil && tr.Event == nil && tr.Network == nil {
		return
	}
	if g := a.Group(); g != nil && !slices.ContainsFunc(g.Tasks, func(t fleet.Task) bool { return t.Name == tr.Task }) {
		return
	}
	state := a.TaskStates[tr.Task]
	if tr.TaskState != nil {
		events, address := state.Events, state.Address
		state = *tr.TaskState
		state.Events, state.Address = events, address
		if state.RunningSince = 0; state.State == fleet.TaskRunning {
			state.RunningSince = now - int64(state.RunningFor)
		}
	}
	if tr.Event != nil {
		state.Events = append(state.Events, *tr.Event)
		if tr.Event.Type == fleet.TaskStarted {
			state.Address = "" // until the driver says the new one
		}
	}
	if tr.Network != nil {
		state.Address = tr.Network.Address
	}
	if a.TaskStates == nil {
		a.TaskStates = map[string]fleet.TaskState{}
	}
	a.TaskStates[tr.Task] = state
}

// effectiveStatus returns the client status that follows from the edge's last report and the hub's own
// decision (unknown or lost). ready says that the node is ready, with its history applied.
func effectiveStatus(a *fleet.Alloc, ready bool) string {
	reported := a.ReportedStatus
	ended := reported == fleet.ClientComplete || reported == fleet.ClientFailed
	switch {
	case a.ClientStatus == fleet.ClientUnknown && !ready:
		return fleet.ClientUnknown
	case a.ClientStatus == fleet.ClientUnknown && reported == "":
		return fleet.ClientPending
	case a.ClientStatus == fleet.ClientLost && !ended, reported == "":
		return a.ClientStatus
	}
	return reported
}

// isReplacementWaiting reports whether the edge confirmed the end of a stopped allocation for which a
// follow-up evaluation waits, in order to place the replacement.
func (t *tx) isReplacementWaiting(a *fleet.Alloc) bool {
	if a.FollowupEvalID == "" || !a.ServerTerminal() || !a.EndedOnEdge() {
		return false
	}
	e := evalTable.currentRow(t, idKey(a.FollowupEvalID))
	return e != nil && !e.Terminal()
}

// enqueueEval adds an evaluation to w if an allocation's change on a ready node needs a decision of the
// scheduler.
func (t *tx) enqueueEval(before, after *fleet.Alloc, n *nodeRow, w *pendingEvals) {
	if after.NoLongerWanted() {
		if !before.EndedOnEdge() && t.isReplacementWaiting(after) {
			w.requestEval(after.Namespace, after.JobID, fleet.TriggerRetryFailedAlloc, &n.Node)
		}
		return
	}
	ended := after.ClientStatus == fleet.ClientFailed ||
		after.ClientStatus == fleet.ClientComplete && (after.Job == nil || after.StoppedOnEdge || !fleet.RunsToCompletion(after.Job.Type))
	row := jobTable.currentRow(t, jobKeyOf(after.Namespace, after.JobID))
	switch {
	case (row == nil || row.job.Stop) && !after.ClientTerminal():
		// The job is stopped or purged, and no open evaluation will stop the allocation.
		if r := jobSummaryTable.currentRow(t, jobKeyOf(after.Namespace, after.JobID)); r == nil || r.open == 0 {
			w.requestEval(after.Namespace, after.JobID, fleet.TriggerJobDeregister, &n.Node)
		}
	case before.ClientStatus == fleet.ClientUnknown && after.ClientStatus != fleet.ClientUnknown:
		w.requestEval(after.Namespace, after.JobID, fleet.TriggerReconnect, &n.Node)
	case (before.Held == nil) != (after.Held == nil):
		w.requestEval(after.Namespace, after.JobID, fleet.TriggerNodeUpdate, &n.Node)
	case unblocksSystemUpdate(before, after):
		w.requestEval(after.Namespace, after.JobID, fleet.TriggerNodeUpdate, &n.Node)
	case t.isHealthyTooLate(before, after):
		w.requestEval(after.Namespace, after.JobID, fleet.TriggerNodeUpdate, &n.Node)
	case ended && after.ClientStatus != before.ClientStatus:
		w.requestEval(after.Namespace, after.JobID, fleet.TriggerRetryFailedAlloc, &n.Node)
	}
}

// isHealthyTooLate reports whether an allocation became healthy after its deployment was over. Nothing
// watches it then, although others may wait for it because of max_unavailable_per_site.
func (t *tx) isHealthyTooLate(before, after *fleet.Alloc) bool {
	if before.DeploymentStatus.IsHealthy() || !after.DeploymentStatus.IsHealthy() {
		return false
	}
	g := after.Group()
	d := deploymentTable.currentRow(t, idKey(after.DeploymentID))
	return g != nil && g.Update != nil && g.Update.MaxUnavailablePerSite > 0 && (d == nil || !d.Active())
}

// unblocksSystemUpdate reports whether an allocation of a system job started running without a deployment,
// so that the next ones of a rolling update may be replaced.
func unblocksSystemUpdate(before, after *fleet.Alloc) bool {
	g := after.Group()
	return g != nil && after.Job.Type == fleet.JobTypeSystem && g.Update.Rolling() &&
		after.DeploymentID == "" && after.PreviousAllocation != "" &&
		before.ClientStatus == fleet.ClientPending && after.ClientStatus == fleet.ClientRunning
}
