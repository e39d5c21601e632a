package rollout

import (
	"time"

	"skerry/fleet"
	"skerry/fleet/cron"
	"skerry/hub/state"
)

// hasUpdateWindows reports whether a group has update windows.
func (p DeploymentSnapshot) hasUpdateWindows(group string) bool {
	g := p.Job.Group(group)
	return p.Window != nil && g != nil && g.Update != nil && len(g.Update.Windows) > 0
}

// windowStateFor is the state of the group's update windows on an allocation's node.
func (p DeploymentSnapshot) windowStateFor(a *fleet.Alloc) cron.WindowState {
	if !p.hasUpdateWindows(a.TaskGroup) {
		return cron.WindowState{Open: true}
	}
	return p.Window(a.NodeID, p.Job.Group(a.TaskGroup))
}

// nameOnNode is an allocation name on one node.
type nameOnNode struct {
	node fleet.NodeID
	name string
}

// namesHeldByEdge returns the names of a group, with their nodes, whose older version the edge keeps
// running until an update window opens.
func (p DeploymentSnapshot) namesHeldByEdge(group string, whole []*fleet.Alloc) map[nameOnNode]bool {
	if !p.hasUpdateWindows(group) {
		return nil
	}
	held := map[nameOnNode]bool{}
	for _, a := range whole {
		if a.TaskGroup == group && a.AwaitsWindow() && !p.windowStateFor(a).Open {
			held[nameOnNode{a.NodeID, a.Name}] = true
		}
	}
	return held
}

// isOutsideWindow reports whether an allocation waits for an update window of its node: an older
// version waits for its replacement, or the newest one waits while its edge keeps the older one.
func (p DeploymentSnapshot) isOutsideWindow(a *fleet.Alloc, held map[nameOnNode]bool) bool {
	if a.JobVersion == p.Job.Version {
		return a.ClientStatus == fleet.ClientPending && held[nameOnNode{a.NodeID, a.Name}]
	}
	return !p.windowStateFor(a).Open
}

// groupDeadline is the progress deadline of a group, zero for none. If the group has update windows,
// the deadline restarts when a window opens: it does not run outside them.
func (p DeploymentSnapshot) groupDeadline(group string, s fleet.DeploymentState) time.Time {
	by := s.RequireProgressBy
	if by.IsZero() || !p.hasUpdateWindows(group) {
		return by
	}
	for _, a := range p.Whole() {
		if a.TaskGroup != group || a.NoLongerWanted() || a.JobVersion == p.Job.Version && a.DeploymentStatus.IsHealthy() {
			continue
		}
		if w := p.windowStateFor(a); w.Open && w.Since.Add(s.ProgressDeadline).After(by) {
			by = w.Since.Add(s.ProgressDeadline)
		}
	}
	return by
}

// nextWindowOpening is when the next window opens that an allocation of the deployment waits for; zero:
// none waits.
func (p DeploymentSnapshot) nextWindowOpening() time.Time {
	var first time.Time
	for name := range p.Deployment.TaskGroups {
		if !p.hasUpdateWindows(name) {
			continue
		}
		whole := p.Whole()
		held := p.namesHeldByEdge(name, whole)
		for _, a := range whole {
			if a.TaskGroup != name || a.NoLongerWanted() || a.ClientStatus == fleet.ClientUnknown || !p.isOutsideWindow(a, held) {
				continue
			}
			if at := p.windowStateFor(a).Next; !at.IsZero() && (first.IsZero() || at.Before(first)) {
				first = at
			}
		}
	}
	return first
}

// windowStates returns a function for the state of a group's update windows on a node. It computes
// each group once for each time zone.
func windowStates(view *state.View, now time.Time) func(fleet.NodeID, *fleet.TaskGroup) cron.WindowState {
	type key struct{ zone, group string }
	known := map[key]cron.WindowState{}
	return func(id fleet.NodeID, g *fleet.TaskGroup) cron.WindowState {
		n, ok := view.Node(id)
		if !ok {
			return cron.WindowState{Open: true}
		}
		k := key{n.TimeZone, g.Name}
		s, ok := known[k]
		if !ok {
			s = cron.NodeWindowState(n, g, now)
			known[k] = s
		}
		return s
	}
}
