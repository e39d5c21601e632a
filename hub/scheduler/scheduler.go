package scheduler

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// ErrStopping says that a worker gave an evaluation back because the hub shuts down.
var ErrStopping = errors.New("the scheduler is stopping")

// Broker is the leader's queue of evaluations.
type Broker interface {
	// Dequeue blocks until there is an evaluation of one of the job types. Ack or Nack must follow.
	Dequeue(ctx context.Context, types []string) (fleet.Delivery, error)
	Ack(ctx context.Context, id fleet.EvalID, token string) error
	Nack(ctx context.Context, id fleet.EvalID, token string) error
}

// Planner verifies and commits plans on the leader. A plan may consist of evaluations alone. Submit fails
// if the worker no longer holds the delivery of the plan's evaluation.
type Planner interface {
	Submit(ctx context.Context, p fleet.Plan) (fleet.PlanResult, error)
}

// Config configures a Scheduler. Zero numbers take the defaults.
type Config struct {
	State   *state.Store
	Broker  Broker
	Planner Planner
	Log     *slog.Logger

	Workers int              // 0: one for each processor, at least 2
	NewID   func() string    // nil: random UUIDs
	Now     func() time.Time // nil: time.Now

	// SyncWait is how long a worker waits until its state is as new as the evaluation. Then it gives
	// the evaluation back, and takes no other one for HoldOff, unless the state catches up sooner.
	SyncWait time.Duration // 5 s
	HoldOff  time.Duration // 50 s
}

// Scheduler runs the workers of one hub.
type Scheduler struct {
	cfg Config
}

// New validates the configuration and fills in its defaults. It starts nothing.
func New(cfg Config) (*Scheduler, error) {
	if cfg.State == nil || cfg.Broker == nil || cfg.Planner == nil || cfg.Log == nil {
		return nil, errors.New("make a scheduler: State, Broker, Planner and Log are needed")
	}
	if cfg.Workers == 0 {
		cfg.Workers = max(2, runtime.NumCPU())
	}
	if cfg.NewID == nil {
		cfg.NewID = func() string { return fleet.NewUUID(nil) }
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.SyncWait = orDefault(cfg.SyncWait, 5*time.Second)
	cfg.HoldOff = orDefault(cfg.HoldOff, 50*time.Second)
	return &Scheduler{cfg: cfg}, nil
}

// Run runs the workers until ctx ends. It returns nil when all have ended.
func (s *Scheduler) Run(ctx context.Context) error {
	var workers sync.WaitGroup
	for i := range s.cfg.Workers {
		w := worker{cfg: s.cfg, log: s.cfg.Log.With("worker", i)}
		workers.Go(func() { w.consumeEvals(ctx) })
	}
	workers.Wait()
	return nil
}

// orDefault returns v, or def if v is zero.
func orDefault(v, def time.Duration) time.Duration {
	if v == 0 {
		return def
	}
	return v
}
