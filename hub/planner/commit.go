package planner

import (
	"context"
	"errors"

	"skerry/fleet"
	"skerry/hub/state"
)

// commit writes what was verified, in one entry or, for a large plan, several. An entry
// that is too large to be encoded is divided further. Where the state refuses an entry (the job
// was changed, a node purged, after this was verified), the worker looks again.
func (p *Planner) commit(ctx context.Context, v *verified) outcome {
	left := v.commands(p.cfg.Now().UnixNano())
	limit := chunk
	if v.plan.AllAtOnce {
		limit = max(limit, left.size())
	}
	for !left.done() {
		entry, rest := left.next(limit)
		res, err := p.cfg.Applier.Apply(ctx, entry)
		switch {
		case errors.Is(err, state.ErrTooLarge) && limit > 1:
			limit = max(1, min(limit, left.size())/2)
			continue
		case errors.Is(err, state.ErrTooLarge):
			p.flight.remove(v, p.cfg.Now())
			return outcome{err: fleet.AsError(err)}
		case err != nil:
			p.flight.doubt(v)
			return outcome{err: fleet.Errorf(fleet.CodeUnavailable, "commit plan of evaluation %s: %v",
				fleet.Short(v.plan.EvalID), err)}
		case res.Err != nil:
			p.flight.remove(v, p.cfg.Now())
			return outcome{result: fleet.PlanResult{
				Refused: res.Err.Message, RefreshIndex: res.Index, AllocIndex: v.result.AllocIndex,
			}}
		}
		v.result.AllocIndex = res.Index
		left = rest
	}
	p.flight.remove(v, p.cfg.Now())
	if !v.result.Full() {
		v.result.RefreshIndex = max(v.result.RefreshIndex, v.result.AllocIndex)
		p.cfg.Logger.Debug("plan committed in part", "eval_id", v.plan.EvalID, "rejected", len(v.result.Rejected))
	}
	return outcome{result: v.result}
}
