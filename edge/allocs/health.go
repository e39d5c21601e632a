package allocs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"skerry/edge/journal"
	"skerry/fleet"
)

// Values for the health of allocations whose group has no update block, for example in a migration.
const (
	defaultMinHealthy      = 10 * time.Second
	defaultHealthyDeadline = 5 * time.Minute
)

// healthKey is the journal's key of a healthStart. No task can have this name.
const healthKey = "/health"

// health holds the allocations whose health is not decided yet and is watched for a deployment.
type health struct {
	mu      sync.Mutex
	started map[fleet.AllocID]healthStart
}

// healthStart says when the watch of an allocation's health began: at the time Begun since the boot Boot. It is
// journaled, so that a restart of the agent does not extend the deadline.
type healthStart struct {
	Deployment fleet.DeploymentID `json:"deployment"`
	Boot       fleet.BootID       `json:"boot"`
	Begun      time.Duration      `json:"begun"`
}

// wakeForHealthRows makes Run reconcile if one of the recorded rows may decide an allocation's health or its
// checks.
func (a *Allocs) wakeForHealthRows(ts []fleet.Transition) {
	a.health.mu.Lock()
	defer a.health.mu.Unlock()
	a.mu.Lock()
	checked := a.checked
	a.mu.Unlock()
	for _, t := range ts {
		if _, judged := a.health.started[t.Alloc]; (judged || checked[t.Alloc]) && (t.TaskState != nil || t.ClientStatus != "") {
			a.TriggerReconcile()
			return
		}
	}
}

// evaluateHealth decides the health of each allocation that belongs to a deployment, and records those that are
// decided together. It returns how long until the next decision may be due. It uses monotonic time only and needs
// no hub.
func (a *Allocs) evaluateHealth(ctx context.Context, desired map[fleet.AllocID]journal.DesiredAlloc, held *heldStops) (next time.Duration, err error) {
	next = time.Hour
	watched := a.watchedForHealth(desired, held)
	starts, failed := a.ensureHealthStarts(ctx, watched)
	var decided []fleet.Transition
	for _, id := range sortedKeys(starts) {
		w := watched[id]
		u := updateOf(&w.Alloc)
		// Read the state only here: a row that is recorded later wakes Run.
		s := a.cfg.Journal.States()[id]
		healthy, why, wait := healthVerdict(&w.Alloc, s, healthRules{u, a.checksOf(&w, u)}, starts[id], a.currentMoment())
		if wait > 0 {
			next = min(next, wait)
			continue
		}
		decided = append(decided, fleet.Transition{
			Kind: fleet.TransitionHealth, Alloc: id, Deployment: w.Alloc.DeploymentID, Healthy: &healthy, Message: why,
		})
	}
	if err := a.cfg.Journal.Record(ctx, decided...); err != nil {
		return next, errors.Join(failed, fmt.Errorf("record the health of %d allocations: %w", len(decided), err))
	}
	for _, row := range decided {
		a.forgetHealthStart(row.Alloc)
		a.log.Info("allocation's health decided", "alloc_id", string(row.Alloc), "healthy", *row.Healthy, "reason", row.Message)
	}
	return next, failed
}

// watchedForHealth returns the allocations whose health is to be decided for their deployment. It ends the watch of
// the others.
func (a *Allocs) watchedForHealth(desired map[fleet.AllocID]journal.DesiredAlloc, held *heldStops) map[fleet.AllocID]journal.DesiredAlloc {
	watched := map[fleet.AllocID]journal.DesiredAlloc{}
	states := a.cfg.Journal.States()
	for id, w := range desired {
		s, d := states[id], w.Alloc.DeploymentID
		if d == "" || w.Stop || s.Held != nil || held.predecessorReason(w, s) != "" || a.moving.isAwaited(id) || w.Alloc.Job == nil ||
			updateOf(&w.Alloc).HealthCheck == fleet.HealthManual || s.HealthOf == d && s.Healthy != nil {
			a.forgetHealthStart(id)
			continue
		}
		watched[id] = w
	}
	return watched
}

// healthRules are the update block and the state of the checks that decide the health of an allocation.
type healthRules struct {
	update fleet.Update
	checks checkSummary
}

// updateOf returns the update block of an allocation's group, or the defaults for health.
func updateOf(a *fleet.Alloc) fleet.Update {
	u := fleet.Update{}
	if g := a.Group(); g != nil && g.Update != nil {
		return *g.Update
	}
	u.MinHealthyTime, u.HealthyDeadline = defaultMinHealthy, defaultHealthyDeadline
	return u
}

// upSince returns the monotonic time since when all required tasks run, whether all of them run now, and the reason if
// one has failed for good.
func upSince(a *fleet.Alloc, s journal.State, now journal.Moment) (begun time.Duration, all bool, failed string) {
	all = true
	for _, t := range a.Group().Tasks {
		state := s.TaskStates[t.Name]
		since, running := s.Since[t.Name]
		switch {
		case state.State == fleet.TaskDead && state.Failed:
			return 0, false, fmt.Sprintf("task %q failed", t.Name)
		case t.Lifecycle != nil && t.Lifecycle.Hook == fleet.HookPoststop,
			t.Lifecycle != nil && !t.Lifecycle.Sidecar && state.State == fleet.TaskDead:
			// this task need not run now
		case state.State != fleet.TaskRunning || !running || s.BootID != now.Boot:
			all = false
		default:
			begun = max(begun, since)
		}
	}
	return begun, all, ""
}

// healthVerdict decides whether an allocation is healthy. wait > 0 means not decided: ask again after wait.
func healthVerdict(a *fleet.Alloc, s journal.State, r healthRules, j healthStart, now journal.Moment) (healthy bool, why string, wait time.Duration) {
	u, c := r.update, r.checks
	if s.Terminal() {
		return false, "the allocation is " + s.ClientStatus, 0
	}
	begun, all, failed := upSince(a, s, now)
	if failed != "" {
		return false, failed, 0
	}
	begun = max(begun, j.Begun)
	well, late := fmt.Sprintf("all tasks have been running for %s", u.MinHealthyTime), fmt.Sprintf("not healthy within %s", u.HealthyDeadline)
	if c.wanted {
		well = fmt.Sprintf("all checks have been passing for %s", u.MinHealthyTime)
		if all && !c.passing {
			late += ": " + c.failing
		}
		all, begun = all && c.passing, max(begun, c.since)
	}
	deadline := j.Begun + u.HealthyDeadline - now.Mono
	if all {
		if wait = begun + u.MinHealthyTime - now.Mono; wait <= 0 {
			return true, well, 0
		}
		if u.HealthyDeadline > 0 {
			wait = min(wait, max(deadline, 0))
		}
		if wait > 0 {
			return false, "", wait
		}
	}
	if u.HealthyDeadline > 0 && deadline <= 0 {
		return false, late, 0
	}
	if u.HealthyDeadline == 0 {
		return false, "", time.Hour
	}
	return false, "", deadline
}

// ensureHealthStarts returns when the watch of the health of each watched allocation began. A watch that has not
// begun, or began in another boot or for another deployment, begins now. One commit journals all that begin; those
// that cannot be journaled are missing in the result.
func (a *Allocs) ensureHealthStarts(ctx context.Context, watched map[fleet.AllocID]journal.DesiredAlloc) (starts map[fleet.AllocID]healthStart, err error) {
	if starts, err = a.knownHealthStarts(ctx, watched); err != nil {
		maps.DeleteFunc(starts, func(id fleet.AllocID, j healthStart) bool {
			return j.Deployment != watched[id].Alloc.DeploymentID || j.Boot != a.cfg.BootID
		})
		return starts, err
	}
	begun := map[fleet.AllocID][]byte{}
	for id, w := range watched {
		if j := starts[id]; j.Deployment == w.Alloc.DeploymentID && j.Boot == a.cfg.BootID {
			continue
		}
		j := healthStart{Deployment: w.Alloc.DeploymentID, Boot: a.cfg.BootID, Begun: a.cfg.Journal.Mono()}
		if begun[id], err = json.Marshal(j); err != nil {
			return nil, fmt.Errorf("encode the health start of allocation %s: %w", fleet.Short(id), err)
		}
		starts[id] = j
	}
	if err = a.cfg.Journal.PutHandles(ctx, healthKey, begun); err != nil {
		err = fmt.Errorf("record the health starts of %d allocations: %w", len(begun), err)
		maps.DeleteFunc(starts, func(id fleet.AllocID, _ healthStart) bool { return begun[id] != nil })
	}
	a.health.mu.Lock()
	defer a.health.mu.Unlock()
	maps.Copy(a.health.started, starts)
	return starts, err
}

// knownHealthStarts returns the health starts of watched allocations that are in memory or, if some are not, in the
// journal. After an error it returns those in memory.
func (a *Allocs) knownHealthStarts(ctx context.Context, watched map[fleet.AllocID]journal.DesiredAlloc) (map[fleet.AllocID]healthStart, error) {
	starts := map[fleet.AllocID]healthStart{}
	a.health.mu.Lock()
	for id := range watched {
		if j, known := a.health.started[id]; known {
			starts[id] = j
		}
	}
	a.health.mu.Unlock()
	if len(starts) == len(watched) {
		return starts, nil
	}
	handles, err := a.cfg.Journal.HandlesUnder(ctx, healthKey)
	if err != nil {
		return starts, err
	}
	for id := range watched {
		if _, known := starts[id]; !known {
			starts[id] = decodeHealthStart(handles[id])
		}
	}
	return starts, nil
}

// decodeHealthStart decodes a journaled healthStart. Bytes that cannot be decoded give the zero value, so that
// the watch begins again.
func decodeHealthStart(b []byte) healthStart {
	var j healthStart
	if len(b) > 1<<10 || json.Unmarshal(b, &j) != nil || j.Begun < 0 {
		return healthStart{}
	}
	return j
}

// forgetHealthStart ends the watch of an allocation's health in memory.
func (a *Allocs) forgetHealthStart(id fleet.AllocID) {
	a.health.mu.Lock()
	defer a.health.mu.Unlock()
	delete(a.health.started, id)
}
