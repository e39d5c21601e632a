// Package broker hands evaluations to the scheduler's workers: the leader's
// queue of what is to be looked at, rebuilt from the replicated state whenever
// this hub becomes the leader and dropped when it no longer is.
//
// hub.Open runs Run on leadership. Workers, of this hub or through hub/rpc of
// any other, call Dequeue, Ack and Nack; package planner asks with Pause whether
// a delivery still holds. Run has three goroutines: one learns from the state,
// one keeps deadlines, one writes (through Config.Applier) what people are to
// see: superseded evaluations become canceled, those that were delivered too
// often fail. They block on the state, on time, and on the log; nothing else
// waits for them.
//
// The broker learns of evaluations from the state alone, by the entry of their
// last change (View.EvalsSince): each change is taken once, whoever made it, in
// the log's order, and an evaluation leaves the broker only when the state says
// that it is over. It persists nothing.
package broker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"skerry/fleet"
	"skerry/hub/state"
)

// Config is what a Broker needs. Zero durations and counts take the defaults.
type Config struct {
	State   *state.Store
	Applier state.Applier
	Logger  *slog.Logger
	NewID   func() string // of follow-ups and tokens; nil: random UUIDs

	NackTimeout   time.Duration // 60 s: a delivery neither acknowledged nor refused is taken back
	DeliveryLimit int           // 3: deliveries before an evaluation fails
	FirstDelay    time.Duration // 1 s: before the second delivery
	NextDelay     time.Duration // 20 s: before later ones
	CancelBatch   int           // 256: evaluations canceled in one entry
}

// Broker is the leader's queue of evaluations. All methods may be called by any
// goroutine.
type Broker struct {
	cfg Config

	mu    sync.Mutex
	queue *queue // nil while this hub does not lead
}

// Stats counts what the broker holds.
type Stats struct {
	Ready       int // for the next worker
	Outstanding int // with a worker
	Pending     int // behind another one of their job
	Delayed     int // until their time, or until they are delivered again
	Blocked     int // until there is capacity
	Escaped     int // of Blocked: by a constraint that classes do not tell
	Cancelable  int // superseded, about to be canceled
	Failed      int // delivered too often, about to fail
}

// New validates cfg.
func New(cfg Config) (*Broker, error) {
	switch {
	case cfg.State == nil:
		return nil, errors.New("make broker: no state")
	case cfg.Applier == nil:
		return nil, errors.New("make broker: nothing to apply with")
	case cfg.NackTimeout < 0 || cfg.FirstDelay < 0 || cfg.NextDelay < 0:
		return nil, errors.New("make broker: a duration is negative")
	case cfg.DeliveryLimit < 0 || cfg.CancelBatch < 0:
		return nil, errors.New("make broker: a count is negative")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.NewID == nil {
		cfg.NewID = func() string { return fleet.NewUUID(nil) }
	}
	or := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	or(&cfg.NackTimeout, 60*time.Second)
	or(&cfg.FirstDelay, time.Second)
	or(&cfg.NextDelay, 20*time.Second)
	if cfg.DeliveryLimit == 0 {
		cfg.DeliveryLimit = 3
	}
	if cfg.CancelBatch == 0 {
		cfg.CancelBatch = 256
	}
	return &Broker{cfg: cfg}, nil
}

var errNotLeader = fleet.Errorf(fleet.CodeNotLeader, "this hub hands out no evaluations: it does not lead").
	WithHint("ask the leader")

// Run fills the broker from the state and serves until ctx is done. It is called
// once for each time this hub leads; in between, Dequeue is refused with
// CodeNotLeader.
func (b *Broker) Run(ctx context.Context) error {
	b.mu.Lock()
	if b.queue != nil {
		b.mu.Unlock()
		return errors.New("run broker: it is running")
	}
	q := newQueue(b.cfg)
	b.queue = q
	b.mu.Unlock()
	defer b.dropQueue()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return b.followState(ctx, q) })
	group.Go(func() error { return b.runDeadlines(ctx, q) })
	group.Go(func() error { return b.writeReapedEvals(ctx, q) })
	return group.Wait()
}

func (b *Broker) dropQueue() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.queue.waiters {
		close(w.ch)
	}
	b.queue = nil
}

// followState takes in what changes in the state.
func (b *Broker) followState(ctx context.Context, q *queue) error {
	for {
		b.mu.Lock()
		v := b.cfg.State.Watch()
		q.syncWithState(v)
		b.mu.Unlock()
		if v.Changed(ctx) != nil {
			return nil
		}
	}
}

// runDeadlines makes deadlines come true.
func (b *Broker) runDeadlines(ctx context.Context, q *queue) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-q.deadlines.earlier:
		}
		b.mu.Lock()
		next, armed := q.fireDeadlines(time.Now())
		b.mu.Unlock()
		timer.Stop()
		if armed {
			timer.Reset(time.Until(next))
		}
	}
}

// Dequeue waits for an evaluation of one of the job types (none: of any) and
// hands it out to a worker of this hub.
func (b *Broker) Dequeue(ctx context.Context, types []string) (fleet.Delivery, error) {
	return b.DequeueFor(ctx, "", types)
}

// DequeueFor is Dequeue for a worker of another hub, which Release may take the
// delivery from.
func (b *Broker) DequeueFor(ctx context.Context, hub fleet.HubID, types []string) (fleet.Delivery, error) {
	b.mu.Lock()
	if b.queue == nil {
		b.mu.Unlock()
		return fleet.Delivery{}, errNotLeader
	}
	w := b.queue.addWaiter(hub, types)
	b.mu.Unlock()
	select {
	case d, ok := <-w.ch:
		if !ok {
			return fleet.Delivery{}, errNotLeader
		}
		return d, nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.queue != nil {
		b.queue.removeWaiter(w)
	}
	return fleet.Delivery{}, fleet.Errorf(fleet.CodeTimeout, "dequeue evaluation: %v", context.Cause(ctx))
}

// Ack ends a delivery: the evaluation was dealt with. Where the state says that
// it is still pending or blocked, as it was when delivered, that is not so, and
// it is delivered again after a delay, as with Nack.
func (b *Broker) Ack(id fleet.EvalID, token string) error {
	return b.withDelivery(id, token, func(q *queue, e *entry) {
		if e.isHandled() {
			q.finishDelivery(e)
			return
		}
		b.cfg.Logger.Warn("evaluation acknowledged and not dealt with", "eval_id", id, "status", e.eval.Status)
		q.takeBackDelivery(e)
	})
}

// Nack gives a delivery back, to be delivered again after a delay.
func (b *Broker) Nack(id fleet.EvalID, token string) error {
	return b.withDelivery(id, token, func(q *queue, e *entry) { q.takeBackDelivery(e) })
}

// Release takes back all that workers of a hub hold, because it is out of reach:
// others need not wait for the deadline of what it will never acknowledge. What
// it still sends about these deliveries is refused.
func (b *Broker) Release(hub fleet.HubID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.queue == nil {
		return
	}
	b.queue.syncWithState(b.cfg.State.View())
	if n := b.queue.releaseDeliveriesOf(hub); n > 0 {
		b.cfg.Logger.Info("evaluations taken back from a hub that is out of reach", "hub", hub, "count", n)
	}
}

// Pause stops a delivery's deadline while its plan is with the planner, Resume
// starts it anew. Both are refused with CodeConflict where the delivery does not
// hold any more.
func (b *Broker) Pause(id fleet.EvalID, token string) error {
	return b.withDelivery(id, token, func(q *queue, e *entry) { q.deadlines.cancelDeadline(e) })
}

// Resume is the opposite of Pause.
func (b *Broker) Resume(id fleet.EvalID, token string) error {
	return b.withDelivery(id, token, func(q *queue, e *entry) { q.deadlines.setDeadline(e, time.Now().Add(b.cfg.NackTimeout)) })
}

// withDelivery does something about a delivery that holds, on what the state says now.
func (b *Broker) withDelivery(id fleet.EvalID, token string, do func(*queue, *entry)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.queue == nil {
		return errNotLeader
	}
	e := b.queue.evals[id]
	if e == nil || e.evalState != outstanding || e.token != token {
		return fleet.Errorf(fleet.CodeConflict, "evaluation %s is not with this worker any more", fleet.Short(id))
	}
	b.queue.syncWithState(b.cfg.State.View())
	do(b.queue, e)
	b.queue.dispatchReady()
	return nil
}

// Stats counts what is held now; all is zero while this hub does not lead.
func (b *Broker) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.queue == nil {
		return Stats{}
	}
	return b.queue.countEvals()
}
