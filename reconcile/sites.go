package reconcile

import (
	"fmt"

	"skerry/fleet"
)

// siteBudgets keeps account of what a group has out of service for its rollouts, by site.
type siteBudgets struct {
	limit         int            // max_unavailable_per_site; 0: none
	outOfService  map[string]int // what nobody has seen healthy yet
	notRunning    map[string]int // the part of it that does not run either, as far as is known
	onAbsentNodes map[string]int // the part of it that is on edges that are away
}

func newSiteBudgets(g *fleet.TaskGroup) siteBudgets {
	s := siteBudgets{outOfService: map[string]int{}, notRunning: map[string]int{}, onAbsentNodes: map[string]int{}}
	if g.Update != nil {
		s.limit = g.Update.MaxUnavailablePerSite
	}
	return s
}

// countOutOfService takes account of an allocation that is unproven.
func (s siteBudgets) countOutOfService(m *member, site string) {
	s.outOfService[site]++
	if !m.isRunningNotUnhealthy() {
		s.notRunning[site]++
	}
	if m.kind == kindReplaying || m.absent && m.kind != kindMigrating { // what is replaced elsewhere is waited for there
		s.onAbsentNodes[site]++
	}
}

// countMissing takes account of what a site goes without.
func (s siteBudgets) countMissing(site string) {
	s.outOfService[site]++
	s.notRunning[site]++
}

// countMissingAbsent takes account of what a site goes without until an edge is back.
func (s siteBudgets) countMissingAbsent(site string) {
	s.countMissing(site)
	s.onAbsentNodes[site]++
}

// siteFullReason says why nothing that serves at a site may be started anew before an edge is
// back; "".
func (s siteBudgets) siteFullReason(m *member, site string) string {
	if s.limit == 0 || s.onAbsentNodes[site] < s.limit || m.isNotYetHealthy() && !m.isRunningNotUnhealthy() || m.kind != kindRunning {
		return ""
	}
	return fmt.Sprintf("%d at site %s are away in the middle of it", s.onAbsentNodes[site], site)
}

// hasSiteBudget reports whether an allocation may be started anew, as far as its site is
// concerned. One that is out of service already may be, unless it runs and too much
// does not: that many run that nobody has seen healthy, as a version that they took in
// place had not begun to count when the next one came.
func (s siteBudgets) hasSiteBudget(m *member, site string) bool {
	switch {
	case s.limit == 0:
		return true
	case !m.isNotYetHealthy():
		return s.outOfService[site] < s.limit
	}
	return !m.isRunningNotUnhealthy() || s.notRunning[site] < s.limit
}

// countDestructiveUpdate takes account of an allocation that is started anew.
func (s siteBudgets) countDestructiveUpdate(m *member, site string) {
	switch {
	case !m.isNotYetHealthy():
		s.countMissing(site)
	case m.isRunningNotUnhealthy():
		s.notRunning[site]++
	}
}

// isStoppedForUpdate reports whether the deployment stopped an allocation, the last one of its name
// or post, and nothing is there in its stead: there was no room for both, and what replaces
// it comes when there is.
func (d *decision) isStoppedForUpdate(m *member) bool {
	return d.deployment.StoppedForUpdate(m.a) && d.needsDestructiveUpdate(m.a)
}

// isNotYetHealthy reports whether an allocation is of a deployment, of this version or
// another, and nobody has seen it healthy, or starts without one: it is out of service
// for its site.
func (m *member) isNotYetHealthy() bool {
	if m.a.DeploymentID == "" {
		return m.kind == kindRunning && m.statusOnEdge() == fleet.ClientPending
	}
	return !m.a.DeploymentStatus.IsHealthy() && m.kind != kindEnded && m.kind != kindLost
}

// isRunningNotUnhealthy: it runs, and its edge has not said that it is not healthy.
func (m *member) isRunningNotUnhealthy() bool {
	return m.kind == kindRunning && m.statusOnEdge() == fleet.ClientRunning && !m.a.DeploymentStatus.IsUnhealthy()
}

// siteOfAlloc is where an allocation is out of service until it is healthy: where the one
// was that it replaced.
func (r *rollout) siteOfAlloc(m *member) string {
	if prev := r.d.byID[m.a.PreviousAllocation]; prev != nil {
		return r.d.in.Nodes[prev.NodeID].SiteName()
	}
	return r.d.in.Nodes[m.a.NodeID].SiteName()
}
