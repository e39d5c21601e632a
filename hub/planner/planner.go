// Package planner commits the plans of the schedulers. It checks each plan against the newest state and
// the plans that are being committed, and commits the part that still fits. No other package commits
// plans.
//
// hub.Open runs Run while this hub leads. Workers, of this hub or through hub/rpc of any other, call
// Submit. Run's goroutine verifies plans one after the other, by priority. Commits of verified plans
// overlap (Config.Depth), each in a goroutine that Run waits for; a large plan has one more for each of its entries that
// are committed together (entriesAtOnce). It persists nothing.
//
// Invariant: no plan over-commits a node, whatever plans the workers submit concurrently.
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

// Deliveries is the broker. Pause fails if the worker no longer holds the delivery of the evaluation;
// otherwise it stops the delivery's deadline until Resume.
type Deliveries interface {
	Pause(id fleet.EvalID, token string) error
	Resume(id fleet.EvalID, token string) error
}

// Config configures a Planner.
type Config struct {
	State   *state.Store
	Applier state.Applier
	// Barrier blocks until each command that was proposed before is applied on this hub, or never
	// will be.
	Barrier    func(context.Context) error
	Deliveries Deliveries // nil: plans need no delivery (tests)
	Logger     *slog.Logger
	Now        func() time.Time // nil: time.Now
	Depth      int              // 16: plans being committed at once
}

// Defaults and bounds.
const (
	defaultDepth = 16
	// maxEntryAllocs is how many allocations one entry carries. Larger plans have several, so that no
	// entry delays heartbeats and snapshots.
	maxEntryAllocs = 1000
	// catchUpTimeout bounds the wait until this hub has applied the entries that the worker of a plan
	// had seen.
	catchUpTimeout = 5 * time.Second
)

// Planner verifies and commits plans.
type Planner struct {
	cfg        Config
	flight     inFlight
	entrySlots chan struct{} // holds a token for each entry that commitTogether is committing

	mu      sync.Mutex
	queue   planQueue
	arrival uint64        // number of submissions so far
	running bool          // Run is running, so Submit takes plans
	arrived chan struct{} // holds a token while queue may not be empty
	counted Stats
}

// Stats counts plans since the hub started. Waiting is the current length of the queue.
type Stats struct {
	Waiting   int
	Committed uint64 // committed as a whole
	Partial   uint64 // committed without the rejected nodes
	Refused   uint64 // not committed: stale, or an error
	Rejected  uint64 // nodes that were left out of plans
}

// New validates the configuration and fills in its defaults. It starts nothing.
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
	return &Planner{cfg: cfg, arrived: make(chan struct{}, 1), entrySlots: make(chan struct{}, entriesAtOnce)}, nil
}

var errNotLeader = fleet.Errorf(fleet.CodeNotLeader, "this hub does not take plans: it does not lead").
	WithHint("ask the leader")

// Run takes plans from Submit until ctx ends, and returns nil after the last commit has ended. While it
// does not run, Submit fails with CodeNotLeader.
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

// startTakingPlans lets Submit queue plans. It returns false if another Run does so already.
func (p *Planner) startTakingPlans() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.running
	p.running = true
	return !was
}

// stopTakingPlans makes Submit fail, answers the plans in the queue with errNotLeader, and forgets plans
// in flight.
func (p *Planner) stopTakingPlans() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = false
	for len(p.queue) > 0 {
		p.queue.pop().done <- outcome{err: errNotLeader}
	}
	p.flight.forgetAllPlans()
}

// Submit verifies a plan, commits the part that fits, and blocks until that is done. After an error
// nothing is known to be committed.
// If nodes were left out, Rejected has the reasons. Refused is the reason why the whole plan, or its rest,
// was not committed. In both cases RefreshIndex is the state to plan from again, and the plan's own
// evaluation is not ended.
func (p *Planner) Submit(ctx context.Context, plan fleet.Plan) (fleet.PlanResult, error) {
	if d := p.cfg.Deliveries; d != nil {
		if err := d.Pause(plan.EvalID, plan.EvalToken); err != nil {
			return fleet.PlanResult{}, err
		}
		// If the delivery has ended meanwhile, Resume fails, and there is no deadline to restart.
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

// enqueuePlan puts a plan into the queue, or returns errNotLeader.
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

// nextSubmission blocks until there is a plan, and removes it from the queue: the one with the highest
// priority, then the first. It skips plans whose submitter has stopped waiting. Its error is ctx's.
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

// answerSubmission counts the outcome of a plan and sends it to the submitter.
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

// Stats returns the current counters.
func (p *Planner) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.counted
	s.Waiting = len(p.queue)
	return s
}
