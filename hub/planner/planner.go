// Package planner is the one place that turns a scheduler's plan into the
// cluster's state: it checks each plan against the newest state and what is on
// its way there, and commits what still fits.
//
// hub.Open runs Run on leadership. Workers, of this hub or through hub/rpc of
// any other, call Submit. Run's goroutine verifies plans one after the other, by
// priority; commits of verified plans overlap (Config.Depth), each in a goroutine
// that Run waits for. It persists nothing.
//
// Invariant: no plan over-commits a node, whatever the workers raced on.
package planner

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// Deliveries is the broker: Pause fails where the delivery that a plan comes
// from does not hold any more.
type Deliveries interface {
	Pause(id fleet.EvalID, token string) error
	Resume(id fleet.EvalID, token string) error
}

// Config is what a Planner needs.
type Config struct {
	State   *state.Store
	Applier state.Applier
	// Barrier returns when each command that was proposed before is applied here, or
	// never will be.
	Barrier    func(context.Context) error
	Deliveries Deliveries // nil: plans need no delivery (tests)
	Logger     *slog.Logger
	Now        func() time.Time // nil: time.Now
	Depth      int              // 16: plans being committed at once
}

// Defaults and bounds.
const (
	defaultDepth = 16
	// maxEntryAllocs is how many allocations one entry carries; larger plans take several,
	// so that none holds up heartbeats and snapshots.
	maxEntryAllocs = 1000
	// catchUpTimeout bounds how long a plan waits for this hub to have seen what its
	// worker saw.
	catchUpTimeout = 5 * time.Second
)

// Planner checks and commits plans.
type Planner struct {
	cfg    Config
	flight inFlight

	mu      sync.Mutex
	queue   planQueue
	arrival uint64 // counts submissions
	running bool
	arrived chan struct{} // holds a token while queue may not be empty
	counted Stats
}

// Stats counts plans since the hub started, but for Waiting, which is how many
// wait for their turn.
type Stats struct {
	Waiting   int
	Committed uint64 // in whole
	Partial   uint64 // committed without what did not fit any more
	Refused   uint64 // stale, or not committed
	Rejected  uint64 // nodes left out of plans
}

// New validates cfg.
func New(cfg Config) (*Planner, error) {
	switch {
	case cfg.State == nil:
		return nil, errors.New("make planner: no state")
	case cfg.Applier == nil:
		return nil, errors.New("make planner: nothing to apply with")
	case cfg.Barrier == nil:
		return nil, errors.New("make planner: no barrier")
	case cfg.Depth < 0:
		return nil, errors.New("make planner: the depth is negative")
	}
	if cfg.Depth == 0 {
		cfg.Depth = defaultDepth
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Planner{cfg: cfg, arrived: make(chan struct{}, 1)}, nil
}

var errNotLeader = fleet.Errorf(fleet.CodeNotLeader, "this hub does not take plans: it does not lead").
	WithHint("ask the leader")

// Run serves Submit until ctx is done; in between, Submit is refused with
// CodeNotLeader. It returns nil when ctx is done, and not before every commit
// that it started has ended.
func (p *Planner) Run(ctx context.Context) error {
	if !p.startTakingPlans() {
		return errors.New("run planner: it is running")
	}
	defer p.stopTakingPlans()
	var commits sync.WaitGroup
	defer commits.Wait()
	slots := make(chan struct{}, p.cfg.Depth)
	for {
		s, err := p.nextSubmission(ctx)
		if err != nil {
			return nil
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			s.done <- outcome{err: errNotLeader}
			return nil
		}
		commit, out := p.verifyPlan(ctx, s)
		if commit == nil {
			<-slots
			p.answerSubmission(s, out)
			continue
		}
		commits.Go(func() {
			p.answerSubmission(s, p.commitPlan(ctx, commit))
			<-slots
		})
	}
}

func (p *Planner) startTakingPlans() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.running
	p.running = true
	return !was
}

func (p *Planner) stopTakingPlans() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = false
	for len(p.queue) > 0 {
		p.queue.pop().done <- outcome{err: errNotLeader}
	}
	p.flight.forgetAllPlans()
}

// Submit checks a plan and commits what fits. Where not all of it did,
// Rejected says what was left out and why, or Refused why nothing more was taken, and
// RefreshIndex from where on to look again; the plan's own end of the evaluation is then
// left out, too. An error means that nothing is known to be committed.
func (p *Planner) Submit(ctx context.Context, plan fleet.Plan) (fleet.PlanResult, error) {
	if d := p.cfg.Deliveries; d != nil {
		if err := d.Pause(plan.EvalID, plan.EvalToken); err != nil {
			return fleet.PlanResult{}, err
		}
		// Where the delivery is gone meanwhile, there is no deadline to start.
		defer func() { _ = d.Resume(plan.EvalID, plan.EvalToken) }()
	}
	if plan.Empty() {
		return fleet.PlanResult{}, nil
	}
	s := &submission{plan: plan, ctx: ctx, done: make(chan outcome, 1)}
	if err := p.enqueuePlan(s); err != nil {
		return fleet.PlanResult{}, err
	}
	select {
	case out := <-s.done:
		return out.result, out.err
	case <-ctx.Done():
		return fleet.PlanResult{}, fleet.Errorf(fleet.CodeTimeout, "submit plan of evaluation %s: %v",
			fleet.Short(plan.EvalID), context.Cause(ctx))
	}
}

func (p *Planner) enqueuePlan(s *submission) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running {
		return errNotLeader
	}
	p.arrival++
	s.seq = p.arrival
	p.queue.push(s)
	select {
	case p.arrived <- struct{}{}:
	default:
	}
	return nil
}

// nextSubmission waits for the plan that is first by priority, then by arrival, and whose
// submitter still waits.
func (p *Planner) nextSubmission(ctx context.Context) (*submission, error) {
	for {
		p.mu.Lock()
		var s *submission
		if len(p.queue) > 0 {
			s = p.queue.pop()
		}
		p.mu.Unlock()
		switch {
		case s != nil && s.ctx.Err() == nil:
			return s, nil
		case s != nil:
			continue
		}
		select {
		case <-p.arrived:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// answerSubmission tells a submitter what became of its plan, and counts it.
func (p *Planner) answerSubmission(s *submission, out outcome) {
	p.mu.Lock()
	switch {
	case out.err != nil || out.result.Refused != "":
		p.counted.Refused++
	case out.result.Full():
		p.counted.Committed++
	default:
		p.counted.Partial++
		p.counted.Rejected += uint64(len(out.result.Rejected))
	}
	p.mu.Unlock()
	s.done <- out
}

// Stats may be called at any time.
func (p *Planner) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.counted
	s.Waiting = len(p.queue)
	return s
}
