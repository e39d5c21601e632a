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

// ErrStopping is why a worker gave an evaluation back while the hub shuts down.
var ErrStopping = errors.New("the scheduler is stopping")

// Broker is the leader's queue of evaluations.
type Broker interface {
	// Dequeue waits for an evaluation of one of the job types.
	Dequeue(ctx context.Context, types []string) (fleet.Delivery, error)
	Ack(ctx context.Context, id fleet.EvalID, token string) error
	Nack(ctx context.Context, id fleet.EvalID, token string) error
}

// Planner checks and commits plans, at the leader. A plan may have evaluations alone;
// it, too, is refused where the delivery does not hold any more.
type Planner interface {
	Submit(ctx context.Context, p fleet.Plan) (fleet.PlanResult, error)
}

// Config is what a Scheduler needs. Zero numbers take the defaults.
type Config struct {
	State   *state.Store
	Broker  Broker
	Planner Planner
	Log     *slog.Logger

	Workers int              // one a processor, at least 2
	NewID   func() string    // nil: random
	Now     func() time.Time // nil: time.Now

	// SyncWait is how long a worker waits for its state to reach the evaluation
	// before it gives it back; HoldOff how much longer it then takes no other,
	// unless the state gets there sooner.
	SyncWait time.Duration // 5 s
	HoldOff  time.Duration // 50 s
}

// Scheduler runs workers.
type Scheduler struct {
	cfg Config
}

// New validates cfg.
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

// Run runs the workers until ctx is done, and returns when all have ended.
func (s *Scheduler) Run(ctx context.Context) error {
	var workers sync.WaitGroup
	for i := range s.cfg.Workers {
		w := worker{cfg: s.cfg, log: s.cfg.Log.With("worker", i)}
		workers.Go(func() { w.consumeEvals(ctx) })
	}
	workers.Wait()
	return nil
}

func orDefault(v, def time.Duration) time.Duration {
	if v == 0 {
		return def
	}
	return v
}
