package reconcile

import (
	"fmt"

	"skerry/fleet"
	"skerry/planted"
)

// sites keeps account of what a group has out of service for its rollouts, by site.
type sites struct {
	limit int            // max_unavailable_per_site; 0: none
	out   map[string]int // what nobody has seen healthy yet
	down  map[string]int // the part of it that does not run either, as far as is known
	gone  map[string]int // the part of it that is on edges that are away
}

func newSites(g *fleet.TaskGroup) sites {
	s := sites{out: map[string]int{}, down: map[string]int{}, gone: map[string]int{}}
	if g.Update != nil {
		s.limit = g.Update.MaxUnavailablePerSite
	}
	return s
}

// count takes account of an allocation that is unproven.
func (s sites) count(m *member, site string) {
	s.out[site]++
	if !m.up() {
		s.down[site]++
	}
	if m.kind == frozen || m.absent && m.kind != migrating { // what is replaced elsewhere is waited for there
		s.gone[site]++
	}
}

// miss takes account of what a site goes without.
func (s sites) miss(site string) {
	s.out[site]++
	s.down[site]++
}

// missAway takes account of what a site goes without until an edge is back.
func (s sites) missAway(site string) {
	s.miss(site)
	s.gone[site]++
}

// full says why nothing that serves at a site may be started anew before an edge is
// back; "".
func (s sites) full(m *member, site string) string {
	if s.limit == 0 || s.gone[site] < s.limit || m.unproven() && !m.up() || m.kind != present {
		return ""
	}
	return fmt.Sprintf("%d at site %s are away in the middle of it", s.gone[site], site)
}

// room reports whether an allocation may be started anew, as far as its site is
// concerned. One that is out of service already may be, unless it runs and too much
// does not: that many run that nobody has seen healthy, as a version that they took in
// place had not begun to count when the next one came.
func (s sites) room(m *member, site string) bool {
	switch {
	case s.limit == 0, planted.On(planted.SitesForgotten):
		return true
	case !m.unproven():
		return s.out[site] < s.limit
	}
	return !m.up() || s.down[site] < s.limit
}

// lose takes account of an allocation that is started anew.
func (s sites) lose(m *member, site string) {
	switch {
	case !m.unproven():
		s.miss(site)
	case m.up():
		s.down[site]++
	}
}

// cleared reports whether the deployment stopped an allocation, the last one of its name
// or post, and nothing is there in its stead: there was no room for both, and what replaces
// it comes when there is.
func (d *decision) cleared(m *member) bool {
	return d.deployment.Cleared(m.a) && d.outdated(m.a)
}

// unproven reports whether an allocation is of a deployment, of this version or
// another, and nobody has seen it healthy, or starts without one: it is out of service
// for its site.
func (m *member) unproven() bool {
	if m.a.DeploymentID == "" {
		return m.kind == present && m.status() == fleet.ClientPending
	}
	return !m.a.DeploymentStatus.IsHealthy() && m.kind != ended && m.kind != lost
}

// up: it runs, and its edge has not said that it is not healthy.
func (m *member) up() bool {
	return m.kind == present && m.status() == fleet.ClientRunning && !m.a.DeploymentStatus.IsUnhealthy()
}

// site is where an allocation is out of service until it is healthy: where the one
// was that it replaced.
func (r *rollout) site(m *member) string {
	if prev := r.d.byID[m.a.PreviousAllocation]; prev != nil {
		return r.d.in.Nodes[prev.NodeID].SiteName()
	}
	return r.d.in.Nodes[m.a.NodeID].SiteName()
}
