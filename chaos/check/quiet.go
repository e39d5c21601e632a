package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"skerry/fleet"
)

// Checked returns the invariants that Quiet judges.
func Checked() []Invariant {
	return []Invariant{ExactlyOnce, HeartbeatFirst, AbsenceStopsNothing, RebootBringsBack, Settled, NoOvercommit, LegalHistory}
}

// Quiet judges a snapshot of a fleet that has nothing left to do, and returns all violations that it shows. It
// has no memory of the run.
func Quiet(p FleetSnapshot) []Violation {
	q := &quietJudge{}
	for _, h := range p.Hubs {
		for _, e := range p.Edges {
			q.checkDelivered(h, e)
			q.checkLossReported(h, e)
			q.checkReported(h, e)
		}
		for _, n := range h.Nodes {
			q.checkSessions(h, n)
		}
		q.checkCounts(h, p.Wanted)
		q.checkAlternation(h)
		q.found = append(q.found, Committed(h.Name, h.Nodes, h.Allocs)...)
	}
	for _, e := range p.Edges {
		if len(p.Hubs) > 0 {
			q.checkUndisturbed(p.Hubs[0], e)
		}
		q.checkStartedOnce(e, p.Starts)
		q.checkLegalRows(e)
	}
	if len(p.Hubs) > 0 {
		q.checkProcesses(p.Hubs[0], p.Edges)
		for _, h := range p.Hubs[1:] {
			q.compareHubs(p.Hubs[0], h)
		}
	}
	return q.found
}

// quietJudge collects the violations that Quiet finds in one snapshot.
type quietJudge struct{ violationList }

// checkDelivered checks invariant 1: a hub has each row of an edge's journal once, in order and unchanged.
func (q *quietJudge) checkDelivered(h Hub, e Edge) {
	journal := map[fleet.Seq]fleet.Transition{}
	for i, row := range e.Rows {
		if i > 0 && row.Seq != e.Rows[i-1].Seq+1 {
			q.addViolation(ExactlyOnce, "journal of %s: row %d follows row %d", e.Name, row.Seq, e.Rows[i-1].Seq)
		}
		journal[row.Seq] = row
	}
	var last fleet.Seq
	if len(e.Rows) > 0 {
		last = e.Rows[len(e.Rows)-1].Seq
	}
	if n := findNode(h.Nodes, e.NodeID); n == nil || n.Applied < last {
		q.addViolation(ExactlyOnce, "%s has applied less than the journal of %s holds (%d)", h.Name, e.Name, last)
	}
	seen := map[fleet.Seq]fleet.AllocID{}
	for _, a := range h.Allocs {
		if a.NodeID == e.NodeID {
			q.checkReplayed(h, a.ID, journal, seen)
		}
	}
	q.checkComplete(h, e, seen)
}

// checkReplayed compares one allocation's history at a hub with the journal. It adds the history's rows to
// seen, which has the allocation of each row, and reports rows that are in it already.
func (q *quietJudge) checkReplayed(h Hub, id fleet.AllocID, journal map[fleet.Seq]fleet.Transition, seen map[fleet.Seq]fleet.AllocID) {
	var before fleet.Seq
	for _, entry := range h.AllocHistory[id] {
		t := entry.Transition
		if entry.Side != fleet.SideEdge || t == nil {
			continue
		}
		if t.Seq <= before {
			q.addViolation(ExactlyOnce, "%s, allocation %s: row %d stands behind row %d", h.Name, fleet.Short(id), t.Seq, before)
		}
		before = t.Seq
		if other, twice := seen[t.Seq]; twice {
			q.addViolation(ExactlyOnce, "%s: row %d was applied twice, to %s and %s", h.Name, t.Seq, fleet.Short(other), fleet.Short(id))
		}
		seen[t.Seq] = id
		row, held := journal[t.Seq]
		if held && !sameRow(row, *t) {
			q.addViolation(ExactlyOnce, "%s, allocation %s: row %d says %s, the journal %s", h.Name, fleet.Short(id), t.Seq, describeRow(*t), describeRow(row))
		}
	}
}

// checkComplete checks that a hub has all journaled rows of the allocations that it knows. seen are the rows
// that it has; as many may lack as the hub counts as dropped.
func (q *quietJudge) checkComplete(h Hub, e Edge, seen map[fleet.Seq]fleet.AllocID) {
	missing := map[fleet.AllocID][]fleet.Transition{}
	for _, row := range e.Rows {
		if _, ok := seen[row.Seq]; !ok && row.Alloc != "" && h.AllocHistory[row.Alloc] != nil {
			missing[row.Alloc] = append(missing[row.Alloc], row)
		}
	}
	for _, id := range sorted(missing) {
		if rows := missing[id]; uint64(len(rows)) > h.Dropped[id] {
			q.addViolation(ExactlyOnce, "%s lacks %d rows of %s, the first is %d (%s), and says that it dropped %d",
				h.Name, len(rows), e.Name, rows[0].Seq, describeRow(rows[0]), h.Dropped[id])
		}
	}
}

// sameRow reports whether two rows have the same kind, boot, allocation, task, status and times. It ignores
// number and event: a row may get another number.
func sameRow(a, b fleet.Transition) bool {
	return a.BootID == b.BootID && a.Kind == b.Kind && a.Alloc == b.Alloc && a.Task == b.Task &&
		a.ClientStatus == b.ClientStatus && a.Mono == b.Mono && a.Wall == b.Wall
}

// describeRow shows a row's kind, allocation, status, task and event on one line.
func describeRow(t fleet.Transition) string {
	s := fmt.Sprintf("%s of %s", t.Kind, fleet.Short(t.Alloc))
	if t.ClientStatus != "" {
		s += " " + t.ClientStatus
	}
	if t.Event != nil {
		s += fmt.Sprintf(" (%s %s)", t.Task, t.Event.Type)
	}
	return s
}

// checkUndisturbed checks invariant 3: without a link, an edge kills a task only if a person on site or the hub asked
// for it, or the group has stop_on_client_after or max_run_duration. It skips what the hub does not know, or may have
// forgotten because the cluster went back later: a Monitor judges that.
func (q *quietJudge) checkUndisturbed(h Hub, e Edge) {
	bounded, known := map[fleet.AllocID]bool{}, map[fleet.AllocID]bool{}
	for i := range h.Allocs {
		known[h.Allocs[i].ID] = true
		if g := h.Allocs[i].Group(); g != nil &&
			(g.MaxRunDuration != nil || g.Disconnect != nil && g.Disconnect.StopOnClientAfter != nil) {
			bounded[h.Allocs[i].ID] = true
		}
	}
	away := false
	asked := map[fleet.AllocID]bool{}
	for _, row := range e.Rows[rowsForgotten(e.Rows):] {
		switch row.Kind {
		case fleet.TransitionDisconnect:
			away = true
		case fleet.TransitionReconnect:
			away = false
		case fleet.TransitionOperator:
			asked[row.Alloc] = true
		}
		if away && row.Event != nil && row.Event.Type == fleet.TaskKilling && known[row.Alloc] && !asked[row.Alloc] &&
			!hubOrderedStop(h.AllocHistory[row.Alloc], row) && !bounded[row.Alloc] {
			q.addViolation(AbsenceStopsNothing, "%s killed task %s of %s while its link was gone (row %d: %s)",
				e.Name, row.Task, fleet.Short(row.Alloc), row.Seq, row.Event.DisplayMessage)
		}
	}
}

// rowsForgotten returns how many rows are older than the last time that the cluster went back.
func rowsForgotten(rows []fleet.Transition) int {
	for i, row := range slices.Backward(rows) {
		if row.Kind == fleet.TransitionReconnect && strings.Contains(row.Message, "the cluster went back") {
			return i
		}
	}
	return 0
}

// hubOrderedStop reports whether the hub decided on a stop before it applied the row of the kill. The edge's message has
// to name the hub's reason.
func hubOrderedStop(history []fleet.HistoryEntry, kill fleet.Transition) bool {
	heard := slices.IndexFunc(history, func(e fleet.HistoryEntry) bool { return e.Transition != nil && e.Transition.Seq == kill.Seq })
	if heard < 0 {
		return false
	}
	return slices.ContainsFunc(history, func(e fleet.HistoryEntry) bool {
		return e.Side == fleet.SideHub && e.Index < history[heard].Index && e.Message != "" &&
			strings.Contains(kill.Event.DisplayMessage, e.Message)
	})
}

// unseenRows bounds the rows that an edge may lose by damage to its journal before the harness polls them: one
// end of a task between two polls.
const unseenRows = 1

// checkStartedOnce checks that a task was started at most once in each boot since its allocation's first row, plus
// once for each end by itself, for each failure of its driver, which may come after the start, and for each action on site. Each dropped or unobserved row may have recorded such an
// end. starts are counted by the tasks themselves.
func (q *quietJudge) checkStartedOnce(e Edge, starts map[fleet.AllocID]int) {
	boots := map[fleet.BootID]int{}     // the place of each boot in their order
	placed := map[fleet.AllocID]int{}   // the boot of each allocation's first row
	restarts := map[fleet.AllocID]int{} // ends of its tasks by themselves
	dropped := 0
	counted := map[happening]bool{}
	var last fleet.Seq // the number of the row before
	for _, row := range slices.Concat(e.Before, e.Rows) {
		if last > 0 && row.Seq > last {
			dropped += int(row.Seq - last - 1)
		}
		last = row.Seq
		if counted[happeningOf(row)] {
			continue
		}
		counted[happeningOf(row)] = true
		if _, known := boots[row.BootID]; !known {
			boots[row.BootID] = len(boots)
		}
		if row.Kind == fleet.TransitionGap {
			dropped += int(row.Dropped)
			if row.Dropped == 0 && row.Message != "" { // the row reports damage
				dropped += unseenRows
			}
		}
		if row.Kind == fleet.TransitionOperator { // an operator on site may have started it again
			restarts[row.Alloc]++
		}
		if row.Alloc == "" || row.Event == nil {
			continue
		}
		if _, known := placed[row.Alloc]; !known {
			placed[row.Alloc] = boots[row.BootID]
		}
		if row.Event.Type == fleet.TaskTerminated || row.Event.Type == fleet.TaskDriverFailure {
			restarts[row.Alloc]++
		}
	}
	for _, id := range sorted(starts) {
		first, known := placed[id]
		if since := len(boots) - first; known && starts[id] > since+restarts[id]+dropped {
			q.addViolation(RebootBringsBack, "%s started allocation %s %d times in %d boots", e.Name, fleet.Short(id), starts[id], since)
		}
	}
}

// checkCounts checks invariant 5 at one hub: each job in wanted has that many allocations that run or are held on
// site, and no allocation is unknown or waits to be settled after a reconnect.
func (q *quietJudge) checkCounts(h Hub, wanted map[fleet.JobID]int) {
	running := map[fleet.JobID]int{}
	for _, a := range h.Allocs {
		beside := a.DeploymentStatus.IsCanary() && wanted[a.JobID] > 0
		held := a.Held != nil && a.ClientStatus == fleet.ClientPending
		if !a.ServerTerminal() && (a.ClientStatus == fleet.ClientRunning || held) && !beside {
			running[a.JobID]++
		}
		if !a.ServerTerminal() && (a.ClientStatus == fleet.ClientUnknown || a.NeedsToReconnect()) {
			q.addViolation(Settled, "%s: allocation %s is not settled (%s)", h.Name, fleet.Short(a.ID), a.ClientStatus)
		}
	}
	for _, id := range sorted(wanted) {
		if running[id] != wanted[id] {
			q.addViolation(Settled, "%s: job %s has %d running, wants %d", h.Name, id, running[id], wanted[id])
		}
	}
}

// checkProcesses checks invariant 5 against the real processes: each task that the hub reports as running has one
// process on its node, and no other task has any.
func (q *quietJudge) checkProcesses(h Hub, edges []Edge) {
	shall := map[TaskKey]fleet.NodeID{}
	for _, a := range h.Allocs {
		for task, ts := range a.TaskStates {
			if !a.ServerTerminal() && a.ClientStatus == fleet.ClientRunning && ts.State == fleet.TaskRunning {
				shall[TaskKey{a.ID, task}] = a.NodeID
			}
		}
	}
	for _, e := range edges {
		for _, k := range sortedTasks(e.Processes) {
			if n := e.Processes[k]; shall[k] != e.NodeID || n != 1 {
				q.addViolation(Settled, "%s has %d processes of task %s, which must run on node %q", e.Name, n, k, fleet.Short(shall[k]))
			}
		}
		for _, k := range sortedTasks(shall) {
			if shall[k] == e.NodeID && e.Processes[k] == 0 {
				q.addViolation(Settled, "%s has no process of task %s, which the hub reports as running", e.Name, k)
			}
		}
	}
}

// compareHubs checks that two hubs have the same allocations, and the same status, epoch and applied row for
// each node.
func (q *quietJudge) compareHubs(a, b Hub) {
	other := map[fleet.AllocID]fleet.Alloc{}
	for _, x := range b.Allocs {
		other[x.ID] = x
	}
	for _, x := range a.Allocs {
		y, ok := other[x.ID]
		if !ok || x.ClientStatus != y.ClientStatus || x.DesiredStatus != y.DesiredStatus || x.NodeID != y.NodeID || x.ModifyIndex != y.ModifyIndex {
			q.addViolation(Settled, "%s and %s disagree on allocation %s", a.Name, b.Name, fleet.Short(x.ID))
		}
	}
	for _, x := range a.Nodes {
		y := findNode(b.Nodes, x.ID)
		if y == nil || x.Status != y.Status || x.Epoch != y.Epoch || x.Applied != y.Applied {
			q.addViolation(Settled, "%s and %s disagree on node %s", a.Name, b.Name, x.Name)
		}
	}
	if len(a.Allocs) != len(b.Allocs) {
		q.addViolation(Settled, "%s has %d allocations, %s %d", a.Name, len(a.Allocs), b.Name, len(b.Allocs))
	}
}

// Committed checks invariant 7 at one hub: the allocations of each node fit into its free resources. It returns
// a violation for each node that is over-committed.
func Committed(hub string, nodes []fleet.Node, allocs []fleet.Alloc) []Violation {
	used := map[fleet.NodeID]fleet.Resources{}
	for i := range allocs {
		if a := &allocs[i]; a.OccupiesNode() {
			used[a.NodeID] = used[a.NodeID].Add(fleet.Resources(a.AllocatedResources))
		}
	}
	var vs []Violation
	for i := range nodes {
		n := &nodes[i]
		if dim := used[n.ID].Exceeds(n.Free()); dim != "" {
			message := fmt.Sprintf("%s: node %s is over-committed in %s: %+v of %+v", hub, n.Name, dim, used[n.ID], n.Free())
			vs = append(vs, Violation{Invariant: NoOvercommit, Where: n.Name, Message: message})
		}
	}
	return vs
}

// findNode returns the node with an id; nil: there is none.
func findNode(nodes []fleet.Node, id fleet.NodeID) *fleet.Node {
	for i := range nodes {
		if nodes[i].ID == id {
			return &nodes[i]
		}
	}
	return nil
}

// sortedTasks returns a map's keys, sorted by allocation and task.
func sortedTasks[V any](m map[TaskKey]V) []TaskKey {
	return slices.SortedFunc(maps.Keys(m), func(x, y TaskKey) int {
		return cmp.Or(cmp.Compare(x.Alloc, y.Alloc), cmp.Compare(x.Task, y.Task))
	})
}

// sorted returns a map's keys in order, so that two runs report the same in the same order.
func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
