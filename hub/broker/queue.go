package broker

import (
	"container/heap"
	"slices"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/planted"
)

// place is where an evaluation is in the broker.
type place int

const (
	delayed     place = iota // until its WaitUntil
	pending                  // behind another one of its job
	ready                    // for the next worker
	outstanding              // with a worker
	retrying                 // given back, until it is delivered again
	failed                   // delivered too often, until the state says so
	blocked                  // until there is capacity
)

// entry is an evaluation in the broker.
type entry struct {
	eval       *fleet.Evaluation // as the state has it
	place      place
	token      string
	hub        fleet.HubID // whose worker has it; "": this one's
	delivered  fleet.Index // eval.ModifyIndex when it was handed out
	deliveries int
	alarm      uint64 // number of the alarm that counts; see alarms
	heapAt     int    // position among the ready ones
}

// handled reports whether the state changed since the delivery, so that there is
// nothing to do again.
func (e *entry) handled() bool { return e.eval.Terminal() || e.eval.ModifyIndex > e.delivered }

type jobKey struct {
	namespace string
	id        fleet.JobID
}

func jobOf(e *fleet.Evaluation) jobKey { return jobKey{e.Namespace, e.JobID} }

// line is one job's evaluations: at most one is ready, with a worker, or on its
// way back from one.
type line struct {
	active  *entry
	pending []*entry
	blocked *entry
}

// queue is everything that the broker holds while this hub leads. The Broker's
// mutex guards it.
type queue struct {
	cfg    Config
	cursor fleet.Index // of the state taken in so far
	evals  map[fleet.EvalID]*entry
	lines  map[jobKey]*line
	ready  map[string]*readyHeap // by job type
	alarms *alarms

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
	ch    chan Delivery // room for one; closed when this hub stops leading
}

func newQueue(cfg Config) *queue {
	return &queue{
		cfg: cfg, evals: map[fleet.EvalID]*entry{}, lines: map[jobKey]*line{},
		ready: map[string]*readyHeap{}, alarms: newAlarms(), reapable: make(chan struct{}, 1),
	}
}

// sync takes in what changed in the state up to v.
func (q *queue) sync(v *state.View) {
	for e := range v.EvalsSince(q.cursor) {
		q.take(e, v)
	}
	q.unblock(v, q.cursor)
	q.cursor = max(q.cursor, v.Index())
	q.dispatch()
}

// take takes in an evaluation that changed.
func (q *queue) take(eval *fleet.Evaluation, v *state.View) {
	e := q.evals[eval.ID]
	switch {
	case e == nil && eval.Terminal():
	case e == nil:
		e = &entry{eval: eval}
		q.evals[eval.ID] = e
		q.admit(e, v)
	case e.place == outstanding:
		e.eval = eval // what follows is seen to when the worker answers
	case eval.Terminal():
		q.leaveLine(e)
		q.forget(e)
	default:
		q.leaveLine(e)
		e.eval = eval
		q.admit(e, v)
	}
}

// admit finds the place of an evaluation that is in none.
func (q *queue) admit(e *entry, v *state.View) {
	switch {
	case e.eval.ShouldBlock():
		q.block(e, v)
	case time.Until(e.eval.WaitUntil) > 0:
		e.place = delayed
		q.alarms.arm(e, e.eval.WaitUntil)
	default:
		q.enqueue(e)
	}
}

func (q *queue) line(e *entry) *line {
	k := jobOf(e.eval)
	if q.lines[k] == nil {
		q.lines[k] = &line{}
	}
	return q.lines[k]
}

// enqueue makes an evaluation ready, or puts it behind another one of its job.
func (q *queue) enqueue(e *entry) {
	q.alarms.disarm(e)
	l := q.line(e)
	if l.active != nil && l.active != e {
		e.place = pending
		l.pending = append(l.pending, e)
		return
	}
	l.active = e
	e.place = ready
	h := q.ready[e.eval.Type]
	if h == nil {
		h = &readyHeap{}
		q.ready[e.eval.Type] = h
	}
	heap.Push(h, e)
}

// leaveLine takes an evaluation out of its place.
func (q *queue) leaveLine(e *entry) {
	q.alarms.disarm(e)
	l := q.line(e)
	switch e.place {
	case pending:
		l.pending = slices.DeleteFunc(l.pending, func(p *entry) bool { return p == e })
	case ready:
		heap.Remove(q.ready[e.eval.Type], e.heapAt)
	case failed:
		q.failed = slices.DeleteFunc(q.failed, func(f *entry) bool { return f == e })
	case blocked:
		l.blocked = nil
	}
	if l.active == e {
		l.active = nil
		q.promote(l)
	}
	q.tidy(e, l)
}

func (q *queue) tidy(e *entry, l *line) {
	if l.active == nil && l.blocked == nil && len(l.pending) == 0 {
		delete(q.lines, jobOf(e.eval))
	}
}

func (q *queue) forget(e *entry) { delete(q.evals, e.eval.ID) }

// promote lets the newest evaluation behind go next, and gives up the others: it
// looks at all that they would have.
func (q *queue) promote(l *line) {
	if len(l.pending) == 0 {
		return
	}
	newest := slices.MaxFunc(l.pending, func(a, b *entry) int { return byChange(a.eval, b.eval) })
	for _, e := range l.pending {
		if e != newest {
			q.supersede(e, newest)
		}
	}
	l.pending = nil
	q.enqueue(newest)
}

// supersede gives an evaluation up for another one of its job.
func (q *queue) supersede(e, by *entry) {
	q.forget(e)
	q.cancelable = append(q.cancelable, cancellation{e.eval, by.eval.ID})
	q.toReap()
}

func (q *queue) toReap() {
	select {
	case q.reapable <- struct{}{}:
	default:
	}
}

// acked ends a delivery whose evaluation the state has dealt with.
func (q *queue) acked(e *entry) {
	eval := e.eval
	e.token, e.deliveries = "", 0
	q.leaveLine(e)
	if eval.Terminal() {
		q.forget(e)
		return
	}
	q.admit(e, q.cfg.State.View())
}

// nacked takes a delivery back.
func (q *queue) nacked(e *entry) {
	e.token = ""
	switch {
	case e.eval.Terminal():
		q.acked(e)
	case e.deliveries >= q.cfg.DeliveryLimit:
		q.alarms.disarm(e)
		e.place = failed
		q.failed = append(q.failed, e)
		q.toReap()
	default:
		delay := q.cfg.FirstDelay
		if e.deliveries > 1 {
			delay = q.cfg.NextDelay
		}
		e.place = retrying
		q.alarms.arm(e, time.Now().Add(delay))
	}
}

// fire makes the deadlines up to now come true and returns the next one.
func (q *queue) fire(now time.Time) (next time.Time, armed bool) {
	for {
		e, at, armed := q.alarms.due(now)
		if e == nil {
			q.dispatch()
			return at, armed
		}
		switch e.place {
		case delayed, retrying:
			q.enqueue(e)
		case blocked:
			q.line(e).blocked = nil
			q.enqueue(e)
		case outstanding:
			if planted.On(planted.ForgetDelivery) {
				continue
			}
			q.cfg.Logger.Warn("evaluation not acknowledged in time", "eval_id", e.eval.ID)
			q.sync(q.cfg.State.View())
			q.nacked(e)
		}
	}
}

// wait lines a worker up.
func (q *queue) wait(hub fleet.HubID, types []string) *waiter {
	w := &waiter{hub: hub, types: types, ch: make(chan Delivery, 1)}
	q.waiters = append(q.waiters, w)
	q.dispatch()
	return w
}

// leave is the end of a worker's wait. What it was handed in the same moment
// goes back as if nothing had happened.
func (q *queue) leave(w *waiter) {
	q.waiters = slices.DeleteFunc(q.waiters, func(o *waiter) bool { return o == w })
	select {
	case d, ok := <-w.ch:
		if e := q.evals[d.Eval.ID]; ok && e.place == outstanding && e.token == d.Token {
			e.deliveries--
			q.enqueue(e)
			q.dispatch()
		}
	default:
	}
}

// release makes what workers of a hub hold ready for others, and counts it. That
// a hub went counts as a delivery: an evaluation may be what it died of.
func (q *queue) release(hub fleet.HubID) int {
	var held []*entry
	for _, e := range q.evals {
		if e.place == outstanding && e.hub == hub && !planted.On(planted.ForgetDelivery) {
			held = append(held, e)
		}
	}
	slices.SortFunc(held, func(a, b *entry) int { return byChange(a.eval, b.eval) })
	for _, e := range held {
		if e.token = ""; e.eval.Terminal() || e.deliveries >= q.cfg.DeliveryLimit {
			q.nacked(e)
			continue
		}
		q.enqueue(e)
	}
	q.dispatch()
	return len(held)
}

// dispatch hands ready evaluations to waiting workers, first come first served.
func (q *queue) dispatch() {
	q.waiters = slices.DeleteFunc(q.waiters, func(w *waiter) bool {
		e := q.best(w.types)
		if e == nil {
			return false
		}
		e.place, e.token, e.hub = outstanding, q.cfg.NewID(), w.hub
		e.delivered = e.eval.ModifyIndex
		e.deliveries++
		q.alarms.arm(e, time.Now().Add(q.cfg.NackTimeout))
		w.ch <- Delivery{Eval: e.eval, Token: e.token, WaitIndex: q.cursor}
		return true
	})
}

// best takes the most urgent ready evaluation of the types (none: of any).
func (q *queue) best(types []string) *entry {
	var from *readyHeap
	for t, h := range q.ready {
		if len(*h) == 0 || len(types) > 0 && !slices.Contains(types, t) {
			continue
		}
		if from == nil || before((*h)[0].eval, (*from)[0].eval) {
			from = h
		}
	}
	if from == nil {
		return nil
	}
	return heap.Pop(from).(*entry)
}

func (q *queue) stats() Stats {
	s := Stats{Cancelable: len(q.cancelable), Failed: len(q.failed)}
	for _, e := range q.evals {
		switch e.place {
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
