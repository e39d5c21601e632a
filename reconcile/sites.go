package reconcile

import (
	"fmt"

	"skerry/fleet"
)

// siteBudgets counts, by site, the allocations of a group that its rollouts have taken out of service.
type siteBudgets struct {
	limit         int            // max_unavailable_per_site; 0: no limit
	outOfService  map[string]int // allocations that are not known to be healthy, or missing
	notRunning    map[string]int // of these: the ones that are not known to run
	onAbsentNodes map[string]int // of these: the ones on nodes that are away
}

// newSiteBudgets returns empty counts with the limit of the group.
func newSiteBudgets(g *fleet.TaskGroup) siteBudgets {
	s := siteBudgets{outOfService: map[string]int{}, notRunning: map[string]int{}, onAbsentNodes: map[string]int{}}
	if g.Update != nil {
		s.limit = g.Update.MaxUnavailablePerSite
	}
	return s
}

// countOutOfService counts an allocation that is not known to be healthy.
func (s siteBudgets) countOutOfService(m *member, site string) {
	s.outOfService[site]++
	if !m.isRunningNotUnhealthy() {
		s.notRunning[site]++
	}
	if m.kind == kindReplaying || m.absent && m.kind != kindMigrating { // a migrating one is replaced on another node
		s.onAbsentNodes[site]++
	}
}

// countMissing counts an allocation that is missing at a site.
func (s siteBudgets) countMissing(site string) {
	s.outOfService[site]++
	s.notRunning[site]++
}

// countMissingAbsent counts an allocation that is missing at a site until a node is back.
func (s siteBudgets) countMissingAbsent(site string) {
	s.countMissing(site)
	s.onAbsentNodes[site]++
}

// siteFullReason returns why an allocation in service may not be replaced before a node of its site is
// back; "": it may.
func (s siteBudgets) siteFullReason(m *member, site string) string {
	if s.limit == 0 || s.onAbsentNodes[site] < s.limit || m.isNotYetHealthy() && !m.isRunningNotUnhealthy() || m.kind != kindRunning {
		return ""
	}
	return fmt.Sprintf("%d at site %s are away in the middle of it", s.onAbsentNodes[site], site)
}

// hasSiteBudget reports whether the site's limit allows to replace an allocation. One that is out of
// service may be replaced, unless it runs and the limit is reached by others of the site that do not run.
func (s siteBudgets) hasSiteBudget(m *member, site string) bool {
	switch {
	case s.limit == 0:
		return true
	case !m.isNotYetHealthy():
		return s.outOfService[site] < s.limit
	}
	return !m.isRunningNotUnhealthy() || s.notRunning[site] < s.limit
}

// countDestructiveUpdate counts an allocation that is replaced now.
func (s siteBudgets) countDestructiveUpdate(m *member, site string) {
	switch {
	case !m.isNotYetHealthy():
		s.countMissing(site)
	case m.isRunningNotUnhealthy():
		s.notRunning[site]++
	}
}

// isStoppedForUpdate reports whether the deployment stopped an allocation, the last of its name or node,
// that is not replaced yet, because there was no capacity for both.
func (d *decision) isStoppedForUpdate(m *member) bool {
	return d.deployment.StoppedForUpdate(m.a) && d.needsDestructiveUpdate(m.a)
}

// isNotYetHealthy reports whether an allocation is out of service for its site: it belongs to a deployment
// and is not known to be healthy, or it is starting without one.
func (m *member) isNotYetHealthy() bool {
	if m.a.DeploymentID == "" {
		return m.kind == kindRunning && m.statusOnEdge() == fleet.ClientPending
	}
	return !m.a.DeploymentStatus.IsHealthy() && m.kind != kindEnded && m.kind != kindLost
}

// isRunningNotUnhealthy reports whether an allocation runs and its edge has not reported it unhealthy.
func (m *member) isRunningNotUnhealthy() bool {
	return m.kind == kindRunning && m.statusOnEdge() == fleet.ClientRunning && !m.a.DeploymentStatus.IsUnhealthy()
}

// siteOfAlloc returns the site at which an allocation that is not healthy yet counts as out of service:
// the site of the allocation that it replaced, else its own.
func (r *rollout) siteOfAlloc(m *member) string {
	if prev := r.d.byID[m.a.PreviousAllocation]; prev != nil {
		return r.d.in.Nodes[prev.NodeID].SiteName()
	}
	return r.d.in.Nodes[m.a.NodeID].SiteName()
}
