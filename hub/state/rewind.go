package state

import (
	"fmt"
	"time"

	"skerry/fleet"
)

// rewindToSnapshot finishes a restore. t holds the state of the snapshot, old is the state before the
// restore, and from the entry of the snapshot. These things are not rewound:
//
//   - The cluster's identity, its CAs, state keys, hubs, join tokens and certificates stay as they are, and so does
//     a node that enrolled since. A revoked node stays revoked, with its exposure.
//   - The policies, roles, tokens, auth methods, binding rules and site codes of access control stay as they are, so
//     that a revoked token does not come back. A cluster without access control gets those of the snapshot.
//   - Root keys that were made since stay, and so do signing keys: tokens that they have signed are in use. All that were
//     there before the restore stay encrypted with the state key that they were encrypted with. The active one stays
//     active where the snapshot's was removed since.
//   - Indexes go on: the restore is an entry like any other, later than all forgotten ones.
//   - Epochs go on: every node gets an epoch greater than the one that it had, so that no session
//     from before the restore is accepted. The edges' session numbers and the fenced sessions stay, too.
//   - A node that may be connected is initializing until its edge has opened a new session and its
//     history is applied. It takes no new work, and its allocations keep running. If it stays away, its
//     heartbeat deadline makes it disconnected. Its journal is read again from the snapshot's row; the
//     edge still holds those rows, or a gap that stands for them.
//   - An allocation that had ended stays ended, even if its edge has forgotten it.
//   - An allocation that had another version keeps how long its edge may run it without a hub by that version.
//   - An allocation that was placed since, for a job that the snapshot has, stays placed in its version;
//     otherwise the job would be placed twice. The restored job keeps, updates or stops it like after any
//     change of a job. An allocation of a job that the snapshot does not have is forgotten; its edge
//     keeps it (see fleet.Node.Orphans).
//   - A launch time of a periodic job is not launched again.
//   - A dynamic host volume that was created since stays, and edges are told of all volumes again. So it is with
//     prefetches.
//   - A variable that was deleted since, and that the snapshot does not have, stays deleted for edges that were away.
//   - The actions of people on site that edges have reported stay, so that none is reported twice.
//   - The progress deadlines of deployments start again.
//
// Older events are dropped, so that every reader of the event stream learns that it missed some.
func (t *tx) rewindToSnapshot(old *View, from fleet.Index, c SnapshotRestore) {
	w := pendingEvals{seed: c.EvalSeed, now: c.Now}
	t.keepMembers(old)
	t.keepAccess(old)
	t.keepRootKeys(old)
	t.noteRestore(from, c.Now)
	rewound := t.rewindNodes(old, from, c.Now)
	t.expelRevokedNodes(old, &w)
	t.keepEndedAllocs(old, &w)
	t.keepRunsAlone(old, c.Now)
	t.keepPlacedAllocs(old, rewound, &w)
	t.keepLaunchTimes(old)
	t.keepVolumes(old, c.Now)
	t.keepPrefetches(old, c.Now)
	t.keepDeletedVariables(old)
	t.keepSiteActions(old)
	t.extendDeploymentDeadlines(c.Now)
	t.touchOpenEvals()
	t.dropParts()
	t.forgetEvents()
	for m := range metaTable.scanRows(t.base) {
		t.markMeta(m.name)
	}
	t.storePendingEvals(&w)
}

// keepMembers keeps the cluster's identity, its state keys, CAs, hubs, join tokens, admissions and certificates as they
// were before the restore.
func (t *tx) keepMembers(old *View) {
	clusterTable.replaceRows(t, old)
	stateKeyTable.replaceRows(t, old)
	caTable.replaceRows(t, old)
	hubTable.replaceRows(t, old)
	tokenTable.replaceRows(t, old)
	admissionTable.replaceRows(t, old)
	certificateTable.replaceRows(t, old)
}

// noteRestore records this restore, and that the entries from the snapshot to now are forgotten. It keeps
// the forgotten ranges that the snapshot knew.
func (t *tx) noteRestore(from fleet.Index, now int64) {
	row := &restoredRow{Restored: Restored{Index: t.index, From: from, Time: now}}
	if r := restoredTable.currentRow(t, onlyKey); r != nil {
		row.Forgotten = append(row.Forgotten, r.Forgotten...)
	}
	row.Forgotten = append(row.Forgotten, entryRange{from, t.index})
	if n := len(row.Forgotten); n > maxForgotten { // merging ranges forgets more entries, which is safe
		row.Forgotten = append([]entryRange{{row.Forgotten[0].From, row.Forgotten[n-maxForgotten].To}}, row.Forgotten[n-maxForgotten+1:]...)
	}
	restoredTable.putRow(t, row)
}

// rewindNodes ends the session of each node, and has connected nodes wait for a new one. Nodes that the
// snapshot does not have are kept. It returns the nodes of the snapshot, whose journals are read again
// from there.
func (t *tx) rewindNodes(old *View, from fleet.Index, now int64) (rewound map[fleet.NodeID]bool) {
	rewound = map[fleet.NodeID]bool{}
	for r := range nodeTable.scanRows(t.base) {
		n := t.ownNodeRow(r.ID)
		rewound[r.ID] = true
		connected := !isAway(n.Status)
		if live, known := nodeTable.watchRow(old, idKey(r.ID)); known {
			n.Epoch, n.Session = max(n.Epoch, live.Epoch), max(n.Session, live.Session)
			n.Instance, n.BootID, n.Hub, n.Address = live.Instance, live.BootID, live.Hub, live.Address
			n.Fenced, n.fenced = live.Fenced, live.fenced
			connected = connected || !isAway(live.Status)
		}
		t.recordOnAllocs(n, eventRestored, restoredTo(from), now)
		t.awaitNewSession(n, connected, from, now)
	}
	for r := range nodeTable.scanRows(old.txn) {
		if rewound[r.ID] {
			continue
		}
		n := *r
		n.history = n.history.cloneHistory()
		nodeTable.putRow(t, &n)
		t.ensurePool(n.NodePool)
		t.awaitNewSession(&n, !isAway(n.Status), from, now)
	}
	return rewound
}

const eventRestored = "cluster restored"

// restoredTo returns the text that explains the restore in histories.
func restoredTo(from fleet.Index) string {
	return fmt.Sprintf("the cluster was restored to entry %d", from)
}

// awaitNewSession gives a node that has had a session a new epoch. If it may be connected, it becomes
// initializing until its edge opens a new session.
func (t *tx) awaitNewSession(n *nodeRow, connected bool, from fleet.Index, now int64) {
	if n.Epoch > 0 { // a node that never had a session needs no new epoch
		n.Epoch++
	}
	t.recordNodeEvent(n, eventRestored, restoredTo(from), now)
	t.nodeChanged(n)
	if connected {
		n.lastSessionOpen, n.DisconnectedAt = t.index, 0
		t.setNodeStatus(n, fleet.NodeInitializing, restoredTo(from)+": waiting for its edge", now)
	}
}

// keepEndedAllocs marks allocations of the snapshot ended that had ended before the restore. An allocation
// that was removed from the state counts as ended, because only ended ones are collected, unless the state
// never knew it.
// The state never knew it if its entry was forgotten before, or if its edge reports it as an orphan: then
// the hubs were put back to older data directories, and use these indexes for the second time.
func (t *tx) keepEndedAllocs(old *View, w *pendingEvals) {
	since, _ := restoredTable.watchRow(old, onlyKey)
	kept := map[fleet.AllocID]bool{}
	for n := range nodeTable.scanRows(old.txn) {
		for _, id := range n.Orphans {
			kept[id] = true
		}
	}
	for r := range allocTable.scanRows(t.base) {
		if r.EndedOnEdge() || r.ClientTerminal() {
			continue
		}
		live, known := allocTable.watchRow(old, idKey(r.ID))
		switch {
		case known && live.EndedOnEdge():
			t.changeAlloc(r.ID, w.now, func(a *allocRow) {
				a.ReportedStatus, a.ClientStatus, a.ClientDescription = live.ReportedStatus, live.ReportedStatus, live.ClientDescription
				a.TaskStates, a.endedBeforeRestore = live.TaskStates, true
				a.history.appendEntries(t.newAllocHubEvent(a, "ended before the restore", live.ClientDescription, w.now))
			})
		case !known && since.knowsEntry(r.CreateIndex) && !kept[r.ID]:
			const gone = "ended before the cluster was restored, and its record was collected"
			t.changeAlloc(r.ID, w.now, func(a *allocRow) {
				a.ReportedStatus, a.ClientStatus, a.ClientDescription = fleet.ClientComplete, fleet.ClientComplete, gone
				a.endedBeforeRestore = true
				a.history.appendEntries(t.newAllocHubEvent(a, "ended before the restore", gone, w.now))
			})
		default:
			continue
		}
		w.requestEval(r.Namespace, r.JobID, fleet.TriggerRetryFailedAlloc, nil)
	}
}

// keepRunsAlone keeps, for each allocation whose version changed since the snapshot, for how long its edge may run it without
// a hub by that version.
func (t *tx) keepRunsAlone(old *View, now int64) {
	for r := range allocTable.scanRows(t.base) {
		live, known := allocTable.watchRow(old, idKey(r.ID))
		if !known || r.ClientTerminal() {
			continue
		}
		alone := live.runsAlone(old)
		if alone <= r.RunsAloneFor(receivedBy(nodeTable.currentRow(t, idKey(r.NodeID)))) {
			continue
		}
		t.changeAlloc(r.ID, now, func(a *allocRow) {
			a.SetFormerRunsAlone(alone)
			a.AllocModifyIndex = t.index
			t.noteDesiredChange(a.NodeID)
		})
	}
}

// runsAlone returns for how long the edge may run the allocation without a hub, by what the edge has in a view.
func (r *allocRow) runsAlone(v *View) time.Duration {
	n, _ := nodeTable.watchRow(v, idKey(r.NodeID))
	return r.RunsAloneFor(receivedBy(n))
}

// keepPlacedAllocs keeps allocations that were placed after the snapshot, if the snapshot has their job.
// rewound are the nodes whose journals are read again; allocations there start with an empty history.
func (t *tx) keepPlacedAllocs(old *View, rewound map[fleet.NodeID]bool, w *pendingEvals) {
	for r := range allocTable.scanRows(old.txn) {
		job := jobTable.currentRow(t, jobKeyOf(r.Namespace, r.JobID))
		if t.currentAlloc(r.ID) != nil || job == nil || job.job.CreateIndex != r.Job.CreateIndex ||
			nodeTable.currentRow(t, idKey(r.NodeID)) == nil && !r.ClientTerminal() {
			continue
		}
		a := *r
		a.ModifyIndex, a.ModifyTime, a.endedBeforeRestore = t.index, w.now, r.EndedOnEdge()
		a.SetFormerRunsAlone(r.runsAlone(old))
		if a.FollowupEvalID != "" && evalTable.currentRow(t, idKey(a.FollowupEvalID)) == nil {
			a.FollowupEvalID = ""
		}
		if a.history = a.history.cloneHistory(); rewound[r.NodeID] {
			a.history = history{}
		}
		a.history.appendEntries(t.newAllocHubEvent(&a, "kept over a restore", "it was placed after the snapshot", w.now))
		allocTable.putRow(t, &a)
		t.addBodyRefs(a.Job, 1)
		t.updateSummaries(nil, &a.Alloc)
		t.countInDeployment(nil, &a.Alloc)
		t.noteDesiredChange(a.NodeID)
		w.requestEval(a.Namespace, a.JobID, fleet.TriggerNodeUpdate, nil)
	}
}

// keepLaunchTimes keeps the newest launch time of each periodic job, so that no time is launched twice.
func (t *tx) keepLaunchTimes(old *View) {
	for r := range jobTable.scanRows(t.base) {
		k := jobRowKey(r)
		live, known := jobTable.watchRow(old, k)
		if known && live.job.CreateIndex == r.job.CreateIndex && live.launched > r.launched {
			next := *jobTable.currentRow(t, k)
			next.launched = live.launched
			jobTable.putRow(t, &next)
		}
	}
}

// extendDeploymentDeadlines gives the groups of active deployments at least their full progress deadline
// from now.
func (t *tx) extendDeploymentDeadlines(now int64) {
	for r := range deploymentTable.scanRows(t.base) {
		if !r.Active() {
			continue
		}
		d := t.ownDeployment(r.ID)
		for name, g := range d.TaskGroups {
			if by := time.Unix(0, now).Add(g.ProgressDeadline).UTC(); !g.RequireProgressBy.IsZero() && by.After(g.RequireProgressBy) {
				g.RequireProgressBy = by
				d.TaskGroups[name] = g
			}
		}
		t.deploymentChanged(d, now)
	}
}

// touchOpenEvals sets the modify index of open evaluations to this entry, so that workers wait for the
// restored state before they process them.
func (t *tx) touchOpenEvals() {
	for e := range evalTable.scanRows(t.base) {
		if e.Terminal() {
			continue
		}
		next := *e
		next.ModifyIndex = t.index
		evalTable.putRow(t, &next)
	}
}

// forgetEvents empties the window of events, and starts it at this entry.
func (t *tx) forgetEvents() {
	for e := range eventTable.scanRows(t.base) {
		eventTable.removeRow(t, indexKey(e.index))
	}
	windowTable.putRow(t, &windowRow{floor: t.index - 1})
}
