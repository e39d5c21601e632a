package rollout

import (
	"time"

	"skerry/fleet"
)

// isDeferredAlloc reports whether the deadline does not count an allocation: its node is away, it came
// back a short time ago, or somebody on site keeps it stopped. An allocation that failed before its node went away counts, except
// for a system job, which can be replaced only on that node.
func (p DeploymentSnapshot) isDeferredAlloc(a *fleet.Alloc) bool {
	switch {
	case p.hasJustReturned(a):
		return true
	case a.ClientTerminal():
		return p.isSystemJob() && p.Away(a.NodeID)
	}
	return a.ClientStatus == fleet.ClientUnknown || p.Away(a.NodeID) || a.Held != nil
}

// hasJustReturned reports whether an allocation of an older deployment came back less than a progress
// deadline ago and has no replacement yet. (A returning allocation of this deployment restarts the
// deadline itself.)
func (p DeploymentSnapshot) hasJustReturned(a *fleet.Alloc) bool {
	if a.DeploymentID == p.Deployment.ID || a.NextAllocation != "" {
		return false
	}
	long := p.Deployment.TaskGroups[a.TaskGroup].ProgressDeadline
	return a.NeedsToReconnect() || p.Now.Before(reconnectTime(a).Add(long))
}

// isAwaitingPromotion reports whether a group waits for its promotion only: all of its canaries are
// healthy or deferred.
func (p DeploymentSnapshot) isAwaitingPromotion(group string, s fleet.DeploymentState) bool {
	n := 0
	for _, a := range p.Progress.progressOfGroup(group).canaries {
		if p.isDeferredAlloc(a) || a.DeploymentStatus.IsHealthy() && !a.ClientTerminal() {
			n++
		}
	}
	return s.DesiredCanaries > 0 && !s.Promoted && n >= s.DesiredCanaries
}

// reconnectTime is when the hub recorded that an allocation is back, by the hub's clock. Zero: it was
// never away, or it is away now.
func reconnectTime(a *fleet.Alloc) (at time.Time) {
	for _, s := range a.AllocStates {
		if s.Field == fleet.AllocStateClientStatus && s.Value != "" {
			at = s.Time
			if s.Value == fleet.ClientUnknown || s.Value == fleet.ClientLost {
				at = time.Time{}
			}
		}
	}
	return at
}

// minRecheckInterval is the shortest pause between two checks of a deployment past its deadline.
const minRecheckInterval = time.Minute

// recheckInterval is the pause before a deployment past its deadline, with only deferred allocations
// left, is checked again: a node that comes back does not write the deployment's row.
func (p DeploymentSnapshot) recheckInterval() time.Duration {
	var shortest time.Duration
	for _, s := range p.Deployment.TaskGroups {
		if d := s.ProgressDeadline; d > 0 && (shortest == 0 || d < shortest) {
			shortest = d
		}
	}
	return max(shortest, minRecheckInterval)
}
