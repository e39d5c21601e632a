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
	// serviceAttempts and batchAttempts are how often in a row a plan may be
	// refused, with nothing of it committed, before the worker gives up.
	serviceAttempts = 5
	batchAttempts   = 2
	// staleAttempts is how often in a row a plan may be refused because it was made on an
	// older picture, before its evaluation is given back: after some ten seconds.
	staleAttempts = 10
	// nackTimeout is how long a worker tries to give an evaluation back while the
	// hub shuts down.
	nackTimeout = time.Second
)

// errBehind is why an evaluation was given back: this hub's state is not there
// yet.
var errBehind = errors.New("the state is behind the evaluation")

var jobTypes = []string{fleet.JobTypeService, fleet.JobTypeBatch, fleet.JobTypeSystem, fleet.JobTypeSysBatch}

// worker deals with one evaluation at a time.
type worker struct {
	cfg Config
	log *slog.Logger
}

// consumeEvals deals with evaluations until ctx is done.
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
			continue // it has waited long enough
		}
		// Without a leader there is nothing to do but to ask again.
		w.log.Debug("worker rests", "err", err, "failures", failures)
		pace.Rest(ctx, retryBackoff(failures))
		failures++
	}
}

// handleDelivery deals with a delivery and acknowledges it, or gives it back.
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
		log.Debug("evaluation given back", "err", err)
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), nackTimeout)
		defer cancel()
		return errors.Join(err, w.cfg.Broker.Nack(stop, d.Eval.ID, d.Token))
	}
	log.Warn("evaluation given back", "err", err)
	if nack := w.cfg.Broker.Nack(ctx, d.Eval.ID, d.Token); nack != nil {
		log.Debug("evaluation not given back", "err", nack) // the broker takes it back by itself
	}
	if errors.Is(err, errBehind) {
		w.holdOff(ctx, index)
	}
	return err
}

// catchUp waits until this hub's state has seen the evaluation.
func (w *worker) catchUp(ctx context.Context, index fleet.Index) error {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.SyncWait)
	defer cancel()
	if err := w.cfg.State.WaitIndex(ctx, index); err != nil {
		return fmt.Errorf("wait %s for index %d: %w", w.cfg.SyncWait, index, errBehind)
	}
	return nil
}

// holdOff keeps a worker whose hub is behind from taking what another could do,
// until the hub has caught up or the time is over.
func (w *worker) holdOff(ctx context.Context, index fleet.Index) {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.HoldOff)
	defer cancel()
	if err := w.cfg.State.WaitIndex(ctx, index); err != nil && ctx.Err() == nil {
		w.log.Warn("wait for the state", "err", err)
		pace.Rest(ctx, w.cfg.HoldOff)
	}
}

// processEval makes plans for an evaluation until one is committed whole.
func (w *worker) processEval(ctx context.Context, d fleet.Delivery) error {
	limit := serviceAttempts
	if fleet.RunsToCompletion(d.Eval.Type) {
		limit = batchAttempts
	}
	stale := 0
	for tries := 1; ; tries++ {
		view := w.cfg.State.View()
		if e, ok := view.Eval(d.Eval.ID); ok && e.Terminal() {
			return nil // canceled, or an earlier delivery got through after all
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
			if stale, err = w.awaitNewer(ctx, res, stale); err != nil {
				return err
			}
			tries--
			continue
		}
		stale = 0
		if len(res.NodeAllocation)+len(res.NodeUpdate) > 0 {
			tries = 0 // it gets on
		}
		if tries >= limit {
			return w.submitEvals(ctx, d, a.maxAttemptsEvals(limit))
		}
		if err := w.catchUp(ctx, res.RefreshIndex); err != nil {
			return err
		}
	}
}

// decisionTime is the time that an evaluation is decided at. One that waited comes when the leader's
// clock says so: where this hub's is behind, it would be put off again and again.
func (w *worker) decisionTime(e *fleet.Evaluation) time.Time {
	if now := w.cfg.Now(); now.After(e.WaitUntil) {
		return now
	}
	return e.WaitUntil
}

// awaitNewer waits for the picture that a refused plan was too old for: the first time no
// longer than that takes, then a little longer each time. It counts the refusals in a row
// that nothing was committed before.
func (w *worker) awaitNewer(ctx context.Context, res fleet.PlanResult, stale int) (int, error) {
	if res.AllocIndex > 0 {
		stale = 0 // it gets on
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

// submitEvals commits the end of the delivered evaluation, and what comes with it,
// without a plan for the job.
func (w *worker) submitEvals(ctx context.Context, d fleet.Delivery, evals []fleet.Evaluation) error {
	_, err := w.cfg.Planner.Submit(ctx, fleet.Plan{EvalID: d.Eval.ID, EvalToken: d.Token, Priority: d.Eval.Priority, Evals: evals})
	return err
}

// failEvaluation ends an evaluation that no plan can be made for.
func (w *worker) failEvaluation(ctx context.Context, d fleet.Delivery, why string) error {
	done := *d.Eval
	done.Status, done.StatusDescription = fleet.EvalFailed, why
	return w.submitEvals(ctx, d, []fleet.Evaluation{done})
}

// retryBackoff is how long a worker rests after its nth failure in a row: longer each
// time, and never in step with the others.
func retryBackoff(failures int) time.Duration {
	const first, most = 20 * time.Millisecond, 10 * time.Second
	d := most
	if failures < 9 {
		d = min(most, first<<failures)
	}
	return d/2 + rand.N(d/2)
}
