package cron

import (
	"fmt"
	"time"
	_ "time/tzdata" // an edge's image need not have it, and must know the zones that a hub knows

	"skerry/fleet"
)

// WindowState is how the windows of an update block stand at a time.
type WindowState struct {
	Open  bool
	Since time.Time // where one is open: when the first of those that are did
	Next  time.Time // where none is: when the next one opens; zero: never
}

// WindowStateAt returns how windows stand at now, on a node of a site in a time zone (""
// is UTC). No windows are one that is always open. Where one of them cannot be read,
// none counts as open.
func WindowStateAt(windows []fleet.UpdateWindow, siteZone string, now time.Time) (WindowState, error) {
	if len(windows) == 0 {
		return WindowState{Open: true}, nil
	}
	var s WindowState
	for _, w := range windows {
		p := periodicForWindow(w, siteZone)
		// The first start after now-Duration is the one that is open, unless it is to come.
		start, err := Next(p, now.Add(-w.Duration))
		if err != nil {
			return WindowState{}, fmt.Errorf("window %q: %w", w.Cron, err)
		}
		if !start.IsZero() && !start.After(now) {
			if !s.Open || start.Before(s.Since) {
				s.Since = start
			}
			s.Open = true
		} else if !start.IsZero() && (s.Next.IsZero() || start.Before(s.Next)) {
			s.Next = start
		}
	}
	if s.Open {
		s.Next = time.Time{}
	}
	return s, nil
}

// NodeWindowState is how the windows of a group's updates stand on a node (nil: one that is gone,
// where nothing is held back). Those that cannot be read are closed, for good.
func NodeWindowState(n *fleet.Node, g *fleet.TaskGroup, now time.Time) WindowState {
	if n == nil || g == nil || g.Update == nil {
		return WindowState{Open: true}
	}
	s, err := WindowStateAt(g.Update.Windows, n.TimeZone, now)
	if err != nil {
		return WindowState{}
	}
	return s
}

// periodicForWindow is a window as what launches at the times at which it opens.
func periodicForWindow(w fleet.UpdateWindow, siteZone string) fleet.Periodic {
	zone := w.TimeZone
	if zone == "" || zone == fleet.SiteTimeZone {
		zone = siteZone
	}
	return fleet.Periodic{Spec: w.Cron, TimeZone: zone}
}

// CheckZone reports that a time zone is not known.
func CheckZone(zone string) error {
	_, err := location(zone)
	return err
}

// alwaysSteps bounds what all windows of a job may cost while a time is looked for at
// which they are closed.
const alwaysSteps = 4000

// windowProblems returns what is wrong with one window, but for what its form tells.
func windowProblems(path string, w fleet.UpdateWindow, now time.Time, steps *int) fleet.Problems {
	if w.Cron == "" {
		return nil
	}
	var ps fleet.Problems
	p := periodicForWindow(w, "")
	if err := CheckZone(p.TimeZone); err != nil {
		ps = append(ps, problemFromError(path+".TimeZone", err))
		p.TimeZone = ""
	}
	at, err := Next(p, now)
	switch {
	case err != nil:
		return append(ps, problemFromError(path+".Cron", err))
	case at.IsZero():
		return append(ps, fleet.Problem{Path: path + ".Cron", Message: fmt.Sprintf("%q never comes: the window never opens", w.Cron)})
	case w.Duration > 0 && alwaysOpen(p, w.Duration, at, steps):
		ps = append(ps, fleet.Problem{
			Path: path + ".Duration", Message: fmt.Sprintf("%s is as long as %q takes to come again: the window is always open", w.Duration, w.Cron),
			Hint: "leave the window out where updates may come at any time",
		})
	}
	return ps
}

// alwaysFor is how long a window may not close that counts as always open.
const alwaysFor = 5 * fleet.MaxDuration

// alwaysOpen reports whether a window that opened at start does not close for as many
// steps as are left, or for alwaysFor: each leads to the end of a window that is open
// when the last one would close.
func alwaysOpen(p fleet.Periodic, length time.Duration, start time.Time, steps *int) bool {
	x, err := compileExpression(p.Spec)
	if err != nil || *steps <= 0 {
		return false
	}
	for end := start.Add(length); *steps > 0 && end.Sub(start) < alwaysFor; *steps-- {
		// A start shortly before the end leads far; any within the window leads on.
		open := false
		for _, back := range []time.Duration{length / 8, length} {
			next, err := x.nextLaunch(end.Add(-back))
			if err != nil || next.IsZero() {
				return false
			}
			if open = !next.After(end); open {
				end = next.Add(length)
				break
			}
		}
		if !open {
			return false
		}
	}
	return true
}
