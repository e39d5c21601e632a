package planner

import (
	"context"
	"errors"

	"skerry/fleet"
	"skerry/hub/state"
)

// commitPlan commits a verified plan, in one log entry or, for a large plan, several. It divides an entry
// that is too large to be encoded. It returns the answer for the worker.
// If the state refuses an entry, for example because the job was changed or a node purged meanwhile, the
// result says Refused, and the worker plans again. After an error the plan may be committed later: it
// counts as doubtful.
func (p *Planner) commitPlan(ctx context.Context, v *verifiedPlan) outcome {
	left := v.splitIntoEntries(p.cfg.Now().UnixNano())
	limit := maxEntryAllocs
	if v.plan.AllAtOnce {
		limit = max(limit, left.remainingSize())
	}
	for !left.isFinished() {
		entry, rest := left.nextEntry(limit)
		res, err := p.cfg.Applier.Apply(ctx, entry)
		switch {
		case errors.Is(err, state.ErrTooLarge) && limit > 1:
			limit = max(1, min(limit, left.remainingSize())/2)
			continue
		case errors.Is(err, state.ErrTooLarge):
			p.flight.removePlan(v, p.cfg.Now())
			return outcome{err: fleet.AsError(err)}
		case err != nil:
			p.flight.markDoubtful(v)
			return outcome{err: fleet.Errorf(fleet.CodeUnavailable, "commit plan of evaluation %s: %v",
				fleet.Short(v.plan.EvalID), err)}
		case res.Err != nil:
			p.flight.removePlan(v, p.cfg.Now())
			return outcome{result: fleet.PlanResult{
				Refused: res.Err.Message, RefreshIndex: res.Index, AllocIndex: v.result.AllocIndex,
			}}
		}
		v.result.AllocIndex = res.Index
		left = rest
	}
	p.flight.removePlan(v, p.cfg.Now())
	if !v.result.Full() {
		v.result.RefreshIndex = max(v.result.RefreshIndex, v.result.AllocIndex)
		p.cfg.Logger.Debug("plan committed in part", "eval_id", v.plan.EvalID, "rejected", len(v.result.Rejected))
	}
	return outcome{result: v.result}
}
