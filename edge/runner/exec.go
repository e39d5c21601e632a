package runner

import (
	"context"
	"sync"

	"skerry/drivers"
	"skerry/fleet"
)

// attempt is a running attempt of a task, to which clients have access.
type attempt struct {
	handle   drivers.Task
	driver   string
	released chan struct{} // closed when the attempt has ended or the agent releases it
}

// Exec runs a command, or the command of x.Action, beside a running task and returns its exit code. The command
// ends with ctx and with the task. A task that does not run is a fleet.CodeConflict, a driver without exec a
// fleet.CodeUnsupported.
func (r *Runner) Exec(ctx context.Context, name string, x fleet.Exec) (int, error) {
	a, err := r.runningAttempt(name)
	if err != nil {
		return 0, err
	}
	e, ok := a.handle.(drivers.Execer)
	if !ok {
		return 0, fleet.Errorf(fleet.CodeUnsupported, "run a command beside task %q: its driver %q cannot run commands", name, a.driver)
	}
	if x.Action != "" {
		if x.Command, err = r.actionCommand(name, x.Action); err != nil {
			return 0, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-a.released:
			cancel()
		case <-ctx.Done():
		}
	})
	code, err := e.Exec(ctx, x)
	cancel()
	watching.Wait()
	select {
	case <-a.released:
		if err != nil {
			err = fleet.Errorf(fleet.CodeConflict, "run a command beside task %q: the task has ended", name)
		}
	default:
	}
	return code, err
}

// actionCommand returns the command of a task's action from the newest version of the job, with its ${…}
// replaced.
func (r *Runner) actionCommand(name, action string) ([]string, error) {
	for _, t := range r.tasks {
		if t.name != name {
			continue
		}
		s, err := t.currentSpec()
		if err != nil {
			return nil, err
		}
		a := s.task.Action(action)
		if a == nil {
			return nil, fleet.Errorf(fleet.CodeNotFound, "run action %q: task %q of allocation %s has no such action in version %d of its job",
				action, name, fleet.Short(r.id), s.alloc.Job.Version)
		}
		env := t.taskEnv(s)
		command := []string{env.Replace(a.Command)}
		for _, arg := range a.Args {
			command = append(command, env.Replace(arg))
		}
		return command, nil
	}
	return nil, fleet.Errorf(fleet.CodeNotFound, "allocation %s has no task %q", fleet.Short(r.id), name)
}

// runningAttempt returns the attempt of a running task. An unknown task is a fleet.CodeNotFound, one that does
// not run a fleet.CodeConflict.
func (r *Runner) runningAttempt(name string) (*attempt, error) {
	known := false
	for _, t := range r.tasks {
		known = known || t.name == name
	}
	if !known {
		return nil, fleet.Errorf(fleet.CodeNotFound, "allocation %s has no task %q", fleet.Short(r.id), name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.attempts[name]; a != nil {
		return a, nil
	}
	return nil, fleet.Errorf(fleet.CodeConflict, "task %q of allocation %s does not run", name, fleet.Short(r.id)).
		WithHint("it may wait for its restart: skerry alloc status %s", fleet.Short(r.id))
}

// registerAttempt makes a running attempt available to Exec and Usage until leave is called, which also ends
// commands beside it. leave may be called more than once.
func (r *Runner) registerAttempt(name, driver string, live drivers.Task) (leave func()) {
	a := &attempt{handle: live, driver: driver, released: make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attempts[name] = a
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.attempts[name] == a {
			delete(r.attempts, name)
			close(a.released)
		}
	}
}
