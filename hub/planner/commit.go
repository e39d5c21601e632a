package planner

import (
	"context"
	"errors"
	"sync"

	"skerry/fleet"
	"skerry/hub/state"
)

// entriesAtOnce bounds the entries of divided plans that are being committed, of all plans together. Entries that wait for
// each other leave the hubs idle for a round trip each; too many delay what comes after them in the log.
const entriesAtOnce = 8

// commitPlan commits a verified plan, in one log entry or, for a large plan, several. It divides an entry
// that is too large to be encoded. It returns the answer for the worker.
// If the state refuses an entry, for example because the job was changed or a node purged meanwhile, the
// result says Refused, and the worker plans again. After an error the plan may be committed later: it
// counts as doubtful.
func (p *Planner) commitPlan(ctx context.Context, v *verifiedPlan) outcome {
	done := p.commitChunks(ctx, v.asChunk().divideIntoChunks())
	v.result.AllocIndex = max(v.result.AllocIndex, done.index)
	if done.isDoubtful() {
		p.flight.markDoubtful(v)
		return outcome{err: fleet.Errorf(fleet.CodeUnavailable, "commit plan of evaluation %s: %v", fleet.Short(v.plan.EvalID), done.err)}
	}
	p.flight.removePlan(v, p.cfg.Now())
	switch refusal := done.refusal; {
	case done.err != nil:
		return outcome{err: fleet.AsError(done.err)}
	case refusal.Err != nil:
		return outcome{result: fleet.PlanResult{
			Refused: refusal.Err.Message, RefreshIndex: max(refusal.Index, done.index), AllocIndex: v.result.AllocIndex,
		}}
	}
	if !v.result.Full() {
		v.result.RefreshIndex = max(v.result.RefreshIndex, v.result.AllocIndex)
		p.cfg.Logger.Debug("plan committed in part", "eval_id", v.plan.EvalID, "rejected", len(v.result.Rejected))
	}
	return outcome{result: v.result}
}

// commitChunks commits the chunks of a plan: first the one with the deployment, and those with evaluations, to which
// allocations refer; then the others, several at a time; then the one that only ends the plan's evaluation. If one fails,
// it commits those that are on their way, and no other.
func (p *Planner) commitChunks(ctx context.Context, chunks []planChunk) commitResult {
	end := len(chunks)
	if end > 1 && len(chunks[end-1].own) > 0 {
		end--
	}
	var all commitResult
	next := 0
	for ; next < end && (next == 0 || len(chunks[next].evals) > 0) && all.isComplete(); next++ {
		all.addResult(p.commitChunk(ctx, chunks[next]))
	}
	p.commitTogether(ctx, chunks[next:end], &all)
	if end < len(chunks) && all.isComplete() {
		all.addResult(p.commitChunk(ctx, chunks[end]))
	}
	return all
}

// commitTogether commits chunks in any order, and adds their results to all. It begins none once all is not complete.
func (p *Planner) commitTogether(ctx context.Context, chunks []planChunk, all *commitResult) {
	var mu sync.Mutex // guards all
	var commits sync.WaitGroup
	for _, chunk := range chunks {
		p.entrySlots <- struct{}{}
		mu.Lock()
		goOn := all.isComplete()
		mu.Unlock()
		if !goOn {
			<-p.entrySlots
			break
		}
		commits.Go(func() {
			one := p.commitChunk(ctx, chunk)
			<-p.entrySlots
			mu.Lock()
			defer mu.Unlock()
			all.addResult(one)
		})
	}
	commits.Wait()
}

// commitChunk commits a chunk in one entry, or, if that is too large to be encoded, in several, one after the other.
func (p *Planner) commitChunk(ctx context.Context, chunk planChunk) commitResult {
	res, err := p.cfg.Applier.Apply(ctx, chunk.asEntry(p.cfg.Now()))
	switch {
	case errors.Is(err, state.ErrTooLarge):
		part, rest := chunk.cutChunk(max(1, chunk.countChanges()/2))
		if rest.isEmpty() {
			return commitResult{err: err}
		}
		both := p.commitChunk(ctx, part)
		if both.isComplete() {
			both.addResult(p.commitChunk(ctx, rest))
		}
		return both
	case err != nil:
		return commitResult{err: err}
	case res.Err != nil:
		return commitResult{refusal: res}
	}
	return commitResult{index: res.Index}
}

// commitResult is what became of some entries of a plan.
type commitResult struct {
	index   fleet.Index  // the newest entry that was committed
	refusal state.Result // of an entry that the state refused; without an Err: of none
	err     error        // of an entry that is too large, or that may be committed later
}

// isComplete reports whether all entries were committed.
func (r *commitResult) isComplete() bool { return r.err == nil && r.refusal.Err == nil }

// isDoubtful reports whether an entry may be committed later.
func (r *commitResult) isDoubtful() bool { return r.err != nil && !errors.Is(r.err, state.ErrTooLarge) }

// addResult adds the result of further entries.
func (r *commitResult) addResult(more commitResult) {
	r.index = max(r.index, more.index)
	if more.refusal.Err != nil && (r.refusal.Err == nil || more.refusal.Index > r.refusal.Index) {
		r.refusal = more.refusal
	}
	if more.err != nil && !r.isDoubtful() {
		r.err = more.err
	}
}
