package scheduler

import (
	"fmt"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/reconcile"
)

// Outcome is what scheduling a job would lead to.
type Outcome struct {
	Decisions  reconcile.Output
	Placements []fleet.Alloc                 // with node, score and metrics
	Failed     map[string]*fleet.AllocMetric // by group, where there is no node for some
	NoNode     map[string]int                // by group, for how many there is none
	Updates    map[string]fleet.DesiredUpdates
	Promised   map[string]int      // by group, how many wait until the room that is made for them is free
	Reasons    []string            // one line a decision
	Created    []*fleet.Evaluation // that would wait for a time, or for capacity
}

// DryRun returns what would be done if job were registered now, on the state that
// v shows. Nothing is committed; ids in the outcome mean nothing.
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
