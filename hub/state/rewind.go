package state

import (
	"fmt"
	"time"

	"skerry/fleet"
)

// What a restore does not wind back. A snapshot says what was wanted; who belongs
// to the cluster and what has happened out there are not undone by reading a file:
//
//   - The cluster's identity, its hubs, join tokens and certificates stay as they are,
//     and so does a node that enrolled since. One that was revoked stays so.
//   - Indexes go on: the restore is an entry like any other, later than all that the
//     forgotten time has told anybody.
//   - Epochs go on: every node's is beyond the one that it had, so no session of
//     the forgotten time can say anything more. What edges count themselves (sessions)
//     and who was refused as a copy stay, too.
//   - A node that may be connected is initializing until its edge has come with a new
//     session and its history is in: it takes no work, what runs there is left alone, and
//     where it stays away the ordinary deadline makes it disconnected. Its journal is
//     read again from where the snapshot has it; the edge still holds those rows, or says
//     what they came to.
//   - What had ended stays ended, also where its edge has forgotten it by now: it is
//     never told to run it again.
//   - What was placed since for a job that the snapshot has stays placed, in whichever
//     version: the job would be placed once more beside it. By the restored job it is
//     kept, updated or stopped, as after any change of a job. What was placed for a job
//     that the snapshot does not have is not known any more; its edge keeps it (see
//     fleet.Node.Orphans).
//   - A periodic time that was launched is not launched again.
//   - A deployment's deadline begins anew: nobody watched it meanwhile.
//
// Events of before are let go, so that every stream learns that it missed something.
func (t *tx) rewindToSnapshot(old *View, from fleet.Index, c SnapshotRestore) {
	w := pendingEvals{seed: c.EvalSeed, now: c.Now}
	t.keepMembers(old)
	t.noteRestore(from, c.Now)
	rewound := t.rewindNodes(old, from, c.Now)
	t.expelRevoked(old, &w)
	t.keepEnded(old, &w)
	t.keepPlaced(old, rewound, &w)
	t.keepLaunched(old)
	t.rewindDeployments(c.Now)
	t.rewindEvals()
	t.dropParts()
	t.forgetEvents()
	for m := range metaTable.scanRows(t.base) {
		t.markMeta(m.name)
	}
	t.storePendingEvals(&w)
}

// keepMembers has who belongs to the cluster as it is.
func (t *tx) keepMembers(old *View) {
	clusterTable.replaceRows(t, old)
	hubTable.replaceRows(t, old)
	tokenTable.replaceRows(t, old)
	admissionTable.replaceRows(t, old)
	certificateTable.replaceRows(t, old)
}

// noteRestore notes which entries are forgotten. What those of the snapshot knew of
// earlier restores goes on: it is their state that goes on.
func (t *tx) noteRestore(from fleet.Index, now int64) {
	row := &restoredRow{Restored: Restored{Index: t.index, From: from, Time: now}}
	if r := restoredTable.currentRow(t, onlyKey); r != nil {
		row.Forgotten = append(row.Forgotten, r.Forgotten...)
	}
	row.Forgotten = append(row.Forgotten, entryRange{from, t.index})
	if n := len(row.Forgotten); n > maxForgotten { // one span for several forgets more, which is the safe side
		row.Forgotten = append([]entryRange{{row.Forgotten[0].From, row.Forgotten[n-maxForgotten].To}}, row.Forgotten[n-maxForgotten+1:]...)
	}
	restoredTable.putRow(t, row)
}

// rewindNodes closes all sessions, and has nodes wait for their edges. It returns those
// whose journals are read again.
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

func restoredTo(from fleet.Index) string {
	return fmt.Sprintf("the cluster was restored to entry %d", from)
}

// awaitNewSession has a node that may be connected wait for a new session of its edge.
func (t *tx) awaitNewSession(n *nodeRow, connected bool, from fleet.Index, now int64) {
	if n.Epoch > 0 { // one that never had a session waits for nothing
		n.Epoch++
	}
	t.recordNodeEvent(n, eventRestored, restoredTo(from), now)
	t.nodeChanged(n)
	if connected {
		n.lastSessionOpen, n.DisconnectedAt = t.index, 0
		t.setNodeStatus(n, fleet.NodeInitializing, restoredTo(from)+": waiting for its edge", now)
	}
}

// keepEnded has what the cluster saw end stay ended. An allocation that is gone from
// the state had ended, too, if the state ever knew it: nothing else is collected. It never
// did, where its index says so or not, if its edge keeps it as one that nobody knows: the
// hubs were put back with older directories, and count these indexes for a second time.
func (t *tx) keepEnded(old *View, w *pendingEvals) {
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
		case !known && since.hasKnownEntry(r.CreateIndex) && !kept[r.ID]:
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

// keepPlaced has what was placed since stay placed, for jobs that the snapshot has. What
// its edge said of it comes again where the node's journal is read again.
func (t *tx) keepPlaced(old *View, rewound map[fleet.NodeID]bool, w *pendingEvals) {
	for r := range allocTable.scanRows(old.txn) {
		job := jobTable.currentRow(t, jobKeyOf(r.Namespace, r.JobID))
		if t.currentAlloc(r.ID) != nil || job == nil || job.job.CreateIndex != r.Job.CreateIndex ||
			nodeTable.currentRow(t, idKey(r.NodeID)) == nil && !r.ClientTerminal() {
			continue
		}
		a := *r
		a.ModifyIndex, a.ModifyTime, a.endedBeforeRestore = t.index, w.now, r.EndedOnEdge()
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

// keepLaunched has no periodic time launched twice.
func (t *tx) keepLaunched(old *View) {
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

// rewindDeployments gives those that go on their time anew.
func (t *tx) rewindDeployments(now int64) {
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

// rewindEvals has workers wait for the restored state before they look: theirs may
// be of before, and has indexes beyond the snapshot's.
func (t *tx) rewindEvals() {
	for e := range evalTable.scanRows(t.base) {
		if e.Terminal() {
			continue
		}
		next := *e
		next.ModifyIndex = t.index
		evalTable.putRow(t, &next)
	}
}

// forgetEvents begins the window of events anew, behind all that anybody has seen.
func (t *tx) forgetEvents() {
	for e := range eventTable.scanRows(t.base) {
		eventTable.removeRow(t, indexKey(e.index))
	}
	windowTable.putRow(t, &windowRow{floor: t.index - 1})
}
