package broker

import (
	"container/heap"
	"slices"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// evalState is where an evaluation is in the broker.
type evalState int

const (
	delayed     evalState = iota // until its WaitUntil
	pending                      // behind another one of its job
	ready                        // for the next worker
	outstanding                  // with a worker
	retrying                     // given back, until it is delivered again
	failed                       // delivered too often, until the state says so
	blocked                      // until there is capacity
)

// entry is an evaluation in the broker.
type entry struct {
	eval           *fleet.Evaluation // as the state has it
	evalState      evalState
	token          string
	hub            fleet.HubID // whose worker has it; "": this one's
	delivered      fleet.Index // eval.ModifyIndex when it was handed out
	deliveries     int
	deadlineSerial uint64 // number of the alarm that counts; see alarms
	heapIndex      int    // position among the ready ones
}

// isHandled reports whether the state changed since the delivery, so that there is
// nothing to do again.
func (e *entry) isHandled() bool { return e.eval.Terminal() || e.eval.ModifyIndex > e.delivered }

type jobKey struct {
	namespace string
	id        fleet.JobID
}

func jobOf(e *fleet.Evaluation) jobKey { return jobKey{e.Namespace, e.JobID} }

// jobQueue is one job's evaluations: at most one is ready, with a worker, or on its
// way back from one.
type jobQueue struct {
	active  *entry
	pending []*entry
	blocked *entry
}

// queue is everything that the broker holds while this hub leads. The Broker's
// mutex guards it.
type queue struct {
	cfg       Config
	cursor    fleet.Index // of the state taken in so far
	evals     map[fleet.EvalID]*entry
	jobQueues map[jobKey]*jobQueue
	ready     map[string]*readyHeap // by job type
	deadlines *deadlines

	cancelable []cancellation
	failed     []*entry
	reapable   chan struct{} // holds a token while there may be something to reap

	waiters []*waiter
}

// cancellation is an evaluation that another one made needless.
type cancellation struct {
	eval *fleet.Evaluation
	by   fleet.EvalID
}

type waiter struct {
	hub   fleet.HubID
	types []string
	ch    chan fleet.Delivery // room for one; closed when this hub stops leading
}

func newQueue(cfg Config) *queue {
	return &queue{
		cfg: cfg, evals: map[fleet.EvalID]*entry{}, jobQueues: map[jobKey]*jobQueue{},
		ready: map[string]*readyHeap{}, deadlines: newDeadlines(), reapable: make(chan struct{}, 1),
	}
}

// syncWithState takes in what changed in the state up to v.
func (q *queue) syncWithState(v *state.View) {
	for e := range v.EvalsSince(q.cursor) {
		q.applyEvalChange(e, v)
	}
	q.unblockEvals(v, q.cursor)
	q.cursor = max(q.cursor, v.Index())
	q.dispatchReady()
}

// applyEvalChange takes in an evaluation that changed.
func (q *queue) applyEvalChange(eval *fleet.Evaluation, v *state.View) {
	e := q.evals[eval.ID]
	switch {
	case e == nil && eval.Terminal():
	case e == nil:
		e = &entry{eval: eval}
		q.evals[eval.ID] = e
		q.admitEval(e, v)
	case e.evalState == outstanding:
		e.eval = eval // what follows is seen to when the worker answers
	case eval.Terminal():
		q.removeFromJobQueue(e)
		q.forgetEval(e)
	default:
		q.removeFromJobQueue(e)
		e.eval = eval
		q.admitEval(e, v)
	}
}

// admitEval finds the place of an evaluation that is in none.
func (q *queue) admitEval(e *entry, v *state.View) {
	switch {
	case e.eval.ShouldBlock():
		q.blockOrEnqueue(e, v)
	case time.Until(e.eval.WaitUntil) > 0:
		e.evalState = delayed
		q.deadlines.setDeadline(e, e.eval.WaitUntil)
	default:
		q.enqueueForJob(e)
	}
}

func (q *queue) jobQueueOf(e *entry) *jobQueue {
	k := jobOf(e.eval)
	if q.jobQueues[k] == nil {
		q.jobQueues[k] = &jobQueue{}
	}
	return q.jobQueues[k]
}

// enqueueForJob makes an evaluation ready, or puts it behind another one of its job.
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

// removeFromJobQueue takes an evaluation out of its place.
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

func (q *queue) deleteEmptyJobQueue(e *entry, l *jobQueue) {
	if l.active == nil && l.blocked == nil && len(l.pending) == 0 {
		delete(q.jobQueues, jobOf(e.eval))
	}
}

func (q *queue) forgetEval(e *entry) { delete(q.evals, e.eval.ID) }

// promotePending lets the newest evaluation behind go next, and gives up the others: it
// looks at all that they would have.
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

// supersedeEval gives an evaluation up for another one of its job.
func (q *queue) supersedeEval(e, by *entry) {
	q.forgetEval(e)
	q.cancelable = append(q.cancelable, cancellation{e.eval, by.eval.ID})
	q.signalReaper()
}

func (q *queue) signalReaper() {
	select {
	case q.reapable <- struct{}{}:
	default:
	}
}

// finishDelivery ends a delivery whose evaluation the state has dealt with.
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

// takeBackDelivery takes a delivery back.
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

// fireDeadlines makes the deadlines up to now come true and returns the next one.
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

// addWaiter lines a worker up.
func (q *queue) addWaiter(hub fleet.HubID, types []string) *waiter {
	w := &waiter{hub: hub, types: types, ch: make(chan fleet.Delivery, 1)}
	q.waiters = append(q.waiters, w)
	q.dispatchReady()
	return w
}

// removeWaiter is the end of a worker's wait. What it was handed in the same moment
// goes back as if nothing had happened.
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

// releaseDeliveriesOf makes what workers of a hub hold ready for others, and counts it. That
// a hub went counts as a delivery: an evaluation may be what it died of.
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

// dispatchReady hands ready evaluations to waiting workers, first come first served.
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

// popMostUrgent takes the most urgent ready evaluation of the types (none: of any).
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
