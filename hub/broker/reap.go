package broker

import (
	"context"
	"math/rand/v2"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// The follow-up of a failed evaluation waits at least followUpMin, and up to followUpSpread more at
// random, so that many follow-ups do not start at once.
const (
	followUpMin    = time.Minute
	followUpSpread = 5 * time.Minute
	reapRetry      = time.Second
)

// writeReapedEvals writes the superseded and failed evaluations to the log in batches, until ctx ends. It
// retries a batch that was not committed.
func (b *Broker) writeReapedEvals(ctx context.Context, q *queue) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-q.reapable:
		}
		for {
			batch, done := b.nextReapBatch(q)
			if len(batch) == 0 {
				break
			}
			_, err := b.cfg.Applier.Apply(ctx, state.Evals{Evals: batch, Now: time.Now().UnixNano()})
			if err == nil {
				done()
				continue
			}
			b.cfg.Logger.Warn("evaluations not written", "count", len(batch), "error", err)
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(reapRetry):
			}
		}
	}
}

// nextReapBatch returns the next evaluations to write; none if there is nothing to write. done must be
// called when they are committed: it removes them from the lists.
func (b *Broker) nextReapBatch(q *queue) (batch []fleet.Evaluation, done func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	canceled := q.cancelable[:min(len(q.cancelable), b.cfg.CancelBatch)]
	for _, c := range canceled {
		e := *c.eval
		e.Status = fleet.EvalCanceled
		e.StatusDescription = "superseded by evaluation " + fleet.Short(c.by)
		batch = append(batch, e)
	}
	v := b.cfg.State.View()
	for _, f := range q.failed[:min(len(q.failed), b.cfg.CancelBatch)] {
		batch = append(batch, b.failWithFollowUp(f, v)...)
	}
	return batch, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		q.cancelable = q.cancelable[len(canceled):]
		// The failed ones are removed when their change is applied.
		q.syncWithState(b.cfg.State.View())
	}
}

// failWithFollowUp returns the evaluation f as failed, and a delayed follow-up evaluation unless the job
// was purged.
func (b *Broker) failWithFollowUp(f *entry, v *state.View) []fleet.Evaluation {
	e := *f.eval
	e.Status = fleet.EvalFailed
	e.StatusDescription = "delivered too often without a result"
	if _, ok := v.Job(e.Namespace, e.JobID); !ok {
		return []fleet.Evaluation{e}
	}
	next := fleet.Evaluation{
		ID: fleet.EvalID(b.cfg.NewID()), Namespace: e.Namespace, JobID: e.JobID, JobModifyIndex: e.JobModifyIndex,
		Priority: e.Priority, Type: e.Type, TriggeredBy: fleet.TriggerFailedFollowUp,
		Status: fleet.EvalPending, PreviousEval: e.ID,
		WaitUntil: time.Now().Add(followUpMin + rand.N(followUpSpread)).Round(0).UTC(),
	}
	e.NextEval = next.ID
	return []fleet.Evaluation{e, next}
}
