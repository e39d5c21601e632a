// Package runner runs allocations: it starts their tasks through drivers,
// restarts them by their restart policy, stops them, and takes them back after a
// restart of the agent or a boot of the machine. It needs no hub for any of it.
//
// The edge makes a Runner for each allocation with a Factory. Run has a goroutine
// for each task, and one more for each that waits for a task's end; the caller's
// own is the allocation's: all transitions go through it, so that they are
// journaled one after the other, each with the state after it.
//
// What happens is journaled before anybody hears of it, and what is done is
// journaled before it is done. A start goes: the attempt's number is journaled,
// the driver starts it under an id made of that number, its handle is journaled,
// then that it runs. Whatever step the agent dies in, its next life finds the
// number and asks the driver for that very id, which starts nothing twice. A
// task's end and what follows from it are journaled in one piece; the count of
// restarts tells the next life whether that was done.
//
// Once all its tasks run an allocation is running, and stays so while a task of it
// waits for its restart, until it has ended or the machine boots: a crash loop is
// not a change of the allocation's status. It ends when all its tasks have: failed
// if one of them failed, else complete. A task that fails ends the others, and so
// does a leader that ends. One that has run for its max_run_duration is stopped, and
// complete.
//
// Tasks with a lifecycle wait for their turn: main ones for what prepares for them, what
// follows the start for the main ones, and what follows the stop for all others. That
// runs also when the allocation is stopped.
//
// The package persists nothing itself but the tasks' folders.
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

// Runner runs one allocation.
type Runner struct {
	// Set once.
	factory      Factory
	rec          contract.Recorder
	log          *slog.Logger
	id           fleet.AllocID
	last         contract.LastState
	tasks        []*task
	stopped      chan struct{} // closed by the first Stop
	delaySkipped chan struct{} // closed by the first Hasten
	done         chan struct{} // closed when Run has returned
	reports      chan report
	ended        chan *task    // a task's goroutine has ended
	updated      chan struct{} // has one where there is a newer version

	// Owned by Run.
	status     string
	expiry     expiry
	firstEndAt time.Duration // monotonic time at which the first task was to end; 0: none is

	mu         sync.Mutex
	alloc      fleet.Alloc
	stopReason string
	attempts   map[string]*attempt // by task
}

// Run starts or recovers the allocation's tasks and returns nil when the
// allocation is terminal, which it has then recorded. Where ctx ends first it
// returns ctx's error, and the tasks go on.
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
		r.log.Warn("state of ended allocation stays", "error", err)
	}
	return nil
}

// Update hands over a newer version of the allocation. What is new in it holds
// from each task's next start, restart or stop on.
func (r *Runner) Update(a fleet.Alloc) {
	r.mu.Lock()
	r.alloc = a
	r.mu.Unlock()
	select {
	case r.updated <- struct{}{}:
	default: // it looks at the newest one anyway
	}
}

// Stop ends the tasks, the leader first, records that and why, and lets Run
// return. It does not wait. Called before Run it makes Run take back what still
// runs, end it, and start nothing. Only the first reason counts.
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

// SkipDelay has tasks that are to end, now or later, wait for no shutdown_delay; one that has
// begun ends. Called before Stop it holds for that.
func (r *Runner) SkipDelay() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.delaySkipped:
	default:
		close(r.delaySkipped)
	}
}

// Restart restarts one task, or all that have not ended for "". It returns when
// that is journaled. A task that waits for its restart starts at once. The
// restart policy does not count it.
func (r *Runner) Restart(ctx context.Context, name, reason string) error {
	return r.forEachTask(name, "restart", func(t *task) error { return t.requestRestart(ctx, restartRequest{reason: reason}) })
}

// RestartUnhealthy restarts one task, or all that run for "", whose check fails. It
// returns when that is journaled. The restart policy counts it as a failure, and may
// end the task instead.
func (r *Runner) RestartUnhealthy(ctx context.Context, name, reason string) error {
	return r.forEachTask(name, "restart", func(t *task) error { return t.requestRestart(ctx, restartRequest{reason: reason, failed: true}) })
}

// Signal sends a signal to one task, or to all that run for "". It returns when
// that is done.
func (r *Runner) Signal(ctx context.Context, name, signal, reason string) error {
	if _, err := drivers.ParseSignal(signal); err != nil {
		return err
	}
	return r.forEachTask(name, "signal", func(t *task) error { return t.requestSignal(ctx, signal, reason) })
}

// forEachTask has something done to one task, or to all for "". It fails with
// fleet.CodeConflict where none of them runs.
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
		return fleet.Errorf(fleet.CodeConflict, "%s allocation %s: nothing that was asked for runs", verb, fleet.Short(r.id))
	}
	return nil
}

// isTerminal reports whether the allocation has ended, by what is recorded.
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

// currentAlloc returns the allocation in its newest version.
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

// receiveOrRestore records that the allocation was received, or finds out what became of
// its tasks, and ends those that have no reason to go on.
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
	r.resumeEnding()
	for _, t := range r.tasks {
		if t.state.State == fleet.TaskDead {
			r.propagateTaskEnd(t)
		}
	}
	r.resumeRun(handles[runKey])
	if err := r.enforceMaxRun(ctx); err != nil {
		return err
	}
	if r.isStopped() {
		r.stopInOrder()
	}
	r.startReadyTasks()
	return nil
}

// readHandles reads the tasks' records; it goes on trying, for without them a task
// that runs could not be told from one that does not.
func (r *Runner) readHandles(ctx context.Context) (map[string][]byte, error) {
	for {
		handles, err := r.rec.Handles(ctx, r.id)
		if err == nil {
			return handles, nil
		}
		r.log.Error("journal does not give the tasks' handles", "error", err)
		if err := sleepContext(ctx, recordRetry); err != nil {
			return nil, err
		}
	}
}

// runReportLoop is the allocation's loop: it journals what the tasks report until all
// their goroutines have ended.
func (r *Runner) runReportLoop(ctx context.Context) {
	defer r.expiry.stopTimer()
	stopped := r.stopped
	for left := len(r.tasks); left > 0; {
		select {
		case <-r.ended:
			left--
		case rep := <-r.reports:
			rep.reply <- r.journalReport(ctx, rep)
		case <-r.updated:
			_ = r.enforceMaxRun(ctx) // of ctx, which ends the tasks' goroutines too
		case <-r.expiry.timerChannel():
			_ = r.enforceMaxRun(ctx)
		case <-stopped:
			stopped = nil
			r.stopInOrder()
		}
	}
}

// stopInOrder ends the leader, and with it, when it has ended, the others; or
// all, where there is none.
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

// killAll ends all tasks, but for those that run when the others have ended; these, too,
// where the allocation's time is over.
func (r *Runner) killAll(reason string) {
	for _, t := range r.tasks {
		if !t.isLast() || r.expiry.why != "" {
			t.requestKill(reason)
		}
	}
}

// propagateTaskEnd ends the other tasks where one that has ended is a reason to.
func (r *Runner) propagateTaskEnd(t *task) {
	switch {
	case r.isStopped():
		r.killAll(r.whyStopped())
	case t.state.Failed:
		r.killAll(fmt.Sprintf("Task %q failed", t.name))
	case t.isLeader():
		r.killAll(fmt.Sprintf("The leader, task %q, has ended", t.name))
	}
}
