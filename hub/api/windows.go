package api

import (
	"time"

	"skerry/api"
	"skerry/fleet"
	"skerry/fleet/cron"
	"skerry/hub/state"
)

// addDeferred counts an allocation that waits for an update window. p.Opens becomes the earliest opening; a zero
// time means that the window never opens.
func addDeferred(p *api.WindowProgress, opens time.Time) {
	p.Deferred++
	if !opens.IsZero() && (p.Opens == nil || opens.Before(*p.Opens)) {
		opens = opens.UTC()
		p.Opens = &opens
	}
}

// windowTracker says which allocations of a deployment wait for update windows. It belongs to one request.
type windowTracker struct {
	view           *state.View
	job            *fleet.Job // nil: none waits
	now            time.Time
	known          map[zoneAndGroup]cron.WindowState
	waitsForWindow map[nodeAndName]bool // where an edge keeps an older version running until a window opens
}

// zoneAndGroup is a group in a time zone: its update windows open at the same time on all nodes of the zone.
type zoneAndGroup struct{ zone, group string }

// nodeAndName is the name of a job's allocation on a node.
type nodeAndName struct {
	node fleet.NodeID
	name string
}

// hasWindows reports whether a group of the job has update windows.
func hasWindows(j *fleet.Job) bool {
	for _, g := range j.TaskGroups {
		if g.Update != nil && len(g.Update.Windows) > 0 {
			return true
		}
	}
	return false
}

// newWindowTracker returns the tracker of a deployment. If the deployment has ended, is not of the job's newest
// version, or has no windows, no allocation waits.
func (a *API) newWindowTracker(v *state.View, d *fleet.Deployment) *windowTracker {
	s := &windowTracker{view: v, now: a.cfg.Now(), known: map[zoneAndGroup]cron.WindowState{}, waitsForWindow: map[nodeAndName]bool{}}
	job, ok := v.Job(d.Namespace, d.JobID)
	if !ok || !d.Active() || !d.Of(job) || !hasWindows(job) {
		return s
	}
	s.job = job
	for al := range v.AllocsByJob(d.Namespace, d.JobID) {
		if al.AwaitsWindow() && !s.windowState(al).Open {
			s.waitsForWindow[nodeAndName{al.NodeID, al.Name}] = true
		}
	}
	return s
}

// windowState returns whether the update windows of an allocation's group are open on its node, and when they open
// next. Without a node they are open.
func (s *windowTracker) windowState(al *fleet.Alloc) cron.WindowState {
	n, ok := s.view.Node(al.NodeID)
	if !ok {
		return cron.WindowState{Open: true}
	}
	k := zoneAndGroup{n.TimeZone, al.TaskGroup}
	w, ok := s.known[k]
	if !ok {
		w = cron.NodeWindowState(n, s.job.Group(al.TaskGroup), s.now)
		s.known[k] = w
	}
	return w
}

// closedUntil reports whether an allocation waits for an update window, and when the window opens (zero: never).
func (s *windowTracker) closedUntil(al *fleet.Alloc) (opens time.Time, closed bool) {
	switch {
	case s.job == nil || al.NoLongerWanted() || al.ClientStatus == fleet.ClientUnknown:
		return time.Time{}, false
	case al.JobVersion == s.job.Version && !(al.ClientStatus == fleet.ClientPending && s.waitsForWindow[nodeAndName{al.NodeID, al.Name}]):
		return time.Time{}, false
	}
	w := s.windowState(al)
	return w.Next, !w.Open
}

// progressByGroup counts by group the allocations that wait for update windows; nil: none can.
func (s *windowTracker) progressByGroup(d *fleet.Deployment) map[string]api.WindowProgress {
	if s.job == nil {
		return nil
	}
	sums := map[string]api.WindowProgress{}
	for al := range s.view.AllocsByJob(d.Namespace, d.JobID) {
		if opens, closed := s.closedUntil(al); closed {
			sum := sums[al.TaskGroup]
			addDeferred(&sum, opens)
			sums[al.TaskGroup] = sum
		}
	}
	return sums
}
