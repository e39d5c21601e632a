// Package broker delivers evaluations to the scheduler's workers. It is the leader's queue: it is rebuilt
// from the replicated state when this hub becomes the leader, and dropped when it no longer is.
//
// hub.Open runs Run while this hub leads. Workers, of this hub or through hub/rpc of any other, call
// Dequeue, Ack and Nack. Package planner calls Pause to check that a delivery is still valid. Run has
// three goroutines: one follows the state, one handles deadlines, and one writes (through Config.Applier)
// evaluations that are superseded (canceled) or were delivered too often (failed). They block on the
// state, on time, and on the log; nothing else waits for them.
//
// The broker learns of evaluations from the state alone, in the order of their last change
// (View.EvalsSince). So it sees each change once, whoever made it. An evaluation leaves the broker when
// the state says that it is terminal, or when another one of its job supersedes it. The broker persists
// nothing.
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

// Config configures a Broker. Zero durations and counts take the defaults.
type Config struct {
	State   *state.Store
	Applier state.Applier
	Logger  *slog.Logger
	NewID   func() string // makes the ids of follow-ups, and tokens; nil: random UUIDs

	NackTimeout   time.Duration // 60 s: after this time without Ack or Nack a delivery is taken back
	DeliveryLimit int           // 3: number of deliveries after which an evaluation fails
	FirstDelay    time.Duration // 1 s: delay before the second delivery
	NextDelay     time.Duration // 20 s: delay before later deliveries
	CancelBatch   int           // 256: evaluations canceled in one entry
}

// Broker is the leader's queue of evaluations. Any goroutine may call its methods.
type Broker struct {
	cfg Config

	mu    sync.Mutex
	queue *queue // nil while this hub does not lead
}

// Stats counts the evaluations that the broker holds.
type Stats struct {
	Ready       int // wait for a worker
	Outstanding int // delivered to a worker
	Pending     int // wait for another evaluation of their job
	Delayed     int // wait for their WaitUntil, or for the next delivery
	Blocked     int // wait for capacity
	Escaped     int // of Blocked: with constraints that node classes do not decide
	Cancelable  int // superseded, about to be canceled
	Failed      int // delivered too often, about to fail
}

// New validates the configuration and fills in its defaults. It starts nothing.
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

// Run fills the broker from the state and serves until ctx ends. It runs once in each leadership of this
// hub; at other times Dequeue fails with CodeNotLeader.
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

// dropQueue drops all evaluations, and makes waiting workers return with errNotLeader.
func (b *Broker) dropQueue() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.queue.waiters {
		close(w.ch)
	}
	b.queue = nil
}

// followState applies each change of the state to the queue, until ctx ends.
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

// runDeadlines handles the deadlines of the queue when they expire, until ctx ends.
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

// Dequeue blocks until there is an evaluation of one of the job types (none: any type), and delivers it to
// a worker of this hub. The worker must call Ack or Nack.
func (b *Broker) Dequeue(ctx context.Context, types []string) (fleet.Delivery, error) {
	return b.DequeueFor(ctx, "", types)
}

// DequeueFor is Dequeue for a worker of another hub. Release(hub) takes the delivery back.
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

// Ack ends a delivery as processed. If the state shows that the evaluation is unchanged since the
// delivery, it was not processed, and Ack acts like Nack. CodeConflict: the delivery is no longer valid.
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

// Nack ends a delivery without a result. The evaluation is delivered again after a delay, or fails after
// Config.DeliveryLimit deliveries. CodeConflict: the delivery is no longer valid.
func (b *Broker) Nack(id fleet.EvalID, token string) error {
	return b.withDelivery(id, token, func(q *queue, e *entry) { q.takeBackDelivery(e) })
}

// Release takes back all deliveries to workers of a hub that is out of reach, so that other workers need
// not wait for their deadlines. Calls of that hub about these deliveries then fail.
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

// Pause stops the deadline of a delivery while its plan is with the planner; Resume restarts it. Both fail
// with CodeConflict if the delivery is no longer valid.
func (b *Broker) Pause(id fleet.EvalID, token string) error {
	return b.withDelivery(id, token, func(q *queue, e *entry) { q.deadlines.cancelDeadline(e) })
}

// Resume gives a paused delivery its full deadline again.
func (b *Broker) Resume(id fleet.EvalID, token string) error {
	return b.withDelivery(id, token, func(q *queue, e *entry) { q.deadlines.setDeadline(e, time.Now().Add(b.cfg.NackTimeout)) })
}

// withDelivery brings the queue up to date and calls do with a delivery, or fails with CodeConflict if the
// delivery is no longer valid. The broker is locked meanwhile.
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

// Stats returns the current counts; all are zero while this hub does not lead.
func (b *Broker) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.queue == nil {
		return Stats{}
	}
	return b.queue.countEvals()
}
