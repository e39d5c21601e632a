package rollout

import (
	"time"

	"skerry/fleet"
	"skerry/fleet/cron"
	"skerry/hub/state"
)

// windowed reports whether a group's updates wait for windows.
func (p Picture) windowed(group string) bool {
	g := p.Job.Group(group)
	return p.Window != nil && g != nil && g.Update != nil && len(g.Update.Windows) > 0
}

// window is how a group's windows stand where an allocation is.
func (p Picture) window(a *fleet.Alloc) cron.Standing {
	if !p.windowed(a.TaskGroup) {
		return cron.Standing{Open: true}
	}
	return p.Window(a.NodeID, p.Job.Group(a.TaskGroup))
}

// post is where an edge may hold a newer version back.
type post struct {
	node fleet.NodeID
	name string
}

// heldBack are the posts of a group at which an edge keeps an older version running
// until a window opens.
func (p Picture) heldBack(group string, whole []*fleet.Alloc) map[post]bool {
	if !p.windowed(group) {
		return nil
	}
	held := map[post]bool{}
	for _, a := range whole {
		if a.TaskGroup == group && a.AwaitsWindow() && !p.window(a).Open {
			held[post{a.NodeID, a.Name}] = true
		}
	}
	return held
}

// shut reports whether an allocation waits for a window of its node: an older version to
// be replaced, or the newest one where its edge holds it back.
func (p Picture) shut(a *fleet.Alloc, held map[post]bool) bool {
	if a.JobVersion == p.Job.Version {
		return a.ClientStatus == fleet.ClientPending && held[post{a.NodeID, a.Name}]
	}
	return !p.window(a).Open
}

// deadline is when a group has to have got on, zero: at no time. Where it waits for
// windows, its time begins anew when one opens: the deadline does not run while what is
// left to do is shut.
func (p Picture) deadline(group string, s fleet.DeploymentState) time.Time {
	by := s.RequireProgressBy
	if by.IsZero() || !p.windowed(group) {
		return by
	}
	for _, a := range p.Whole() {
		if a.TaskGroup != group || a.NoLongerWanted() || a.JobVersion == p.Job.Version && a.DeploymentStatus.IsHealthy() {
			continue
		}
		if w := p.window(a); w.Open && w.Since.Add(s.ProgressDeadline).After(by) {
			by = w.Since.Add(s.ProgressDeadline)
		}
	}
	return by
}

// opens is when the first window opens that something of the deployment waits for; zero:
// nothing waits for one.
func (p Picture) opens() time.Time {
	var first time.Time
	for name := range p.Deployment.TaskGroups {
		if !p.windowed(name) {
			continue
		}
		whole := p.Whole()
		held := p.heldBack(name, whole)
		for _, a := range whole {
			if a.TaskGroup != name || a.NoLongerWanted() || a.ClientStatus == fleet.ClientUnknown || !p.shut(a, held) {
				continue
			}
			if at := p.window(a).Next; !at.IsZero() && (first.IsZero() || at.Before(first)) {
				first = at
			}
		}
	}
	return first
}

// standings tells how windows stand on nodes: those of one time zone are alike.
func standings(view *state.View, now time.Time) func(fleet.NodeID, *fleet.TaskGroup) cron.Standing {
	type key struct{ zone, group string }
	known := map[key]cron.Standing{}
	return func(id fleet.NodeID, g *fleet.TaskGroup) cron.Standing {
		n, ok := view.Node(id)
		if !ok {
			return cron.Standing{Open: true}
		}
		k := key{n.TimeZone, g.Name}
		s, ok := known[k]
		if !ok {
			s = cron.On(n, g, now)
			known[k] = s
		}
		return s
	}
}
