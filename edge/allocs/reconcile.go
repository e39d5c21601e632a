package allocs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"skerry/edge/contract"
	"skerry/edge/journal"
	"skerry/fleet"
)

// reconcileAllocs makes, updates and stops runners to match the desired state, evaluates health, and removes
// ended allocations. first says that Run has just begun. It returns how long until it must be called again if
// nothing happens before.
func (a *Allocs) reconcileAllocs(ctx context.Context, first bool) (next time.Duration, err error) {
	// An allocation that cannot be journaled does not hold up the others.
	var failed []error
	if first {
		failed = append(failed, a.adoptLostAllocs(ctx))
	}
	desired, held, err := a.desiredAllocs(ctx)
	if err != nil {
		return 0, err
	}
	failed = append(failed, a.beginStops(ctx, desired, held))
	next, err = a.stopOverdue(ctx, desired)
	failed = append(failed, err)
	if _, err := a.settleHolds(ctx, desired); err != nil {
		return 0, errors.Join(append(failed, err)...) // without the holds, a held allocation could start
	}
	if err := a.readLaunches(ctx, desired); err != nil {
		return 0, errors.Join(append(failed, err)...) // nothing may start that was launched
	}
	a.forgetNotes(desired)
	for _, id := range sortedKeys(desired) {
		if a.updateRunner(id, desired[id]) {
			_, again, err := a.followLaunches(ctx, desired[id])
			next, failed = min(next, again), append(failed, err)
			continue
		}
		// Read the state only here: a runner records the end of its allocation before it returns.
		s := a.cfg.Journal.States()[id]
		if s.Terminal() {
			continue
		}
		if s.Held == nil {
			a.noteParked(id, false)
		} else if !desired[id].Stop && (a.isParked(id) || s.ClientStatus == "" && !a.hasFolder(id)) {
			a.noteNotRunning(id, s.Held.String())
			continue
		}
		if why := held.predecessorReason(desired[id], s); why != "" {
			a.noteNotRunning(id, why)
			continue
		}
		if why := cmp.Or(held.stoppedOnSiteReason(desired[id], s), a.diskFullReason(desired[id], s)); why != "" {
			a.noteNotRunning(id, why)
			failed = append(failed, a.recordNotStarted(ctx, id, s, why))
			continue
		}
		why, again, err := a.takeData(ctx, desired, desired[id], s)
		if next, failed = min(next, again), append(failed, err); why != "" {
			a.noteNotRunning(id, why)
			continue
		}
		why, again, err = a.followLaunches(ctx, desired[id])
		next, failed = min(next, again), append(failed, err)
		if why != "" {
			a.noteNotRunning(id, why)
			continue
		}
		failed = append(failed, a.startOrRestoreAlloc(ctx, desired[id], a.cfg.Journal.States()[id], first))
	}
	a.runRegistered(ctx)
	a.followChecks(ctx, desired)
	due, err := a.evaluateHealth(ctx, desired, held)
	failed = append(failed, err, a.removeEnded(ctx, desired))
	return min(next, due, held.nextWindowCheck()), errors.Join(failed...)
}

// diskFullReason returns why a new allocation does not start: the disk is almost full. "": it may start, or has begun.
func (a *Allocs) diskFullReason(w journal.DesiredAlloc, s journal.State) string {
	if w.Stop || s.ClientStatus != "" || a.hasFolder(w.Alloc.ID) {
		return ""
	}
	return a.cfg.WhyFull()
}

// recordNotStarted records once, in a row, why an allocation does not start, so that the hubs know.
func (a *Allocs) recordNotStarted(ctx context.Context, id fleet.AllocID, s journal.State, why string) error {
	if s.Seq > 0 {
		return nil // it is recorded already
	}
	row := fleet.Transition{Kind: fleet.TransitionOperator, Alloc: id, Message: "not started: " + why}
	if err := a.cfg.Journal.Record(ctx, row); err != nil {
		return fmt.Errorf("record why allocation %s does not start: %w", fleet.Short(id), err)
	}
	return nil
}

// updateRunner passes a stop or a newer version to an allocation's runner. It returns false if there is no
// runner.
func (a *Allocs) updateRunner(id fleet.AllocID, w journal.DesiredAlloc) bool {
	u := a.activeAllocOf(id)
	if u != nil && w.Stop {
		u.skipShutdownDelay(w)
	}
	switch {
	case u == nil:
		return false
	case w.Stop && !u.stopped:
		u.stopped = true
		u.launch.endAlloc()
		a.log.Info("stopping allocation", "alloc_id", string(id), "reason", w.StopReason)
		u.runner.Stop(w.StopReason)
	case !w.Stop && a.cfg.Journal.States()[id].Held != nil:
		u.updateHold(a.cfg.Journal.States()[id].Held)
	case !w.Stop && w.Alloc.Job != nil && w.Alloc.AllocModifyIndex != u.alloc.AllocModifyIndex:
		u.alloc = w.Alloc
		a.keepSpec(w.Alloc)
		u.runner.Update(w.Alloc)
	}
	return true
}

// skipShutdownDelay tells the runner, once, that the stop skips the shutdown_delay, if the desired stop says
// so.
func (u *activeAlloc) skipShutdownDelay(w journal.DesiredAlloc) {
	if !w.NoDelay || u.delaySkipped {
		return
	}
	u.delaySkipped = true
	if h, ok := u.runner.(contract.DelaySkipper); ok {
		h.SkipDelay()
	}
}

// startOrRestoreAlloc makes and registers the runner of an allocation that has none. An allocation that cannot
// run, or is stopped before it began, gets its end recorded instead; one that must wait gets a note.
func (a *Allocs) startOrRestoreAlloc(ctx context.Context, w journal.DesiredAlloc, s journal.State, first bool) error {
	id, known := w.Alloc.ID, s.ClientStatus != ""
	rebooted := known && s.BootID != a.cfg.BootID
	switch {
	case w.Stop && !known && !a.hasFolder(id):
		return a.recordAllocEnd(ctx, id, fleet.ClientComplete, "stopped before it began: "+w.StopReason)
	case w.Alloc.Job == nil && w.Stop:
		return a.recordAllocEnd(ctx, id, fleet.ClientFailed, "stopped, but its specification is lost: its tasks, if any run, cannot be found")
	case w.Alloc.Job == nil:
		a.noteNotRunning(id, "waits for its specification")
		return nil
	case a.cfg.Journal.Link().Fenced != "" && (!known || rebooted) && !w.Stop:
		a.noteNotRunning(id, "not started: a hub takes this machine for a copy of another")
		return nil
	}
	last := contract.LastState{Known: known, Rebooted: rebooted, ClientStatus: s.ClientStatus, TaskStates: s.TaskStates}
	recorder, launch := a.recorderOf(&w)
	runner, err := a.cfg.NewRunner(w.Alloc, last, recorder)
	if err != nil {
		return a.recordAllocEnd(ctx, id, fleet.ClientFailed, err.Error())
	}
	if first && !w.Stop && s.Held == nil {
		a.watch.expectTasks(w.Alloc)
	}
	if !w.Stop {
		a.keepSpec(w.Alloc)
	}
	a.registerRunner(&activeAlloc{alloc: w.Alloc, runner: runner, stopped: w.Stop, launch: launch}, w)
	return nil
}

// hasFolder reports whether an allocation has a folder, so that it ran here even if the journal does not know.
func (a *Allocs) hasFolder(id fleet.AllocID) bool {
	_, err := os.Stat(filepath.Join(a.cfg.Dir, string(id)))
	return err == nil
}

// registerRunner registers an allocation as active; runRegistered runs its runner. If the allocation is stopped, the
// runner only ends what still runs.
func (a *Allocs) registerRunner(u *activeAlloc, w journal.DesiredAlloc) {
	id := w.Alloc.ID
	a.mu.Lock()
	a.active[id] = u
	delete(a.notes, id)
	a.mu.Unlock()
	if w.Stop {
		u.skipShutdownDelay(w)
		u.runner.Stop(w.StopReason)
	} else {
		u.updateHold(a.cfg.Journal.States()[id].Held)
	}
	a.registered = append(a.registered, u)
}

// runRegistered runs each registered runner in a goroutine of its own. They begin together, so that their first rows
// share commits of the journal.
func (a *Allocs) runRegistered(ctx context.Context) {
	for _, u := range a.registered {
		id := u.alloc.ID
		a.runners.Go(func() {
			err := u.runner.Run(ctx)
			if ctx.Err() != nil {
				return // the tasks go on
			}
			a.handleRunnerExit(ctx, id, err)
		})
	}
	a.registered = nil
}

// handleRunnerExit handles the return of a runner while the agent is not ending. If the runner failed, it records that the
// allocation failed, and retries until that is recorded. Only then is the allocation not active any more: it must not start again.
func (a *Allocs) handleRunnerExit(ctx context.Context, id fleet.AllocID, err error) {
	if errors.Is(err, contract.ErrHeld) {
		a.noteParked(id, true)
	} else if s := a.cfg.Journal.States()[id]; !s.Terminal() && !a.isBetweenLaunches(id) {
		why := "its runner gave up"
		if err != nil {
			why += ": " + err.Error()
		}
		a.log.Error("allocation's runner failed", "alloc_id", string(id), "error", err)
		if !a.recordEndWithRetry(ctx, id, why) {
			return
		}
	}
	a.mu.Lock()
	delete(a.active, id)
	a.mu.Unlock()
	a.watch.dropPendingAlloc(id)
	a.TriggerReconcile()
}

// recordEndWithRetry records that an allocation failed, and retries until that succeeds. It returns false if ctx ends
// first.
func (a *Allocs) recordEndWithRetry(ctx context.Context, id fleet.AllocID, why string) bool {
	tick := time.NewTicker(reconcileRetry)
	defer tick.Stop()
	for {
		err := a.recordAllocEnd(ctx, id, fleet.ClientFailed, why)
		if err == nil {
			return true
		}
		a.log.Error("end of an allocation not recorded: trying again", "alloc_id", string(id), "error", err)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}

// recordAllocEnd records the end of an allocation that has no runner, with a client status and the reason why.
func (a *Allocs) recordAllocEnd(ctx context.Context, id fleet.AllocID, status, why string) error {
	t := fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: id, ClientStatus: status, ClientDescription: why, Message: why}
	if err := a.cfg.Journal.Record(ctx, t); err != nil {
		return fmt.Errorf("record the end of allocation %s: %w", id, err)
	}
	a.TriggerReconcile() // its replacement may wait for this
	return nil
}

// removeEnded removes the oldest ended allocations beyond KeepEnded whose end the cluster knows, with
// their folders.
func (a *Allocs) removeEnded(ctx context.Context, desired map[fleet.AllocID]journal.DesiredAlloc) error {
	ended := a.collectableAllocs(desired)
	if len(ended) <= a.cfg.KeepEnded {
		return nil
	}
	for _, id := range ended[:len(ended)-a.cfg.KeepEnded] {
		if err := a.removeFolders(id); err != nil {
			a.log.Warn("folder of an ended allocation not removed", "alloc_id", string(id), "error", err)
			continue
		}
		if err := a.forgetAlloc(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// noteNotRunning remembers for Status why an allocation does not run, and logs it when it changes.
func (a *Allocs) noteNotRunning(id fleet.AllocID, text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.notes[id] != text {
		a.log.Warn("allocation does not run", "alloc_id", string(id), "reason", text)
		a.notes[id] = text
	}
}

// noteOf returns why an allocation does not run, as noteNotRunning has recorded it; "": no reason is known.
func (a *Allocs) noteOf(id fleet.AllocID) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.notes[id]
}

// forgetNotes drops the notes of allocations that are stopped or no longer desired.
func (a *Allocs) forgetNotes(desired map[fleet.AllocID]journal.DesiredAlloc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.notes, func(id fleet.AllocID, _ string) bool { return desired[id].Alloc.ID == "" || desired[id].Stop })
}

// sortIDs sorts ids in place and returns them.
func sortIDs(ids []fleet.AllocID) []fleet.AllocID {
	slices.Sort(ids)
	return ids
}

func sortedKeys[V any](m map[fleet.AllocID]V) []fleet.AllocID {
	return slices.Sorted(maps.Keys(m))
}
