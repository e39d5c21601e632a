package swarm

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"skerry/edge"
	"skerry/edge/contract"
	"skerry/fleet"
)

// runner implements contract.Runner without tasks: it only records the rows that edge/runner would record.
type runner struct {
	// Set once.
	edge      *Edge
	rec       contract.Recorder
	mono      func() time.Duration
	now       func() time.Time
	id        fleet.AllocID
	tasks     []string
	last      contract.LastState
	stopped   chan struct{} // closed by the first Stop
	held      chan struct{} // closed by the first Hold
	done      chan struct{} // closed when Run has returned
	loopCalls chan loopCall

	// Owned by Run's goroutine, which holds mu to change them.
	status  string
	since   time.Duration // monotonic time of the last start
	states  map[string]fleet.TaskState
	checked uint64 // results of a check so far

	mu     sync.Mutex
	reason string // of the stop
}

// loopCall is a function that Run's goroutine is to call, and the channel for its result.
type loopCall struct {
	do    func(ctx context.Context) error
	reply chan error
}

// newRunner makes the runner of an allocation on home from its last state. It starts nothing.
func newRunner(home *Edge, m edge.Machine, a fleet.Alloc, last contract.LastState, rec contract.Recorder) *runner {
	r := &runner{
		edge: home, rec: rec, mono: m.Mono, now: m.Now, id: a.ID, last: last, status: last.ClientStatus,
		stopped: make(chan struct{}), held: make(chan struct{}), done: make(chan struct{}), loopCalls: make(chan loopCall), states: map[string]fleet.TaskState{},
	}
	if g := a.Group(); g != nil {
		for i := range g.Tasks {
			name := g.Tasks[i].Name
			state := last.TaskStates[name]
			state.Events = nil
			r.tasks, r.states[name] = append(r.tasks, name), state
		}
	}
	return r
}

// Run simulates the allocation until it is stopped, and records its end. If ctx ends first, it returns the
// cause of that, and the simulated tasks go on.
func (r *runner) Run(ctx context.Context) error {
	defer close(r.done)
	if r.status == fleet.ClientComplete || r.status == fleet.ClientFailed {
		return nil
	}
	if len(r.tasks) == 0 {
		return r.recordAllocRows(ctx, fleet.Transition{
			Kind: fleet.TransitionAlloc, ClientStatus: fleet.ClientFailed, ClientDescription: "no tasks",
		})
	}
	if err := r.startOrRestoreTasks(ctx); err != nil {
		return err
	}
	r.edge.addRunner(r)
	defer r.edge.removeRunner(r)
	for {
		select {
		case <-r.stopped:
			return r.recordTasksKilled(ctx, fleet.TaskDead)
		case <-r.held:
			if err := r.recordTasksKilled(ctx, fleet.TaskPending); err != nil {
				return err
			}
			return contract.ErrHeld
		case a := <-r.loopCalls:
			a.reply <- a.do(ctx)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Update does nothing: a newer version changes nothing that is simulated.
func (r *runner) Update(fleet.Alloc) {}

// Stop makes Run end the allocation. Only the first reason counts.
func (r *runner) Stop(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.stopped:
	default:
		r.reason = reason
		close(r.stopped)
	}
}

// Hold makes Run end the tasks, which another runner starts again. Only the first reason counts.
func (r *runner) Hold(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.held:
	default:
		r.reason = cmp.Or(r.reason, reason)
		close(r.held)
	}
}

// Restart records a restart of one task, or of all for "".
func (r *runner) Restart(ctx context.Context, task, reason string) error {
	return r.forEachTask(ctx, task, func(ctx context.Context, name string) error {
		if err := r.recordAllocRows(ctx, r.taskEventRow(name, fleet.TaskRestartSignal, reason, nil)); err != nil {
			return err
		}
		return r.restartEndedTask(ctx, name, 0)
	})
}

// RestartUnhealthy does the same as Restart: there is no restart policy.
func (r *runner) RestartUnhealthy(ctx context.Context, task, reason string) error {
	return r.Restart(ctx, task, reason)
}

// Signal records a signal to one task, or to all for "". It has no effect.
func (r *runner) Signal(ctx context.Context, task, signal, reason string) error {
	return r.forEachTask(ctx, task, func(ctx context.Context, name string) error {
		return r.recordAllocRows(ctx, r.taskEventRow(name, fleet.TaskSignaling, reason+": it is sent "+signal, nil))
	})
}

// forEachTask calls do in Run's goroutine for one task, or for all for "", and returns the first error. An
// unknown task is a fleet.CodeNotFound.
func (r *runner) forEachTask(ctx context.Context, task string, do func(ctx context.Context, name string) error) error {
	tasks := r.tasks
	if task != "" {
		tasks = []string{task}
	}
	if task != "" && !slices.Contains(r.tasks, task) {
		return fleet.Errorf(fleet.CodeNotFound, "allocation %s has no task %q", fleet.Short(r.id), task)
	}
	return r.callRunLoop(ctx, func(ctx context.Context) error {
		for _, name := range tasks {
			if err := do(ctx, name); err != nil {
				return err
			}
		}
		return nil
	})
}

// callRunLoop has do called in Run's goroutine and returns its result. If Run has returned, the error is a
// fleet.CodeConflict.
func (r *runner) callRunLoop(ctx context.Context, do func(ctx context.Context) error) error {
	a := loopCall{do, make(chan error, 1)}
	select {
	case r.loopCalls <- a:
		return <-a.reply
	case <-r.done:
		return fleet.Errorf(fleet.CodeConflict, "act on allocation %s: it has ended", fleet.Short(r.id))
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// startOrRestoreTasks records that all tasks run: that they were received and started, found running, or lost
// at a reboot and started again.
func (r *runner) startOrRestoreTasks(ctx context.Context) error {
	if !r.last.Known || r.status == "" {
		var rows []fleet.Transition
		for _, name := range r.tasks {
			rows = append(rows, r.taskEventRow(name, fleet.TaskReceived, "Task received by the edge", func(s *fleet.TaskState) { s.State = fleet.TaskPending }))
		}
		r.setClientStatus(&rows[0], fleet.ClientPending, "Tasks are not all running yet")
		if err := r.recordAllocRows(ctx, rows...); err != nil {
			return err
		}
	}
	for _, name := range r.tasks {
		found := r.states[name].State == fleet.TaskRunning
		switch {
		case found && !r.last.Rebooted:
			if err := r.recordAllocRows(ctx, r.taskEventRow(name, fleet.TaskRestored, "Task was found running", nil)); err != nil {
				return err
			}
			continue
		case found:
			lost := r.taskEventRow(name, fleet.TaskLostAtReboot, "The machine rebooted while the task ran",
				func(s *fleet.TaskState) { s.State, s.RunningFor = fleet.TaskPending, 0 })
			if r.status == fleet.ClientRunning {
				r.setClientStatus(&lost, fleet.ClientPending, "The machine rebooted")
			}
			if err := r.recordAllocRows(ctx, lost); err != nil {
				return err
			}
		}
		if r.isHeld() {
			continue
		}
		if err := r.startTask(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// isHeld reports whether Hold was called.
func (r *runner) isHeld() bool {
	select {
	case <-r.held:
		return true
	default:
		return false
	}
}

// startTask records the start of a task and, once all tasks run, that the allocation is running.
func (r *runner) startTask(ctx context.Context, name string) error {
	r.edge.countTaskStart(r.id)
	r.since = r.mono()
	now := r.now()
	row := r.taskEventRow(name, fleet.TaskStarted, "Task started", func(s *fleet.TaskState) {
		s.State, s.StartedAt, s.FinishedAt = fleet.TaskRunning, &now, nil
	})
	if r.status != fleet.ClientRunning && r.countRunningTasks() == len(r.tasks) {
		r.setClientStatus(&row, fleet.ClientRunning, "Tasks are running")
	}
	return r.recordAllocRows(ctx, row)
}

// restartEndedTask records that a task ended by itself with an exit code, and started again.
func (r *runner) restartEndedTask(ctx context.Context, name string, exit int) error {
	now := r.now()
	ended := r.taskEventRow(name, fleet.TaskTerminated, fmt.Sprintf("Exit Code: %d", exit), func(s *fleet.TaskState) {
		s.FinishedAt, s.RunningFor = &now, r.mono()-r.since
	})
	ended.Event.ExitCode = exit
	restarting := r.taskEventRow(name, fleet.TaskRestarting, "The task has ended: restarting in 0s", func(s *fleet.TaskState) {
		s.State, s.LastRestart = fleet.TaskPending, &now
		s.Restarts++
	})
	if err := r.recordAllocRows(ctx, ended, restarting); err != nil {
		return err
	}
	return r.startTask(ctx, name)
}

// rowsOfACrash is the number of rows of a crash and a restart.
const rowsOfACrash = 3

// generateRows records n rows: the tasks crash and restart in turn, and results of a check fill the rest.
func (r *runner) generateRows(ctx context.Context, n int) error {
	for turn := 0; n > 0; turn++ {
		if n >= rowsOfACrash {
			if err := r.restartEndedTask(ctx, r.tasks[turn%len(r.tasks)], 1); err != nil {
				return err
			}
			n -= rowsOfACrash
			continue
		}
		r.checked++
		check := fleet.Transition{Kind: fleet.TransitionCheck, Message: fmt.Sprintf("check alive: passing (%d)", r.checked)}
		if err := r.recordAllocRows(ctx, check); err != nil {
			return err
		}
		n--
	}
	return nil
}

// recordTasksKilled records that all tasks were killed, and that the allocation is complete; with fleet.TaskPending, that
// it is held.
func (r *runner) recordTasksKilled(ctx context.Context, after string) error {
	r.mu.Lock()
	reason := r.reason
	r.mu.Unlock()
	for i, name := range r.tasks {
		if after == fleet.TaskPending && !r.isTaskRunning(name) {
			continue
		}
		if err := r.recordAllocRows(ctx, r.taskEventRow(name, fleet.TaskKilling, reason+": it is given 0s to end before it is killed", nil)); err != nil {
			return err
		}
		now := r.now()
		ended := r.taskEventRow(name, fleet.TaskTerminated, "Exit Code: 143, Signal: 15", func(s *fleet.TaskState) {
			s.FinishedAt, s.RunningFor = &now, r.mono()-r.since
		})
		ended.Event.ExitCode, ended.Event.Signal = 143, 15
		killed := r.taskEventRow(name, fleet.TaskKilled, "Task was stopped", func(s *fleet.TaskState) { s.State = after })
		switch {
		case i < len(r.tasks)-1:
		case after == fleet.TaskDead:
			r.setClientStatus(&killed, fleet.ClientComplete, "All tasks have completed")
		default:
			r.setClientStatus(&killed, fleet.ClientPending, reason)
		}
		if err := r.recordAllocRows(ctx, ended, killed); err != nil {
			return err
		}
	}
	return nil
}

// taskEventRow applies change (if not nil) to a task's state, and returns the row of an event with that state.
// It records nothing.
func (r *runner) taskEventRow(task, kind, message string, change func(*fleet.TaskState)) fleet.Transition {
	r.mu.Lock()
	defer r.mu.Unlock()
	state := r.states[task]
	if change != nil {
		change(&state)
		r.states[task] = state
	}
	if state.State == fleet.TaskRunning && kind != fleet.TaskTerminated {
		state.RunningFor = r.mono() - r.since
	}
	event := fleet.TaskEvent{Type: kind, Time: r.now().UnixNano(), DisplayMessage: message}
	return fleet.Transition{Kind: fleet.TransitionTask, Task: task, TaskState: &state, Event: &event}
}

// setClientStatus sets the allocation's client status, and makes a row carry it.
func (r *runner) setClientStatus(row *fleet.Transition, status, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
	row.Kind, row.ClientStatus, row.ClientDescription = fleet.TransitionAlloc, status, why
}

// recordAllocRows journals rows of this allocation.
func (r *runner) recordAllocRows(ctx context.Context, rows ...fleet.Transition) error {
	for i := range rows {
		rows[i].Alloc = r.id
	}
	return r.rec.Record(ctx, rows...)
}

// isTaskRunning reports whether a task runs.
func (r *runner) isTaskRunning(task string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.states[task].State == fleet.TaskRunning
}

// countRunningTasks counts the tasks that run.
func (r *runner) countRunningTasks() int {
	n := 0
	for _, task := range r.tasks {
		if r.isTaskRunning(task) {
			n++
		}
	}
	return n
}
