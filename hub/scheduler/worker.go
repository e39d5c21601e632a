package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"skerry/fleet"
	"skerry/internal/pace"
)

const (
	// serviceAttempts and batchAttempts are how many plans in a row may be rejected, with nothing
	// committed, before the evaluation fails.
	serviceAttempts = 5
	batchAttempts   = 2
	// staleAttempts is how many plans in a row may be refused because they were made from an older
	// state, before the evaluation is given back. That takes about ten seconds.
	staleAttempts = 10
	// nackTimeout bounds the Nack of a worker while the hub shuts down.
	nackTimeout = time.Second
)

// errBehind says that an evaluation was given back because this hub's state is older than it.
var errBehind = errors.New("the state is behind the evaluation")

var jobTypes = []string{fleet.JobTypeService, fleet.JobTypeBatch, fleet.JobTypeSystem, fleet.JobTypeSysBatch}

// worker processes one evaluation at a time.
type worker struct {
	cfg Config
	log *slog.Logger
}

// consumeEvals dequeues and processes evaluations until ctx ends. After a failure it waits before the next
// one.
func (w *worker) consumeEvals(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; {
		d, err := w.cfg.Broker.Dequeue(ctx, jobTypes)
		if err == nil {
			err = w.handleDelivery(ctx, d)
		}
		switch {
		case err == nil:
			failures = 0
			continue
		case ctx.Err() != nil:
			return
		case errors.Is(err, errBehind):
			continue // holdOff has waited already
		}
		// For example, no hub leads: ask again later.
		w.log.Debug("worker rests", "error", err, "failures", failures)
		pace.Rest(ctx, retryBackoff(failures))
		failures++
	}
}

// handleDelivery processes a delivered evaluation, and ends the delivery with Ack, or after an error with
// Nack.
func (w *worker) handleDelivery(ctx context.Context, d fleet.Delivery) error {
	log := w.log.With("eval_id", d.Eval.ID, "job_id", d.Eval.JobID)
	index := max(d.WaitIndex, d.Eval.ModifyIndex)
	err := w.catchUp(ctx, index)
	if err == nil {
		err = w.processEval(ctx, d)
	}
	switch {
	case err == nil:
		return w.cfg.Broker.Ack(ctx, d.Eval.ID, d.Token)
	case ctx.Err() != nil:
		err = fmt.Errorf("evaluation %s: %w", fleet.Short(d.Eval.ID), ErrStopping)
		log.Debug("evaluation given back", "error", err)
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), nackTimeout)
		defer cancel()
		return errors.Join(err, w.cfg.Broker.Nack(stop, d.Eval.ID, d.Token))
	}
	log.Warn("evaluation given back", "error", err)
	if nack := w.cfg.Broker.Nack(ctx, d.Eval.ID, d.Token); nack != nil {
		log.Debug("evaluation not given back", "err", nack) // the broker takes it back by itself
	}
	if errors.Is(err, errBehind) {
		w.holdOff(ctx, index)
	}
	return err
}

// catchUp blocks until this hub's state has applied index. After SyncWait it returns errBehind.
func (w *worker) catchUp(ctx context.Context, index fleet.Index) error {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.SyncWait)
	defer cancel()
	if err := w.cfg.State.WaitIndex(ctx, index); err != nil {
		return fmt.Errorf("wait %s for index %d: %w", w.cfg.SyncWait, index, errBehind)
	}
	return nil
}

// holdOff blocks until this hub's state has applied index, at most for HoldOff, so that workers of other
// hubs process the evaluations meanwhile.
func (w *worker) holdOff(ctx context.Context, index fleet.Index) {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.HoldOff)
	defer cancel()
	if err := w.cfg.State.WaitIndex(ctx, index); err != nil && ctx.Err() == nil {
		w.log.Warn("wait for the state", "error", err)
		pace.Rest(ctx, w.cfg.HoldOff)
	}
}

// processEval makes plans for an evaluation and submits them, until one is committed as a whole. If too
// many are rejected, it ends the evaluation as failed, with a blocked one that follows it. An error means
// that it must be given back.
func (w *worker) processEval(ctx context.Context, d fleet.Delivery) error {
	limit := serviceAttempts
	if fleet.RunsToCompletion(d.Eval.Type) {
		limit = batchAttempts
	}
	stale := 0
	for tries := 1; ; tries++ {
		view := w.cfg.State.View()
		if e, ok := view.Eval(d.Eval.ID); ok && e.Terminal() {
			return nil // it was canceled, or an earlier delivery of it succeeded
		}
		job, _ := view.Job(d.Eval.Namespace, d.Eval.JobID)
		a, err := newAttempt(view, d.Eval, job, w.decisionTime(d.Eval), w.cfg.NewID)
		if err != nil {
			return w.failEvaluation(ctx, d, err.Error())
		}
		plan := a.buildPlan(d.Token)
		if len(plan.NodeAllocation)+len(plan.NodeUpdate)+len(plan.DeploymentUpdates) == 0 && plan.Deployment == nil {
			return w.submitEvals(ctx, d, plan.Evals)
		}
		res, err := w.cfg.Planner.Submit(ctx, plan)
		if err != nil {
			return fmt.Errorf("submit plan: %w", err)
		}
		w.log.Debug("plan submitted", "eval_id", d.Eval.ID, "job_id", d.Eval.JobID,
			"placed", len(a.placements), "rejected", len(res.Rejected), "index", res.AllocIndex)
		if res.Full() {
			return nil
		}
		if res.Refused != "" {
			if stale, err = w.awaitNewerState(ctx, res, stale); err != nil {
				return err
			}
			tries--
			continue
		}
		stale = 0
		if len(res.NodeAllocation)+len(res.NodeUpdate) > 0 {
			tries = 0 // a part was committed
		}
		if tries >= limit {
			return w.submitEvals(ctx, d, a.maxAttemptsEvals(limit))
		}
		if err := w.catchUp(ctx, res.RefreshIndex); err != nil {
			return err
		}
	}
}

// decisionTime returns the time at which an evaluation is decided: now, but not before its WaitUntil. If
// this hub's clock is behind the leader's, the decision would otherwise only wait again.
func (w *worker) decisionTime(e *fleet.Evaluation) time.Time {
	if now := w.cfg.Now(); now.After(e.WaitUntil) {
		return now
	}
	return e.WaitUntil
}

// awaitNewerState blocks until this hub has the state that a refused plan was too old for; from the second
// refusal on it also backs off. stale counts the refusals in a row with nothing committed; it returns the
// new count, or an error after staleAttempts.
func (w *worker) awaitNewerState(ctx context.Context, res fleet.PlanResult, stale int) (int, error) {
	if res.AllocIndex > 0 {
		stale = 0 // a part was committed
	}
	if stale++; stale > staleAttempts {
		return stale, fmt.Errorf("submit plan: refused %d times: %s", stale, res.Refused)
	}
	w.log.Debug("plan refused", "why", res.Refused, "times", stale)
	if err := w.catchUp(ctx, res.RefreshIndex); err != nil {
		return stale, err
	}
	if stale > 1 {
		pace.Rest(ctx, retryBackoff(stale-2))
	}
	return stale, nil
}

// submitEvals commits evaluations, such as the end of the delivered one, in a plan without allocations.
func (w *worker) submitEvals(ctx context.Context, d fleet.Delivery, evals []fleet.Evaluation) error {
	_, err := w.cfg.Planner.Submit(ctx, fleet.Plan{EvalID: d.Eval.ID, EvalToken: d.Token, Priority: d.Eval.Priority, Evals: evals})
	return err
}

// failEvaluation ends an evaluation as failed, because no plan can be made for it.
func (w *worker) failEvaluation(ctx context.Context, d fleet.Delivery, why string) error {
	done := *d.Eval
	done.Status, done.StatusDescription = fleet.EvalFailed, why
	return w.submitEvals(ctx, d, []fleet.Evaluation{done})
}

// retryBackoff returns how long a worker waits after that many earlier failures in a row: a random time
// that grows up to 10 s.
func retryBackoff(failures int) time.Duration {
	const first, most = 20 * time.Millisecond, 10 * time.Second
	d := most
	if failures < 9 {
		d = min(most, first<<failures)
	}
	return d/2 + rand.N(d/2)
}
