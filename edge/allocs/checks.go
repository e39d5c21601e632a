package allocs

import (
	"context"
	"time"

	"skerry/edge/journal"
	"skerry/fleet"
)

// Checks does the checks of services. It is told what runs, and asked how that stands.
type Checks interface {
	// Follow does the checks of an allocation until ctx ends; since is when each of
	// its running tasks started, in time since boot.
	Follow(ctx context.Context, a fleet.Alloc, since map[string]time.Duration)
	// Forget ends them.
	Forget(id fleet.AllocID)
	// Passing says since when all pass that an update waits for, or which does not.
	Passing(id fleet.AllocID) (since time.Duration, failing string, ok bool)
	// Wait returns when all have ended.
	Wait()
}

// followChecks has the checks done of all that runs, and of nothing else.
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
		// Read only now: what is recorded from here on makes Run look again.
		s := a.cfg.Journal.States()[id]
		a.cfg.Checks.Follow(ctx, desired[id].Alloc, a.startsOf(s))
	}
}

// startsOf is when each task that runs started, in this boot.
func (a *Allocs) startsOf(s journal.State) map[string]time.Duration {
	since := map[string]time.Duration{}
	for name, t := range s.TaskStates {
		if started, ok := s.Since[name]; ok && t.State == fleet.TaskRunning && s.BootID == a.cfg.BootID {
			since[name] = started
		}
	}
	return since
}

// Unhealthy restarts a task whose check failed too often, or all for "", by the group's
// restart policy.
func (a *Allocs) Unhealthy(ctx context.Context, id fleet.AllocID, task, why string) error {
	a.mu.Lock()
	u := a.active[id]
	a.mu.Unlock()
	if u == nil {
		return fleet.Errorf(fleet.CodeConflict, "allocation %s does not run", fleet.Short(id))
	}
	return u.runner.RestartUnhealthy(ctx, task, why)
}

// checkSummary is how the checks stand that an allocation's health waits for.
type checkSummary struct {
	wanted  bool // there are any, and they are asked for
	passing bool
	since   time.Duration // they pass
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
