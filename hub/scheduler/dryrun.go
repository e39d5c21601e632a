package scheduler

import (
	"fmt"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/reconcile"
)

// Outcome is the result of a DryRun.
type Outcome struct {
	Decisions  reconcile.Output
	Placements []fleet.Alloc                 // new allocations, with node, score and metrics
	Failed     map[string]*fleet.AllocMetric // by group: why placements found no node
	NoNode     map[string]int                // by group: number of placements that found no node
	Updates    map[string]fleet.DesiredUpdates
	Promised   map[string]int      // by group: placements that wait until other allocations have stopped
	Reasons    []string            // one line for each decision
	Created    []*fleet.Evaluation // follow-up and blocked evaluations that would be created
}

// DryRun returns what scheduling would do if job were registered now, on the state v. It commits nothing.
// Ids of new objects in the outcome are meaningless.
func DryRun(v *state.View, job *fleet.Job, now time.Time) (Outcome, error) {
	spec, err := state.EncodeSpec(job)
	if err != nil {
		return Outcome{}, fmt.Errorf("try out job %s: %w", job.ID, err)
	}
	next := *job
	next.SpecHash, next.Stop = state.SpecHash(spec), false
	next.Version, next.CreateIndex = 0, v.Index()+1
	if old, ok := v.Job(job.Namespace, job.ID); ok {
		next.Version, next.CreateIndex = old.Version, old.CreateIndex
		if old.Stop || old.SpecHash != next.SpecHash {
			next.Version++
		}
	}
	eval := &fleet.Evaluation{
		ID: fleet.EvalID(fleet.DeriveUUID("dry run", string(job.ID))), Namespace: job.Namespace, JobID: job.ID,
		Type: job.Type, Priority: job.Priority, TriggeredBy: fleet.TriggerJobRegister,
	}
	a, err := newAttempt(v, eval, &next, now, func() string { return fleet.NewUUID(nil) })
	if err != nil {
		return Outcome{}, fmt.Errorf("try out job %s: %w", job.ID, err)
	}
	out := Outcome{
		Decisions: a.decisions, Placements: a.placements, Promised: a.awaitingStops, Reasons: a.decisionReasons(),
		Failed: a.failedPlacements(), NoNode: map[string]int{}, Updates: a.desiredUpdatesByGroup(), Created: a.createdEvals(),
	}
	for group := range out.Failed {
		out.NoNode[group] = a.queued[group] - a.awaitingStops[group]
	}
	return out, nil
}
