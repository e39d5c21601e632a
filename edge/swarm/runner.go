package swarm

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"skerry/edge"
	"skerry/fleet"
)

// runner simulates an allocation: what it journals is what the real runner does,
// and there are no tasks.
type runner struct {
	// Set once.
	home    *Edge
	rec     edge.Recorder
	mono    func() time.Duration
	now     func() time.Time
	id      fleet.AllocID
	tasks   []string
	last    edge.LastState
	stopped chan struct{} // closed by the first Stop
	done    chan struct{} // closed when Run has returned
	asks    chan asked

	// Owned by Run's goroutine, which also holds mu where it changes them.
	status  string
	since   time.Duration // when tasks were started last, by mono
	states  map[string]fleet.TaskState
	checked uint64

	mu     sync.Mutex
	reason string // of the stop
}

// asked is done by Run's goroutine between other things.
type asked struct {
	do    func(ctx context.Context) error
	reply chan error
}

func newRunner(home *Edge, m edge.Machine, a fleet.Alloc, last edge.LastState, rec edge.Recorder) *runner {
	r := &runner{
		home: home, rec: rec, mono: m.Mono, now: m.Now, id: a.ID, last: last, status: last.ClientStatus,
		stopped: make(chan struct{}), done: make(chan struct{}), asks: make(chan asked), states: map[string]fleet.TaskState{},
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

// Run simulates the allocation until it is stopped, or ctx ends: it then runs on.
func (r *runner) Run(ctx context.Context) error {
	defer close(r.done)
	if r.status == fleet.ClientComplete || r.status == fleet.ClientFailed {
		return nil
	}
	if len(r.tasks) == 0 {
		return r.record(ctx, fleet.Transition{
			Kind: fleet.TransitionAlloc, ClientStatus: fleet.ClientFailed, ClientDescription: "no tasks",
		})
	}
	if err := r.begin(ctx); err != nil {
		return err
	}
	r.home.enter(r)
	defer r.home.leave(r)
	for {
		select {
		case <-r.stopped:
			return r.end(ctx)
		case a := <-r.asks:
			a.reply <- a.do(ctx)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Update changes nothing that is simulated.
func (r *runner) Update(fleet.Alloc) {}

// Stop lets Run end the allocation; only the first reason counts.
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

// Restart restarts one task, or all for "".
func (r *runner) Restart(ctx context.Context, task, reason string) error {
	if task != "" && !slices.Contains(r.tasks, task) {
		return fleet.Errorf(fleet.CodeNotFound, "allocation %s has no task %q", fleet.Short(r.id), task)
	}
	return r.ask(ctx, func(ctx context.Context) error {
		for _, name := range r.tasks {
			if task != "" && name != task {
				continue
			}
			signal := r.event(name, fleet.TaskRestartSignal, reason, nil)
			if err := r.record(ctx, signal); err != nil {
				return err
			}
			if err := r.again(ctx, name, 0); err != nil {
				return err
			}
		}
		return nil
	})
}

// RestartUnhealthy restarts as Restart does: nothing that is simulated counts attempts.
func (r *runner) RestartUnhealthy(ctx context.Context, task, reason string) error {
	return r.Restart(ctx, task, reason)
}

// Signal journals a signal that nothing hears.
func (r *runner) Signal(ctx context.Context, task, signal, reason string) error {
	if task != "" && !slices.Contains(r.tasks, task) {
		return fleet.Errorf(fleet.CodeNotFound, "allocation %s has no task %q", fleet.Short(r.id), task)
	}
	return r.ask(ctx, func(ctx context.Context) error {
		for _, name := range r.tasks {
			if task != "" && name != task {
				continue
			}
			if err := r.record(ctx, r.event(name, fleet.TaskSignaling, reason+": it is sent "+signal, nil)); err != nil {
				return err
			}
		}
		return nil
	})
}

// ask has Run's goroutine do something, and returns when it is done.
func (r *runner) ask(ctx context.Context, do func(ctx context.Context) error) error {
	a := asked{do, make(chan error, 1)}
	select {
	case r.asks <- a:
		return <-a.reply
	case <-r.done:
		return fleet.Errorf(fleet.CodeConflict, "allocation %s has ended", fleet.Short(r.id))
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// begin journals that the tasks run, after what they were before.
func (r *runner) begin(ctx context.Context) error {
	if !r.last.Known || r.status == "" {
		var rows []fleet.Transition
		for _, name := range r.tasks {
			rows = append(rows, r.event(name, fleet.TaskReceived, "Task received by the edge", func(s *fleet.TaskState) { s.State = fleet.TaskPending }))
		}
		r.changed(&rows[0], fleet.ClientPending, "Tasks are not all running yet")
		if err := r.record(ctx, rows...); err != nil {
			return err
		}
	}
	for _, name := range r.tasks {
		found := r.states[name].State == fleet.TaskRunning
		switch {
		case found && !r.last.Rebooted:
			if err := r.record(ctx, r.event(name, fleet.TaskRestored, "Task was found running", nil)); err != nil {
				return err
			}
			continue
		case found:
			lost := r.event(name, fleet.TaskLostAtReboot, "The machine rebooted while the task ran",
				func(s *fleet.TaskState) { s.State, s.RunningFor = fleet.TaskPending, 0 })
			if r.status == fleet.ClientRunning {
				r.changed(&lost, fleet.ClientPending, "The machine rebooted")
			}
			if err := r.record(ctx, lost); err != nil {
				return err
			}
		}
		if err := r.start(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// start journals that a task runs, and with the last one the allocation.
func (r *runner) start(ctx context.Context, name string) error {
	r.home.started(r.id)
	r.since = r.mono()
	now := r.now()
	row := r.event(name, fleet.TaskStarted, "Task started", func(s *fleet.TaskState) {
		s.State, s.StartedAt, s.FinishedAt = fleet.TaskRunning, &now, nil
	})
	if r.status != fleet.ClientRunning && r.running() == len(r.tasks) {
		r.changed(&row, fleet.ClientRunning, "Tasks are running")
	}
	return r.record(ctx, row)
}

// again journals that a task ended by itself and starts it anew.
func (r *runner) again(ctx context.Context, name string, exit int) error {
	now := r.now()
	ended := r.event(name, fleet.TaskTerminated, fmt.Sprintf("Exit Code: %d", exit), func(s *fleet.TaskState) {
		s.FinishedAt, s.RunningFor = &now, r.mono()-r.since
	})
	ended.Event.ExitCode = exit
	restarting := r.event(name, fleet.TaskRestarting, "The task has ended: restarting in 0s", func(s *fleet.TaskState) {
		s.State, s.LastRestart = fleet.TaskPending, &now
		s.Restarts++
	})
	if err := r.record(ctx, ended, restarting); err != nil {
		return err
	}
	return r.start(ctx, name)
}

// rowsOfACrash is how many rows again and start journal.
const rowsOfACrash = 3

// happen journals n rows: the tasks crash in turn, and a check gives a result for
// each row that is too few for a crash.
func (r *runner) happen(ctx context.Context, n int) error {
	for turn := 0; n > 0; turn++ {
		if n >= rowsOfACrash {
			if err := r.again(ctx, r.tasks[turn%len(r.tasks)], 1); err != nil {
				return err
			}
			n -= rowsOfACrash
			continue
		}
		r.checked++
		check := fleet.Transition{Kind: fleet.TransitionCheck, Message: fmt.Sprintf("check alive: passing (%d)", r.checked)}
		if err := r.record(ctx, check); err != nil {
			return err
		}
		n--
	}
	return nil
}

// end journals that the tasks were killed, and the allocation is complete.
func (r *runner) end(ctx context.Context) error {
	r.mu.Lock()
	reason := r.reason
	r.mu.Unlock()
	for i, name := range r.tasks {
		if err := r.record(ctx, r.event(name, fleet.TaskKilling, reason+": it is given 0s to end before it is killed", nil)); err != nil {
			return err
		}
		now := r.now()
		ended := r.event(name, fleet.TaskTerminated, "Exit Code: 143, Signal: 15", func(s *fleet.TaskState) {
			s.FinishedAt, s.RunningFor = &now, r.mono()-r.since
		})
		ended.Event.ExitCode, ended.Event.Signal = 143, 15
		killed := r.event(name, fleet.TaskKilled, "Task was stopped", func(s *fleet.TaskState) { s.State = fleet.TaskDead })
		if i == len(r.tasks)-1 {
			r.changed(&killed, fleet.ClientComplete, "All tasks have completed")
		}
		if err := r.record(ctx, ended, killed); err != nil {
			return err
		}
	}
	return nil
}

// event makes the row of a task's event, with the task's state after it.
func (r *runner) event(task, kind, message string, change func(*fleet.TaskState)) fleet.Transition {
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

// changed makes a row one that changes the allocation's status.
func (r *runner) changed(row *fleet.Transition, status, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
	row.Kind, row.ClientStatus, row.ClientDescription = fleet.TransitionAlloc, status, why
}

func (r *runner) record(ctx context.Context, rows ...fleet.Transition) error {
	for i := range rows {
		rows[i].Alloc = r.id
	}
	return r.rec.Record(ctx, rows...)
}

// runs reports whether a task runs.
func (r *runner) runs(task string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.states[task].State == fleet.TaskRunning
}

// running counts the tasks that run.
func (r *runner) running() int {
	n := 0
	for _, task := range r.tasks {
		if r.runs(task) {
			n++
		}
	}
	return n
}
