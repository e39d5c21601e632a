package broker

import (
	"container/heap"
	"slices"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// evalState is the state of an evaluation in the broker.
type evalState int

const (
	delayed     evalState = iota // waits for its WaitUntil
	pending                      // waits for another evaluation of its job
	ready                        // waits for a worker
	outstanding                  // delivered to a worker
	retrying                     // taken back, waits for the next delivery
	failed                       // delivered too often, to be written as failed
	blocked                      // waits for capacity
)

// entry is an evaluation in the broker.
type entry struct {
	eval           *fleet.Evaluation // as the state has it
	evalState      evalState
	token          string      // of the current delivery; "": none
	hub            fleet.HubID // the hub of the worker that has it; "": this hub
	delivered      fleet.Index // eval.ModifyIndex at the delivery
	deliveries     int
	deadlineSerial uint64 // serial of its valid deadline (see deadlines); 0: none
	heapIndex      int    // position in its readyHeap
}

// isHandled reports whether the evaluation has ended or changed since its delivery, so that it was
// processed.
func (e *entry) isHandled() bool { return e.eval.Terminal() || e.eval.ModifyIndex > e.delivered }

// jobKey identifies a job.
type jobKey struct {
	namespace string
	id        fleet.JobID
}

func jobKeyOf(e *fleet.Evaluation) jobKey { return jobKey{e.Namespace, e.JobID} }

// jobQueue holds the evaluations of one job. At most one, active, is ready, outstanding, retrying or
// failed.
type jobQueue struct {
	active  *entry
	pending []*entry
	blocked *entry
}

// queue is everything that the broker holds while this hub leads. The Broker's mutex guards it.
type queue struct {
	cfg       Config
	cursor    fleet.Index // the newest entry whose changes are applied
	evals     map[fleet.EvalID]*entry
	jobQueues map[jobKey]*jobQueue
	ready     map[string]*readyHeap // by job type
	deadlines *deadlines

	cancelable []cancellation // to be written as canceled
	failed     []*entry       // to be written as failed
	reapable   chan struct{}  // receives a token when one of the two lists has grown; capacity 1

	waiters []*waiter // workers that wait for an evaluation, in order of arrival
}

// cancellation is a superseded evaluation. by is the evaluation that supersedes it.
type cancellation struct {
	eval *fleet.Evaluation
	by   fleet.EvalID
}

// waiter is a worker that waits for an evaluation of one of the types (none: any).
type waiter struct {
	hub   fleet.HubID
	types []string
	ch    chan fleet.Delivery // capacity 1; closed when this hub stops leading
}

func newQueue(cfg Config) *queue {
	return &queue{
		cfg: cfg, evals: map[fleet.EvalID]*entry{}, jobQueues: map[jobKey]*jobQueue{},
		ready: map[string]*readyHeap{}, deadlines: newDeadlines(), reapable: make(chan struct{}, 1),
	}
}

// syncWithState applies the changes of evaluations up to v's index, unblocks evaluations, and dispatches ready ones to
// waiting workers.
func (q *queue) syncWithState(v *state.View) {
	for e := range v.EvalsSince(q.cursor) {
		q.applyEvalChange(e, v)
	}
	q.unblockEvals(v, q.cursor)
	q.cursor = max(q.cursor, v.Index())
	q.dispatchReady()
}

// applyEvalChange applies the change of one evaluation: it is added, moved to another state, or dropped if
// it is terminal. A change of an outstanding evaluation takes effect when its delivery ends.
func (q *queue) applyEvalChange(eval *fleet.Evaluation, v *state.View) {
	e := q.evals[eval.ID]
	switch {
	case e == nil && eval.Terminal():
	case e == nil:
		e = &entry{eval: eval}
		q.evals[eval.ID] = e
		q.admitEval(e, v)
	case e.evalState == outstanding:
		e.eval = eval // takes effect when the delivery ends
	case eval.Terminal():
		q.removeFromJobQueue(e)
		q.forgetEval(e)
	default:
		q.removeFromJobQueue(e)
		e.eval = eval
		q.admitEval(e, v)
	}
}

// admitEval makes an evaluation blocked, delayed, ready or pending. It must not be in any of these states.
func (q *queue) admitEval(e *entry, v *state.View) {
	switch {
	case e.eval.Status == fleet.EvalBlocked:
		q.blockOrEnqueue(e, v)
	case time.Until(e.eval.WaitUntil) > 0:
		e.evalState = delayed
		q.deadlines.setDeadline(e, e.eval.WaitUntil)
	default:
		q.enqueueForJob(e)
	}
}

// jobQueueOf returns the job queue of an evaluation. It makes an empty one if there is none.
func (q *queue) jobQueueOf(e *entry) *jobQueue {
	k := jobKeyOf(e.eval)
	if q.jobQueues[k] == nil {
		q.jobQueues[k] = &jobQueue{}
	}
	return q.jobQueues[k]
}

// enqueueForJob makes an evaluation ready, or pending if its job has another active evaluation.
func (q *queue) enqueueForJob(e *entry) {
	q.deadlines.cancelDeadline(e)
	l := q.jobQueueOf(e)
	if l.active != nil && l.active != e {
		e.evalState = pending
		l.pending = append(l.pending, e)
		return
	}
	l.active = e
	e.evalState = ready
	h := q.ready[e.eval.Type]
	if h == nil {
		h = &readyHeap{}
		q.ready[e.eval.Type] = h
	}
	heap.Push(h, e)
}

// removeFromJobQueue removes an evaluation from its state and its job queue. If it was the active one, a
// pending one of the job becomes active.
func (q *queue) removeFromJobQueue(e *entry) {
	q.deadlines.cancelDeadline(e)
	l := q.jobQueueOf(e)
	switch e.evalState {
	case pending:
		l.pending = slices.DeleteFunc(l.pending, func(p *entry) bool { return p == e })
	case ready:
		heap.Remove(q.ready[e.eval.Type], e.heapIndex)
	case failed:
		q.failed = slices.DeleteFunc(q.failed, func(f *entry) bool { return f == e })
	case blocked:
		l.blocked = nil
	}
	if l.active == e {
		l.active = nil
		q.promotePending(l)
	}
	q.deleteEmptyJobQueue(e, l)
}

// deleteEmptyJobQueue deletes the job queue of an evaluation if that is empty.
func (q *queue) deleteEmptyJobQueue(e *entry, l *jobQueue) {
	if l.active == nil && l.blocked == nil && len(l.pending) == 0 {
		delete(q.jobQueues, jobKeyOf(e.eval))
	}
}

// forgetEval drops an evaluation that is in no state any more.
func (q *queue) forgetEval(e *entry) { delete(q.evals, e.eval.ID) }

// promotePending enqueues the newest pending evaluation of a job. It supersedes the others: the newest one
// covers the same changes.
func (q *queue) promotePending(l *jobQueue) {
	if len(l.pending) == 0 {
		return
	}
	newest := slices.MaxFunc(l.pending, func(a, b *entry) int { return compareLastChange(a.eval, b.eval) })
	for _, e := range l.pending {
		if e != newest {
			q.supersedeEval(e, newest)
		}
	}
	l.pending = nil
	q.enqueueForJob(newest)
}

// supersedeEval drops an evaluation in favor of another one of its job, and has it written as canceled.
func (q *queue) supersedeEval(e, by *entry) {
	q.forgetEval(e)
	q.cancelable = append(q.cancelable, cancellation{e.eval, by.eval.ID})
	q.signalReaper()
}

// signalReaper wakes writeReapedEvals. It does not block.
func (q *queue) signalReaper() {
	select {
	case q.reapable <- struct{}{}:
	default:
	}
}

// finishDelivery ends the delivery of a processed evaluation. A terminal one is dropped, another one is
// admitted again.
func (q *queue) finishDelivery(e *entry) {
	eval := e.eval
	e.token, e.deliveries = "", 0
	q.removeFromJobQueue(e)
	if eval.Terminal() {
		q.forgetEval(e)
		return
	}
	q.admitEval(e, q.cfg.State.View())
}

// takeBackDelivery ends a delivery without a result. The evaluation is retried after a delay; after too
// many deliveries it fails; if it is terminal, it is dropped.
func (q *queue) takeBackDelivery(e *entry) {
	e.token = ""
	switch {
	case e.eval.Terminal():
		q.finishDelivery(e)
	case e.deliveries >= q.cfg.DeliveryLimit:
		q.deadlines.cancelDeadline(e)
		e.evalState = failed
		q.failed = append(q.failed, e)
		q.signalReaper()
	default:
		delay := q.cfg.FirstDelay
		if e.deliveries > 1 {
			delay = q.cfg.NextDelay
		}
		e.evalState = retrying
		q.deadlines.setDeadline(e, time.Now().Add(delay))
	}
}

// fireDeadlines handles all deadlines up to now: waiting evaluations are enqueued, unacknowledged
// deliveries are taken back. It returns the next deadline if armed.
func (q *queue) fireDeadlines(now time.Time) (next time.Time, armed bool) {
	for {
		e, at, armed := q.deadlines.popExpired(now)
		if e == nil {
			q.dispatchReady()
			return at, armed
		}
		switch e.evalState {
		case delayed, retrying:
			q.enqueueForJob(e)
		case blocked:
			q.jobQueueOf(e).blocked = nil
			q.enqueueForJob(e)
		case outstanding:
			q.cfg.Logger.Warn("evaluation not acknowledged in time", "eval_id", e.eval.ID)
			q.syncWithState(q.cfg.State.View())
			q.takeBackDelivery(e)
		}
	}
}

// addWaiter adds a worker that waits for an evaluation. The delivery is sent to its channel, possibly at
// once.
func (q *queue) addWaiter(hub fleet.HubID, types []string) *waiter {
	w := &waiter{hub: hub, types: types, ch: make(chan fleet.Delivery, 1)}
	q.waiters = append(q.waiters, w)
	q.dispatchReady()
	return w
}

// removeWaiter removes a worker that stops waiting. A delivery that it got in the same moment is undone,
// and does not count.
func (q *queue) removeWaiter(w *waiter) {
	q.waiters = slices.DeleteFunc(q.waiters, func(o *waiter) bool { return o == w })
	select {
	case d, ok := <-w.ch:
		if e := q.evals[d.Eval.ID]; ok && e.evalState == outstanding && e.token == d.Token {
			e.deliveries--
			q.enqueueForJob(e)
			q.dispatchReady()
		}
	default:
	}
}

// releaseDeliveriesOf takes back all deliveries to workers of a hub, makes their evaluations ready without
// a delay, and returns their number. They count as deliveries, because an evaluation may be the reason why
// the hub crashed.
func (q *queue) releaseDeliveriesOf(hub fleet.HubID) int {
	var held []*entry
	for _, e := range q.evals {
		if e.evalState == outstanding && e.hub == hub {
			held = append(held, e)
		}
	}
	slices.SortFunc(held, func(a, b *entry) int { return compareLastChange(a.eval, b.eval) })
	for _, e := range held {
		if e.token = ""; e.eval.Terminal() || e.deliveries >= q.cfg.DeliveryLimit {
			q.takeBackDelivery(e)
			continue
		}
		q.enqueueForJob(e)
	}
	q.dispatchReady()
	return len(held)
}

// dispatchReady delivers ready evaluations to waiting workers, the first waiter first.
func (q *queue) dispatchReady() {
	q.waiters = slices.DeleteFunc(q.waiters, func(w *waiter) bool {
		e := q.popMostUrgent(w.types)
		if e == nil {
			return false
		}
		e.evalState, e.token, e.hub = outstanding, q.cfg.NewID(), w.hub
		e.delivered = e.eval.ModifyIndex
		e.deliveries++
		q.deadlines.setDeadline(e, time.Now().Add(q.cfg.NackTimeout))
		w.ch <- fleet.Delivery{Eval: e.eval, Token: e.token, WaitIndex: q.cursor}
		return true
	})
}

// popMostUrgent removes and returns the most urgent ready evaluation of the types (none: any), or nil.
func (q *queue) popMostUrgent(types []string) *entry {
	var from *readyHeap
	for t, h := range q.ready {
		if len(*h) == 0 || len(types) > 0 && !slices.Contains(types, t) {
			continue
		}
		if from == nil || isMoreUrgent((*h)[0].eval, (*from)[0].eval) {
			from = h
		}
	}
	if from == nil {
		return nil
	}
	return heap.Pop(from).(*entry)
}

// countEvals counts the evaluations by state.
func (q *queue) countEvals() Stats {
	s := Stats{Cancelable: len(q.cancelable), Failed: len(q.failed)}
	for _, e := range q.evals {
		switch e.evalState {
		case delayed, retrying:
			s.Delayed++
		case pending:
			s.Pending++
		case ready:
			s.Ready++
		case outstanding:
			s.Outstanding++
		case blocked:
			s.Blocked++
			if e.eval.EscapedClass {
				s.Escaped++
			}
		}
	}
	return s
}
