// Package runner runs allocations: it starts their tasks through drivers, restarts them by their restart policy,
// stops them, and recovers them after a restart of the agent or a reboot. It needs no hub for that.
//
// edge makes a Runner for each allocation with a Factory. Run's own goroutine is the allocation's: all
// transitions go through it, so that they are journaled in order, each with the state after it. Every task has
// one goroutine, and one more while it waits for the task's end.
//
// Invariant: what happens is journaled before anything else learns of it, and what is done is journaled before it
// is done. A start is journaled in four steps: the number of the attempt, the start by the driver under an id
// with that number, the handle, the running task. If the agent dies at any step, the next agent finds the number
// and asks the driver for that id, so nothing starts twice. The end of a task and its consequence are journaled
// together; the count of restarts shows whether that happened.
//
// An allocation is running once all its tasks run. It stays so while a task waits for its restart, until it ends
// or the machine boots: a crash loop does not change the status. It ends when all tasks have ended: failed if one
// failed, otherwise complete. A failed task ends the others, and so does a leader that ends. An allocation that
// has run for its max_run_duration is stopped, and complete.
//
// Tasks with a lifecycle hook wait for their turn: main tasks for prestart tasks, poststart tasks for the main
// tasks, poststop tasks for all others. Poststop tasks also run when the allocation is stopped.
//
// The package stores nothing itself but the tasks' folders.
package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"skerry/drivers"
	"skerry/edge/contract"
	"skerry/fleet"
)

// Runner runs one allocation. It implements contract.Runner, DelaySkipper, Execer and Meter.
type Runner struct {
	// Set once.
	factory      Factory
	rec          contract.Recorder
	log          *slog.Logger
	id           fleet.AllocID
	last         contract.LastState // when the runner was made
	tasks        []*task
	stopped      chan struct{} // closed by the first Stop
	held         chan struct{} // closed by the first Hold
	delaySkipped chan struct{} // closed by the first SkipDelay
	done         chan struct{} // closed when Run has returned
	reports      chan report   // from the tasks' goroutines to Run's
	ended        chan *task    // receives a task when its goroutine has ended
	updated      chan struct{} // capacity 1; signals a newer version

	// Owned by Run.
	status     string // client status, as journaled
	expiry     expiry
	firstEndAt time.Duration // monotonic time at which the first task was told to stop; 0: none was

	mu         sync.Mutex
	alloc      fleet.Alloc         // newest version
	stopReason string              // of the first Stop
	holdReason string              // of the first Hold
	attempts   map[string]*attempt // by task
	network    fleet.NetworkStatus // as this process journaled it
}

// Run starts or recovers the tasks and returns nil when the end of the allocation is recorded. If ctx ends
// first, it returns the cause of that, and the tasks go on. It may be called once.
func (r *Runner) Run(ctx context.Context) error {
	defer close(r.done)
	if r.isTerminal() {
		return nil
	}
	if len(r.tasks) == 0 {
		return r.recordUnrunnable(ctx)
	}
	if err := r.receiveOrRestore(ctx); err != nil {
		return err
	}
	var wg sync.WaitGroup
	for _, t := range r.tasks {
		wg.Go(func() {
			t.runUntilDead(ctx)
			r.ended <- t
		})
	}
	r.runReportLoop(ctx)
	wg.Wait()
	if ctx.Err() == nil && !r.isTerminal() && r.hasPendingTasks() {
		return r.recordHeld(ctx)
	}
	if ctx.Err() == nil && !r.isTerminal() {
		// All tasks had ended, but the allocation's end was lost.
		if err := r.recordEnd(ctx); err != nil {
			return err
		}
	}
	if !r.isTerminal() {
		return context.Cause(ctx)
	}
	if err := r.factory.Dirs.removeDriverState(r.id); err != nil {
		r.log.Warn("driver state of an ended allocation not removed", "error", err)
	}
	r.releaseHooks(ctx)
	return nil
}

// Update sets a newer version of the allocation. Each task uses it from its next start, restart or stop on.
func (r *Runner) Update(a fleet.Alloc) {
	r.mu.Lock()
	r.alloc = a
	r.mu.Unlock()
	select {
	case r.updated <- struct{}{}:
	default: // a signal is pending already
	}
}

// Stop ends the tasks, the leader first, records the reason, and lets Run return. It does not wait. Before Run,
// it makes Run recover and end what still runs, and start nothing. Only the first reason counts.
func (r *Runner) Stop(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.stopped:
	default:
		r.stopReason = reason
		close(r.stopped)
	}
}

// SkipDelay ends every shutdown_delay that has begun, and lets none begin. It may be called before Stop.
func (r *Runner) SkipDelay() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.delaySkipped:
	default:
		close(r.delaySkipped)
	}
}

// Restart restarts one task, or all that have not ended for "". It returns when that is journaled. A
// task that waits for its restart starts at once. The restart policy does not count it.
func (r *Runner) Restart(ctx context.Context, name, reason string) error {
	return r.forEachTask(name, "restart", func(t *task) error { return t.requestRestart(ctx, restartRequest{reason: reason}) })
}

// RestartUnhealthy restarts a task whose check fails, or all running tasks for "". It returns when that
// is journaled. The restart policy counts it as a failure and may end the task instead.
func (r *Runner) RestartUnhealthy(ctx context.Context, name, reason string) error {
	return r.forEachTask(name, "restart", func(t *task) error { return t.requestRestart(ctx, restartRequest{reason: reason, failed: true}) })
}

// Signal sends a signal to one task, or to all that run for "". It returns when the signal is sent.
func (r *Runner) Signal(ctx context.Context, name, signal, reason string) error {
	if _, err := drivers.ParseSignal(signal); err != nil {
		return err
	}
	return r.forEachTask(name, "signal", func(t *task) error { return t.requestSignal(ctx, signal, reason) })
}

// forEachTask calls do for the named task, or for all for "". It ignores tasks that have ended; if no other is
// left, it returns a fleet.CodeConflict. An unknown name is a fleet.CodeNotFound.
func (r *Runner) forEachTask(name, verb string, do func(*task) error) error {
	known, done := false, 0
	for _, t := range r.tasks {
		if name != "" && t.name != name {
			continue
		}
		known = true
		switch err := do(t); {
		case err == nil:
			done++
		case !errors.Is(err, errEnded):
			return fmt.Errorf("%s task %s: %w", verb, t.name, err)
		}
	}
	switch {
	case !known:
		return fleet.Errorf(fleet.CodeNotFound, "allocation %s has no task %q", fleet.Short(r.id), name)
	case done == 0:
		return fleet.Errorf(fleet.CodeConflict, "%s allocation %s: none of its tasks runs", verb, fleet.Short(r.id))
	}
	return nil
}

// isTerminal reports whether the allocation's end is recorded.
func (r *Runner) isTerminal() bool {
	return r.status == fleet.ClientComplete || r.status == fleet.ClientFailed
}

// isStopped reports whether Stop was called.
func (r *Runner) isStopped() bool {
	select {
	case <-r.stopped:
		return true
	default:
		return false
	}
}

// currentAlloc returns the newest version of the allocation.
func (r *Runner) currentAlloc() fleet.Alloc {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.alloc
}

func (r *Runner) whyStopped() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopReason
}

// receiveOrRestore prepares the tasks before their goroutines start. It records that a new allocation was
// received, or restores the tasks' records, and tells tasks to end that must not go on.
func (r *Runner) receiveOrRestore(ctx context.Context) error {
	if !r.last.Known || r.status == "" {
		for _, t := range r.tasks {
			t.state = fleet.TaskState{State: fleet.TaskPending}
		}
		if err := r.recordReceived(ctx); err != nil {
			return err
		}
		r.factory.Step(StepReceived)
	}
	handles, err := r.readHandles(ctx)
	if err != nil {
		return err
	}
	for _, t := range r.tasks {
		t.restoreRecord(handles[t.name])
	}
	r.restoreFirstStopTime()
	for _, t := range r.tasks {
		if t.state.State == fleet.TaskDead {
			r.propagateTaskEnd(t)
		}
	}
	r.restoreRunTime(handles[runKey])
	if err := r.enforceMaxRun(ctx); err != nil {
		return err
	}
	switch {
	case r.isStopped():
		r.stopInOrder()
	case r.isHeld():
		r.holdInOrder()
	}
	r.startReadyTasks()
	return nil
}

// readHandles reads the journaled records of the allocation, by key, and tries again until it succeeds: without
// them, a running task could be started twice. An error means that ctx has ended.
func (r *Runner) readHandles(ctx context.Context) (map[string][]byte, error) {
	for {
		handles, err := r.rec.Handles(ctx, r.id)
		if err == nil {
			return handles, nil
		}
		r.log.Error("tasks' handles not readable: trying again", "error", err)
		if err := sleepContext(ctx, recordRetry); err != nil {
			return nil, err
		}
	}
}

// runReportLoop is the allocation's event loop: it journals the tasks' reports and enforces Stop and
// max_run_duration, until all tasks' goroutines have ended.
func (r *Runner) runReportLoop(ctx context.Context) {
	defer r.expiry.stopTimer()
	stopped, held := r.stopped, r.held
	for left := len(r.tasks); left > 0; {
		select {
		case <-r.ended:
			left--
		case rep := <-r.reports:
			rep.reply <- r.journalReport(ctx, rep)
		case <-r.updated:
			_ = r.enforceMaxRun(ctx) // an error means that ctx has ended, which also ends the tasks' goroutines
		case <-r.expiry.timerChannel():
			_ = r.enforceMaxRun(ctx)
		case <-stopped:
			stopped = nil
			r.stopInOrder()
		case <-held:
			held = nil
			r.holdInOrder()
		}
	}
}

// stopInOrder tells a running leader to end, whose end then ends the others. Without one, it tells all tasks to
// end.
func (r *Runner) stopInOrder() {
	reason := r.whyStopped()
	for _, t := range r.tasks {
		if t.isLeader() && t.state.State == fleet.TaskRunning {
			t.requestKill(reason)
			return
		}
	}
	r.killAll(reason)
}

// killAll tells all tasks to end except poststop tasks, and these too if max_run_duration is over.
func (r *Runner) killAll(reason string) {
	for _, t := range r.tasks {
		if !t.isPoststop() || r.expiry.why != "" {
			t.requestKill(reason)
		}
	}
}

// propagateTaskEnd tells the other tasks to end after the end of t, if t failed or was the leader, or if the
// allocation is stopped.
func (r *Runner) propagateTaskEnd(t *task) {
	switch {
	case r.isStopped():
		r.killAll(r.whyStopped())
	case r.isHeld():
		r.holdInOrder()
	case t.state.Failed:
		r.killAll(fmt.Sprintf("Task %q failed", t.name))
	case t.isLeader():
		r.killAll(fmt.Sprintf("The leader, task %q, has ended", t.name))
	}
}
