package allocs

import (
	"context"
	"time"

	"skerry/edge/journal"
	"skerry/fleet"
)

// Checks runs the checks of services.
type Checks interface {
	// Follow runs the checks of an allocation until ctx ends. since is the start of each running task,
	// as time since boot.
	Follow(ctx context.Context, a fleet.Alloc, since map[string]time.Duration)
	// Forget ends the checks of an allocation.
	Forget(id fleet.AllocID)
	// Passing returns since when all checks that count for health pass, or the one that fails.
	Passing(id fleet.AllocID) (since time.Duration, failing string, ok bool)
	// Wait returns when all checks have ended.
	Wait()
}

// followChecks starts the checks of all running allocations and ends the others.
func (a *Allocs) followChecks(ctx context.Context, desired map[fleet.AllocID]journal.DesiredAlloc) {
	if a.cfg.Checks == nil {
		return
	}
	states := a.cfg.Journal.States()
	checked := map[fleet.AllocID]bool{}
	for id, w := range desired {
		if g := w.Alloc.Group(); w.Stop || w.Alloc.Job == nil || g == nil || !g.HasChecks() || states[id].Terminal() {
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
		a.cfg.Checks.Follow(ctx, desired[id].Alloc, a.startsOf(s))
	}
}

// startsOf returns the start of each task that runs in this boot.
func (a *Allocs) startsOf(s journal.State) map[string]time.Duration {
	since := map[string]time.Duration{}
	for name, t := range s.TaskStates {
		if started, ok := s.Since[name]; ok && t.State == fleet.TaskRunning && s.BootID == a.cfg.BootID {
			since[name] = started
		}
	}
	return since
}

// Unhealthy restarts a task after failed checks, or all for "", by the group's restart policy.
func (a *Allocs) Unhealthy(ctx context.Context, id fleet.AllocID, task, why string) error {
	u := a.activeAllocOf(id)
	if u == nil {
		return fleet.Errorf(fleet.CodeConflict, "allocation %s does not run", fleet.Short(id))
	}
	return u.runner.RestartUnhealthy(ctx, task, why)
}

// checkSummary is the state of the checks that count for an allocation's health.
type checkSummary struct {
	wanted  bool // the allocation has checks that count
	passing bool
	since   time.Duration // since when they pass
	failing string
}

func (a *Allocs) checksOf(w *journal.DesiredAlloc, u fleet.Update) checkSummary {
	g := w.Alloc.Group()
	if a.cfg.Checks == nil || u.HealthCheck == fleet.HealthTaskStates || g == nil || !g.HasChecks() {
		return checkSummary{}
	}
	s := checkSummary{wanted: true}
	s.since, s.failing, s.passing = a.cfg.Checks.Passing(w.Alloc.ID)
	return s
}
