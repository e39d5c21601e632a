package state

import (
	"iter"
	"slices"
	"strconv"
	"strings"

	"skerry/fleet"
)

const (
	indexChanged  = "changed"
	indexAwaiting = "awaiting"
	indexBlocked  = "blocked"
)

var evalTable = table[fleet.Evaluation]{
	name: "evals", key: evalKey, announced: true,
	indexes: []tableIndex[fleet.Evaluation]{
		{name: indexAwaiting, key: evalKey, belongs: func(r *fleet.Evaluation) bool { return len(awaitedNodes(r)) > 0 }},
		{name: indexJob, key: evalJobKey},
		{name: indexBlocked, key: evalJobKey, belongs: isBlocked},
		{name: indexChanged, key: func(r *fleet.Evaluation) []byte { return append(indexKey(r.ModifyIndex), evalKey(r)...) }},
	},
	records: []record[fleet.Evaluation]{rowRecord[fleet.Evaluation](11)},
}

func evalKey(e *fleet.Evaluation) []byte { return idKey(e.ID) }

func evalJobKey(e *fleet.Evaluation) []byte { return key(e.Namespace, string(e.JobID), string(e.ID)) }

func isBlocked(e *fleet.Evaluation) bool { return e.Status == fleet.EvalBlocked }

// evalsStore applies the command Evals: it stores new and changed evaluations.
func (t *tx) evalsStore(c Evals) Result {
	for _, e := range c.Evals {
		if e.ID == "" {
			return refusal(fleet.CodeInvalid, "store evaluation of job %s: it has no id", e.JobID)
		}
		t.putEval(e, c.Now)
	}
	return Result{}
}

// putEval stores an evaluation, new or changed, and updates the summary of its job. A stored terminal
// evaluation is not changed. A complete evaluation without failed placements cancels the blocked ones of
// its job.
func (t *tx) putEval(e fleet.Evaluation, now int64) {
	k := idKey(e.ID)
	e.CreateIndex, e.CreateTime = t.index, now
	old := evalTable.currentRow(t, k)
	if old != nil {
		if old.Terminal() {
			return
		}
		e.Namespace, e.JobID = old.Namespace, old.JobID
		e.CreateIndex, e.CreateTime = old.CreateIndex, old.CreateTime
	}
	summary := t.ownJobSummary(e.Namespace, e.JobID)
	if old != nil {
		summary.open--
	}
	if !e.Terminal() {
		summary.open++
	}
	e.ModifyIndex, e.ModifyTime = t.index, now
	t.releaseAwaitedNodes(old, &e)
	evalTable.putRow(t, &e)
	evalTable.markChanged(t)
	switch e.Status {
	case fleet.EvalComplete:
		t.setQueuedAllocs(e.Namespace, e.JobID, e.QueuedAllocations)
		if len(e.FailedTGAllocs) == 0 && e.BlockedEval == "" && summary.open > 0 {
			t.cancelBlocked(&e, now)
		}
	case fleet.EvalBlocked:
		if len(e.QueuedAllocations) > 0 {
			t.setQueuedAllocs(e.Namespace, e.JobID, e.QueuedAllocations)
		}
	}
}

// awaitedNodes returns the nodes on which others make room for an evaluation; none if it is nil or
// terminal.
func awaitedNodes(e *fleet.Evaluation) []fleet.NodeID {
	if e == nil || e.Terminal() {
		return nil
	}
	return e.AwaitedNodes
}

// releaseAwaitedNodes records free capacity on the nodes that old awaited and now does not: the evaluation
// may have taken less than was freed, or other nodes. Evaluations that are blocked for capacity then run.
func (t *tx) releaseAwaitedNodes(old, now *fleet.Evaluation) {
	still := awaitedNodes(now)
	for _, id := range awaitedNodes(old) {
		if _, found := slices.BinarySearch(still, id); !found {
			t.noteFreedNode(id)
		}
	}
}

// cancelBlocked cancels the blocked evaluations of a job after the evaluation done has placed everything.
func (t *tx) cancelBlocked(done *fleet.Evaluation, now int64) {
	for _, e := range t.blockedEvals(done.Namespace, done.JobID) {
		c := *e
		c.Status = fleet.EvalCanceled
		c.StatusDescription = "evaluation " + fleet.Short(done.ID) + " placed everything"
		t.putEval(c, now)
	}
}

// blockedEvals returns the job's blocked evaluations, by id. It does not read those that have ended.
func (t *tx) blockedEvals(ns string, id fleet.JobID) []*fleet.Evaluation {
	var out []*fleet.Evaluation
	changedRows := evalTable.changedRows(t)
	for e := range evalTable.scanPrefix(t.base, indexBlocked, jobKeyOf(ns, id)) {
		if _, changed := changedRows[string(idKey(e.ID))]; !changed {
			out = append(out, e)
		}
	}
	for _, e := range changedRows {
		if e != nil && e.Namespace == ns && e.JobID == id && isBlocked(e) {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b *fleet.Evaluation) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return out
}

// evalDelete applies the command EvalDelete: it removes terminal evaluations and ended allocations.
// Unknown ids are ignored; if one may not be removed, the command is refused.
func (t *tx) evalDelete(c EvalDelete) Result {
	for _, id := range c.IDs {
		k := idKey(id)
		switch e := evalTable.currentRow(t, k); {
		case e == nil:
			continue
		case !e.Terminal():
			return refusal(fleet.CodeConflict, "delete evaluation %s: it is %s", id, e.Status)
		default:
			t.ownJobSummary(e.Namespace, e.JobID)
			evalTable.removeRow(t, k)
			evalTable.markChanged(t)
		}
	}
	for _, id := range c.Allocs {
		switch a := t.currentAlloc(id); {
		case a == nil:
			continue
		case !a.ClientTerminal() || a.OccupiesNode() && !t.isCollectable(&a.Alloc):
			return refusal(fleet.CodeConflict, "delete allocation %s: it is %s", id, a.ClientStatus)
		default:
			t.dropAlloc(a)
		}
	}
	return Result{}
}

// pendingEvals collects the evaluations that an entry causes, at most one for each job. storePendingEvals
// stores them.
type pendingEvals struct {
	seed string // evaluation ids derive from it
	now  int64
	jobs map[string]*fleet.Evaluation // by jobKeyOf
}

// triggerRank orders triggers: an evaluation has only one, and the one with the highest rank wins. A
// trigger that is not listed has rank 0.
var triggerRank = map[string]int{
	fleet.TriggerJobDeregister:    4,
	fleet.TriggerReconnect:        3,
	fleet.TriggerRetryFailedAlloc: 2,
	fleet.TriggerNodeUpdate:       1,
}

// requestEval asks for an evaluation of a job. Of several requests for a job the trigger with the highest
// rank wins, and the first node; node may be nil.
func (w *pendingEvals) requestEval(ns string, id fleet.JobID, trigger string, node *fleet.Node) {
	if w.jobs == nil {
		w.jobs = map[string]*fleet.Evaluation{}
	}
	k := string(jobKeyOf(ns, id))
	e := w.jobs[k]
	if e == nil {
		e = &fleet.Evaluation{Namespace: ns, JobID: id, Status: fleet.EvalPending, TriggeredBy: trigger}
		if node != nil {
			e.NodeID, e.NodeModifyIndex = node.ID, node.ModifyIndex
		}
		w.jobs[k] = e
	}
	if triggerRank[trigger] > triggerRank[e.TriggeredBy] {
		e.TriggeredBy = trigger
	}
}

// storePendingEvals stores the requested evaluations and returns their ids. Ids derive from the seed, the
// job and the entry, so they are the same on every hub and never repeat.
func (t *tx) storePendingEvals(w *pendingEvals) []fleet.EvalID {
	keys := make([]string, 0, len(w.jobs))
	for k := range w.jobs {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	var ids []fleet.EvalID
	for _, k := range keys {
		e := w.jobs[k]
		e.ID = fleet.EvalID(fleet.DeriveUUID(w.seed, e.Namespace, string(e.JobID), strconv.FormatUint(uint64(t.index), 10)))
		e.Priority, e.Type = fleet.JobPriorityDefault, fleet.JobTypeService
		if job := t.jobOf(e.Namespace, e.JobID); job != nil {
			e.Priority, e.Type, e.JobModifyIndex = job.Priority, job.Type, job.JobModifyIndex
		}
		t.putEval(*e, w.now)
		ids = append(ids, e.ID)
	}
	return ids
}

// jobOf returns a job. If the job was purged it returns the job of one of its allocations, or nil.
func (t *tx) jobOf(ns string, id fleet.JobID) *fleet.Job {
	if row := jobTable.currentRow(t, jobKeyOf(ns, id)); row != nil {
		return row.job
	}
	if r := jobSummaryTable.currentRow(t, jobKeyOf(ns, id)); r != nil {
		for _, a := range r.allocs {
			if row := t.currentAlloc(a); row != nil && row.Job != nil {
				return row.Job
			}
		}
	}
	return nil
}

// Eval returns an evaluation; ok is false if there is none.
func (v *View) Eval(id fleet.EvalID) (*fleet.Evaluation, bool) {
	return evalTable.watchRow(v, idKey(id))
}

// Evals iterates over a namespace's evaluations ("*": all namespaces) whose id starts with prefix.
func (v *View) Evals(ns, prefix string) iter.Seq[*fleet.Evaluation] {
	rows := evalTable.watchTable(v, indexID, []byte(prefix))
	return func(yield func(*fleet.Evaluation) bool) {
		for e := range rows {
			if (ns == "*" || e.Namespace == ns) && !yield(e) {
				return
			}
		}
	}
}

// EvalsByJob iterates over a job's evaluations. The job itself may be purged.
func (v *View) EvalsByJob(ns string, id fleet.JobID) iter.Seq[*fleet.Evaluation] {
	return evalTable.watchPrefix(v, indexJob, jobKeyOf(ns, id))
}

// AwaitingEvals iterates over the evaluations of all namespaces for which nodes are being freed.
func (v *View) AwaitingEvals() iter.Seq[*fleet.Evaluation] {
	return evalTable.watchPrefix(v, indexAwaiting, nil)
}

// EvalsSince iterates over the evaluations that changed after index, the oldest change first.
func (v *View) EvalsSince(index fleet.Index) iter.Seq[*fleet.Evaluation] {
	return evalTable.watchFrom(v, indexChanged, indexKey(index+1))
}
