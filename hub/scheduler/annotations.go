package scheduler

import (
	"skerry/fleet"
	"skerry/reconcile"
)

// desiredUpdates counts what is decided for a group. What is lost is not counted: what takes
// its place is.
func desiredUpdates(g reconcile.GroupSummary, noNode, awaits int) fleet.DesiredUpdates {
	return fleet.DesiredUpdates{
		Ignore: uint64(g.Ignore), Place: uint64(g.Place), Stop: uint64(g.Stop), InPlaceUpdate: uint64(g.InPlace),
		DestructiveUpdate: uint64(g.Destructive), Canary: uint64(g.Canary),
		Disconnect: uint64(g.Unknown), Reconnect: uint64(g.Reconnect),
		NoNode: uint64(noNode), AwaitsRoom: uint64(awaits),
	}
}

// desiredUpdatesByGroup counts what the attempt changes, by group.
func (a *attempt) desiredUpdatesByGroup() map[string]fleet.DesiredUpdates {
	counts := make(map[string]fleet.DesiredUpdates, len(a.decisions.Groups))
	for name, g := range a.decisions.Groups {
		noNode := 0
		if a.failed[name] != nil {
			noNode = max(a.queued[name]-a.awaitingStops[name], 0)
		}
		counts[name] = desiredUpdates(g, noNode, a.awaitingStops[name])
	}
	return counts
}

// deploymentToFollow is the rollout that the attempt begins or goes on with, "" for none: who waits
// for the evaluation waits for that next.
func (a *attempt) deploymentToFollow() fleet.DeploymentID {
	if d := a.decisions.Deployment; d != nil {
		return d.ID
	}
	if d := a.view.LatestDeployment(a.eval.Namespace, a.eval.JobID); d.Of(a.job) {
		return d.ID
	}
	return a.eval.DeploymentID
}

// createdEvals lists the evaluations that the attempt makes beside its own.
func (a *attempt) createdEvals() []*fleet.Evaluation {
	created := []*fleet.Evaluation{}
	for _, e := range a.evalsAfterPlan() {
		if _, known := a.view.Eval(e.ID); !known && e.ID != a.eval.ID {
			created = append(created, &e)
		}
	}
	return created
}
