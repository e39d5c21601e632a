package rollout

import (
	"time"

	"skerry/fleet"
)

// isDeferredAlloc reports whether an allocation is away, or came back only just. What failed on an
// edge that is away is for the deployment to decide on, but where it is started anew there
// alone.
func (p DeploymentSnapshot) isDeferredAlloc(a *fleet.Alloc) bool {
	switch {
	case p.hasJustReturned(a):
		return true
	case a.ClientTerminal():
		return p.isSystemJob() && p.Away(a.NodeID)
	}
	return a.ClientStatus == fleet.ClientUnknown || p.Away(a.NodeID)
}

// hasJustReturned reports whether an allocation that is not the deployment's is back, and for what is
// to take its place no more time is over than the group has. (The return of its own
// allocations gives it its time anew.)
func (p DeploymentSnapshot) hasJustReturned(a *fleet.Alloc) bool {
	if a.DeploymentID == p.Deployment.ID || a.NextAllocation != "" {
		return false
	}
	long := p.Deployment.TaskGroups[a.TaskGroup].ProgressDeadline
	return a.NeedsToReconnect() || p.Now.Before(reconnectTime(a).Add(long))
}

// isAwaitingPromotion reports whether a group waits for its promotion, and all of its canaries
// are healthy or away: nobody else has anything to do.
func (p DeploymentSnapshot) isAwaitingPromotion(group string, s fleet.DeploymentState) bool {
	n := 0
	for _, a := range p.Progress.progressOfGroup(group).canaries {
		if p.isDeferredAlloc(a) || a.DeploymentStatus.IsHealthy() && !a.ClientTerminal() {
			n++
		}
	}
	return s.DesiredCanaries > 0 && !s.Promoted && n >= s.DesiredCanaries
}

// reconnectTime is when an allocation's return was dealt with, by the hub's clock; zero: it has
// not been away, or is.
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

// minRecheckInterval bounds how often a deployment that is over its time is looked at again.
const minRecheckInterval = time.Minute

// recheckInterval is after what time a deployment whose deadline is over, but for which all that
// is left is away, is looked at again: a node that comes may leave it without an excuse,
// and changes nothing of it.
func (p DeploymentSnapshot) recheckInterval() time.Duration {
	var shortest time.Duration
	for _, s := range p.Deployment.TaskGroups {
		if d := s.ProgressDeadline; d > 0 && (shortest == 0 || d < shortest) {
			shortest = d
		}
	}
	return max(shortest, minRecheckInterval)
}
