package rollout

import (
	"time"

	"skerry/fleet"
	"skerry/fleet/cron"
	"skerry/hub/state"
)

// hasUpdateWindows reports whether a group's updates wait for windows.
func (p DeploymentSnapshot) hasUpdateWindows(group string) bool {
	g := p.Job.Group(group)
	return p.Window != nil && g != nil && g.Update != nil && len(g.Update.Windows) > 0
}

// windowStateFor is how a group's windows stand where an allocation is.
func (p DeploymentSnapshot) windowStateFor(a *fleet.Alloc) cron.WindowState {
	if !p.hasUpdateWindows(a.TaskGroup) {
		return cron.WindowState{Open: true}
	}
	return p.Window(a.NodeID, p.Job.Group(a.TaskGroup))
}

// nameOnNode is where an edge may hold a newer version back.
type nameOnNode struct {
	node fleet.NodeID
	name string
}

// namesHeldByEdge are the posts of a group at which an edge keeps an older version running
// until a window opens.
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

// isOutsideWindow reports whether an allocation waits for a window of its node: an older version to
// be replaced, or the newest one where its edge holds it back.
func (p DeploymentSnapshot) isOutsideWindow(a *fleet.Alloc, held map[nameOnNode]bool) bool {
	if a.JobVersion == p.Job.Version {
		return a.ClientStatus == fleet.ClientPending && held[nameOnNode{a.NodeID, a.Name}]
	}
	return !p.windowStateFor(a).Open
}

// groupDeadline is when a group has to have got on, zero: at no time. Where it waits for
// windows, its time begins anew when one opens: the deadline does not run while what is
// left to do is shut.
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

// nextWindowOpening is when the first window opens that something of the deployment waits for; zero:
// nothing waits for one.
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

// windowStates tells how windows stand on nodes: those of one time zone are alike.
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
