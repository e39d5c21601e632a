package allocs

import (
	"context"
	"slices"
	"time"

	"skerry/edge/journal"
	"skerry/fleet"
)

// Checks runs the checks of services. *checks.Checks implements it.
type Checks interface {
	// Follow starts or updates the checks of an allocation and returns. The checks run until ctx ends or Forget is
	// called. since has the start of each running task, as time since boot; checks of other tasks do not run.
	Follow(ctx context.Context, a fleet.Alloc, since map[string]time.Duration)
	// Forget ends the checks of an allocation and drops their results.
	Forget(id fleet.AllocID)
	// Passing reports whether all checks that count for health pass. It returns the time since when they pass, or the
	// name of a failing check.
	Passing(id fleet.AllocID) (since time.Duration, failing string, ok bool)
	// Devices reports whether all devices of running tasks are there. It returns the time since when they are, or the
	// missing devices. ok is false if no device was ever missing.
	Devices(id fleet.AllocID) (since time.Duration, missing string, ok bool)
	// Wait returns when all checks have ended.
	Wait()
}

// followChecks starts the checks of all allocations that are to run and have checks, and ends those of the
// others.
func (a *Allocs) followChecks(ctx context.Context, desired map[fleet.AllocID]journal.DesiredAlloc) {
	if a.cfg.Checks == nil {
		return
	}
	states := a.cfg.Journal.States()
	checked := map[fleet.AllocID]bool{}
	for id, w := range desired {
		if g := w.Alloc.Group(); w.Stop || w.Alloc.Job == nil || g == nil || !hasChecks(g) || states[id].Terminal() {
			continue
		}
		checked[id] = true
	}
	a.mu.Lock()
	before := a.checked
	a.checked = checked
	a.mu.Unlock()
	for id := range before {
		if !checked[id] {
			a.cfg.Checks.Forget(id)
		}
	}
	for id := range checked {
		// Read the state only here: a row that is recorded later wakes Run.
		s := a.cfg.Journal.States()[id]
		alloc := desired[id].Alloc
		alloc.NetworkStatus, alloc.TaskStates = s.Network, s.TaskStates
		a.cfg.Checks.Follow(ctx, alloc, a.startsOf(s))
	}
}

// startsOf returns the start of each task that runs in this boot, as time since boot, by the task's name.
func (a *Allocs) startsOf(s journal.State) map[string]time.Duration {
	since := map[string]time.Duration{}
	for name, t := range s.TaskStates {
		if started, ok := s.Since[name]; ok && t.State == fleet.TaskRunning && s.BootID == a.cfg.BootID {
			since[name] = started
		}
	}
	return since
}

// Unhealthy restarts a task after failed checks, or all running tasks for "". The restart counts for the restart
// policy, which may fail the task instead.
func (a *Allocs) Unhealthy(ctx context.Context, id fleet.AllocID, task, why string) error {
	u := a.activeAllocOf(id)
	if u == nil {
		return fleet.Errorf(fleet.CodeConflict, "read the checks of allocation %s: it is not running", fleet.Short(id))
	}
	return u.runner.RestartUnhealthy(ctx, task, why)
}

// checkSummary is the state of the checks that count for an allocation's health, and of its devices.
type checkSummary struct {
	wanted  bool // the allocation has checks that count, or devices that are or were missing
	passing bool
	since   time.Duration // time since when all pass
	failing string        // name of a check that does not pass, or ""
}

// checksOf returns the state of an allocation's checks and devices. Checks do not count if the update block u says so.
// Missing devices always count. The result is zero if nothing counts.
func (a *Allocs) checksOf(w *journal.DesiredAlloc, u fleet.Update) checkSummary {
	var s checkSummary
	g := w.Alloc.Group()
	if a.cfg.Checks == nil || g == nil {
		return s
	}
	if u.HealthCheck != fleet.HealthTaskStates && hasChecks(g) {
		s.wanted = true
		s.since, s.failing, s.passing = a.cfg.Checks.Passing(w.Alloc.ID)
	}
	if since, missing, ok := a.cfg.Checks.Devices(w.Alloc.ID); ok {
		s.passing = missing == "" && (s.passing || !s.wanted)
		s.wanted, s.since = true, max(s.since, since)
		if missing != "" {
			s.failing = missing
		}
	}
	return s
}

// hasChecks reports whether a group or one of its tasks has service checks that run on the edge.
func hasChecks(g *fleet.TaskGroup) bool {
	checked := func(s fleet.Service) bool { return len(s.Checks) > 0 }
	return slices.ContainsFunc(g.Services, checked) ||
		slices.ContainsFunc(g.Tasks, func(t fleet.Task) bool { return slices.ContainsFunc(t.Services, checked) })
}
