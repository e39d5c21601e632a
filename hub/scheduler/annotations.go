package scheduler

import (
	"skerry/fleet"
	"skerry/reconcile"
)

// desiredUpdates converts the decisions for a group to the API's counts. Lost allocations are not counted,
// but their replacements are. noNode and awaits count placements without a node, and those that wait for
// stops.
func desiredUpdates(g reconcile.GroupSummary, noNode, awaits int) fleet.DesiredUpdates {
	return fleet.DesiredUpdates{
		Ignore: uint64(g.Ignore), Place: uint64(g.Place), Stop: uint64(g.Stop), InPlaceUpdate: uint64(g.InPlace),
		DestructiveUpdate: uint64(g.Destructive), Canary: uint64(g.Canary),
		Disconnect: uint64(g.Unknown), Reconnect: uint64(g.Reconnect),
		NoNode: uint64(noNode), AwaitsRoom: uint64(awaits),
	}
}

// desiredUpdatesByGroup returns the counts of changes by group.
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

// deploymentToFollow returns the deployment that the attempt begins or continues; "": none. A client that
// waits for the evaluation waits for this deployment next.
func (a *attempt) deploymentToFollow() fleet.DeploymentID {
	if d := a.decisions.Deployment; d != nil {
		return d.ID
	}
	if d := a.view.LatestDeployment(a.eval.Namespace, a.eval.JobID); d.Of(a.job) {
		return d.ID
	}
	return a.eval.DeploymentID
}

// createdEvals returns the new evaluations that the attempt would create beside its own.
func (a *attempt) createdEvals() []*fleet.Evaluation {
	created := []*fleet.Evaluation{}
	for _, e := range a.evalsAfterPlan() {
		if _, known := a.view.Eval(e.ID); !known && e.ID != a.eval.ID {
			created = append(created, &e)
		}
	}
	return created
}
