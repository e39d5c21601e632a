package runner

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"skerry/drivers"
	"skerry/fleet"
)

// startAttempt journals the next attempt, starts it and journals that it runs. If the start fails, it journals
// the consequence, waits for the delay before the next attempt, and returns nil without an error. An error
// means that ctx has ended.
func (t *task) startAttempt(ctx context.Context) (drivers.Task, error) {
	f := &t.runner.factory
	t.rec.Attempt++
	t.rec.Restarts, t.rec.Handle, t.rec.Restarting, t.rec.Ended, t.rec.Due = t.state.Restarts, nil, "", false, 0
	t.rec.Unhealthy, t.rec.Ending, t.rec.StopAt, t.rec.Killing = false, 0, 0, false
	if err := t.saveRecord(ctx); err != nil {
		return nil, err
	}
	f.Step(StepIntent)
	live, err := t.launchAttempt(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, t.handleExit(ctx, outcome{startErr: err}, nil)
	}
	if err := t.reportSteps(ctx, t.startedStep()); err != nil {
		return nil, err
	}
	f.Step(StepRunning)
	return live, nil
}

// launchAttempt makes the task's folders, starts the attempt with the driver and journals its handle.
// drivers.Recoverable marks errors after which another attempt may succeed.
func (t *task) launchAttempt(ctx context.Context) (drivers.Task, error) {
	s, err := t.currentSpec()
	if err != nil {
		return nil, err
	}
	driver, err := t.findDriver(s.task.Driver)
	if err != nil {
		return nil, err
	}
	if err := t.runner.factory.Dirs.taskFolders(t.runner.id, t.name).createFolders(); err != nil {
		return nil, drivers.Recoverable(err)
	}
	if err := t.writePayload(s); err != nil {
		return nil, drivers.Recoverable(err)
	}
	cfg, err := t.prepareAttempt(ctx, s)
	if err != nil {
		return nil, err
	}
	if err := driver.Validate(cfg.Config); err != nil {
		return nil, err
	}
	h, err := driver.Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	t.runner.factory.Step(StepStarted)
	t.rec.Handle, t.rec.Started = &h, t.runner.factory.Mono()
	if err := t.saveRecord(ctx); err != nil {
		return nil, err
	}
	t.runner.factory.Step(StepHandle)
	return t.findAttempt(ctx)
}

// superviseTask supervises a running attempt until it ends: it carries out stops, restarts and signals, and
// journals the end and its consequence. Before it returns, it waits for the delay before the next attempt. If
// ctx ends first, the attempt goes on.
func (t *task) superviseTask(ctx context.Context, live drivers.Task) error {
	waiting, cancel := context.WithCancel(ctx)
	exits := make(chan drivers.Exit, 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { t.waitForExit(waiting, live, exits) })
	t.startWatchers(waiting, &wg)
	leave := t.runner.registerAttempt(t.name, t.rec.Handle.Driver, live)
	defer leave()

	if t.rec.Restarting != "" {
		if err := t.stopAttempt(ctx, live); err != nil { // asked for before the agent restarted
			return err
		}
	}
	killed, restarts := t.killed, t.restarts
	var stop <-chan time.Time   // fires when the shutdown_delay is over
	var skipped <-chan struct{} // open while a shutdown_delay may be skipped
	for {
		select {
		case exit := <-exits:
			leave()
			cancel() // the watchers end with the attempt
			return t.handleExit(ctx, outcome{exit: exit}, live)
		case <-killed:
			killed, restarts = nil, nil
			at, err := t.planStopTime(ctx)
			if err != nil {
				return err
			}
			timer := time.NewTimer(max(at-t.runner.factory.Mono(), 0))
			defer timer.Stop()
			stop, skipped = timer.C, t.runner.delaySkipped
		case <-skipped:
			stop, skipped = nil, nil
			if err := t.killAttempt(ctx, live); err != nil {
				return err
			}
		case <-stop:
			stop, skipped = nil, nil
			if err := t.killAttempt(ctx, live); err != nil {
				return err
			}
		case req := <-restarts:
			restarts = nil
			if err := t.beginRestart(ctx, req); err != nil {
				return err
			}
			if err := t.stopAttempt(ctx, live); err != nil {
				return err
			}
		case req := <-t.signals:
			if err := t.signalAttempt(ctx, live, req); err != nil {
				return err
			}
		case req := <-t.events:
			err := t.reportSteps(ctx, step{event: t.newTaskEvent(req.kind, req.message)})
			req.reply <- err
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// waitForExit waits for the attempt's end and sends it to exits. If the driver returns an error, it asks again
// every second, until ctx ends.
func (t *task) waitForExit(ctx context.Context, live drivers.Task, exits chan<- drivers.Exit) {
	for {
		exit, err := live.Wait(ctx)
		if err == nil {
			exits <- exit
			return
		}
		if ctx.Err() != nil {
			return
		}
		t.runner.log.Error("driver cannot wait for task: trying again", "task", t.name, "error", err)
		if sleepContext(ctx, recordRetry) != nil {
			return
		}
	}
}

// killAttempt journals that the task is being killed, and stops the attempt. An agent that was restarted in
// between does not journal it twice.
func (t *task) killAttempt(ctx context.Context, live drivers.Task) error {
	if t.rec.Killing {
		return t.stopAttempt(ctx, live)
	}
	timeout := fleet.DefaultKillTimeout
	if s, err := t.currentSpec(); err == nil {
		timeout = s.task.KillTimeout
	}
	message := fmt.Sprintf("%s: it is given %v to end before it is killed", t.killReason, timeout)
	if t.killReason == "" {
		message = fmt.Sprintf("Task is given %v to end before it is killed", timeout)
	}
	t.rec.Killing = true
	if err := t.reportWithRecord(ctx, step{event: t.newTaskEvent(fleet.TaskKilling, message)}); err != nil {
		return err
	}
	return t.stopAttempt(ctx, live)
}

// stopAttempt stops the attempt with the task's kill signal and timeout. It returns when the driver has done
// that; if the driver fails, it tries again every second, until ctx ends. superviseTask still handles the
// attempt's exit.
func (t *task) stopAttempt(ctx context.Context, live drivers.Task) error {
	signal, timeout := fleet.DefaultKillSignal, fleet.DefaultKillTimeout
	if s, err := t.currentSpec(); err == nil {
		signal, timeout = s.task.KillSignal, s.task.KillTimeout
	}
	for {
		err := live.Stop(ctx, signal, timeout)
		if err == nil {
			return nil
		}
		if fleet.CodeOf(err) == fleet.CodeInvalid && signal != fleet.DefaultKillSignal {
			signal = fleet.DefaultKillSignal // the driver does not know the signal
			continue
		}
		if ctx.Err() == nil {
			t.runner.log.Error("driver cannot stop task: trying again", "task", t.name, "error", err)
		}
		if err := sleepContext(ctx, recordRetry); err != nil {
			return err
		}
	}
}

// signalAttempt journals a signal and sends it to the attempt. The client that asked for it gets the driver's
// error; the returned error means that it could not be journaled.
func (t *task) signalAttempt(ctx context.Context, live drivers.Task, req signalRequest) error {
	message := fmt.Sprintf("%s: it is sent %s", req.reason, req.signal)
	err := t.reportSteps(ctx, step{event: t.newTaskEvent(fleet.TaskSignaling, message)})
	if err != nil {
		req.reply <- err
		return err
	}
	req.reply <- live.Signal(ctx, req.signal)
	return nil
}

// beginRestart journals a requested restart and answers the request. It is journaled before the attempt is
// stopped, so that it also happens if the agent restarts first.
func (t *task) beginRestart(ctx context.Context, req restartRequest) error {
	t.rec.Restarting, t.rec.Unhealthy = req.reason, req.failed
	if t.rec.Restarting == "" {
		t.rec.Restarting = "Restart was asked for"
	}
	err := t.reportWithRecord(ctx, step{event: t.newTaskEvent(fleet.TaskRestartSignal, t.rec.Restarting)})
	req.reply <- err
	return err
}

// handleExit journals the end of an attempt and the consequence, lets the driver forget the attempt, and waits
// for the delay before the next one. live is nil if the driver has no attempt.
func (t *task) handleExit(ctx context.Context, o outcome, live drivers.Task) error {
	steps, delay := t.stepsAfterExit(o)
	if err := t.reportSteps(ctx, steps...); err != nil {
		return err
	}
	if live != nil {
		t.releaseAttempt(ctx, live)
	}
	if t.state.State == fleet.TaskDead {
		return nil
	}
	t.rec.Ended, t.rec.Due = true, t.runner.factory.Mono()+delay
	t.rec.Restarts = t.state.Restarts
	if err := t.saveRecord(ctx); err != nil {
		return err
	}
	return t.waitForRestart(ctx, delay)
}

// stepsAfterExit decides whether the task is restarted, has completed or has failed. It returns the steps to
// journal, and the delay before the next attempt. It updates the restart window.
func (t *task) stepsAfterExit(o outcome) ([]step, time.Duration) {
	first := t.outcomeStep(o)
	if t.isParked() && t.rec.Killing {
		return []step{first, t.heldStep()}, 0
	}
	if t.isStopping() {
		return []step{first, t.killedStep("Task was stopped")}, 0
	}
	unhealthy := t.rec.Restarting != "" && t.rec.Unhealthy && o.startErr == nil
	if t.rec.Restarting != "" && o.startErr == nil && !unhealthy {
		return []step{first, t.restartingStep(t.rec.Restarting, 0)}, 0
	}
	f := &t.runner.factory
	v := restartDecision{action: actionFail, reason: reasonUnrecoverable}
	if s, err := t.currentSpec(); err == nil {
		v, t.rec.Window = decideRestart(s.policy, t.rec.Window, o, s.alwaysRestart || unhealthy, f.Mono(), f.Jitter())
	}
	if unhealthy {
		v.reason = t.rec.Restarting + ": " + v.reason
	}
	switch v.action {
	case actionComplete:
		change := first.change
		first.change = func(s *fleet.TaskState) {
			change(s)
			s.State = fleet.TaskDead
		}
		return []step{first}, 0
	case actionRestart:
		return []step{first, t.restartingStep(v.reason, v.delay)}, v.delay
	}
	event := t.newTaskEvent(fleet.TaskNotRestarting, v.reason)
	event.FailsTask = true
	return []step{first, {event: event, change: func(s *fleet.TaskState) {
		s.State, s.Failed = fleet.TaskDead, true
	}}}, 0
}

// outcomeStep returns the step that says how the attempt ended, or why it did not start.
func (t *task) outcomeStep(o outcome) step {
	now := t.runner.factory.Now()
	finished := func(s *fleet.TaskState) { s.FinishedAt = &now }
	if o.startErr != nil {
		return step{event: t.newTaskEvent(fleet.TaskDriverFailure, o.startErr.Error()), change: finished}
	}
	parts := []string{fmt.Sprintf("Exit Code: %d", o.exit.Code)}
	if o.exit.Signal != 0 {
		parts = append(parts, fmt.Sprintf("Signal: %d", o.exit.Signal))
	}
	if o.exit.OOM {
		parts = append(parts, "out of memory")
	}
	if o.exit.Err != "" {
		parts = append(parts, o.exit.Err)
	}
	event := t.newTaskEvent(fleet.TaskTerminated, strings.Join(parts, ", "))
	event.ExitCode, event.Signal = o.exit.Code, o.exit.Signal
	ran := t.runner.factory.Mono() - t.rec.Started
	return step{event: event, change: func(s *fleet.TaskState) {
		s.FinishedAt, s.RunningFor = &now, ran
	}}
}

// startedStep returns the step that makes the task running.
func (t *task) startedStep() step {
	now := t.runner.factory.Now()
	return step{
		event: t.newTaskEvent(fleet.TaskStarted, "Task started"),
		change: func(s *fleet.TaskState) {
			s.State, s.StartedAt, s.FinishedAt = fleet.TaskRunning, &now, nil
		},
	}
}

// restartingStep returns the step that makes the task pending until its restart after delay, and counts a
// restart.
func (t *task) restartingStep(reason string, delay time.Duration) step {
	now := t.runner.factory.Now()
	message := fmt.Sprintf("%s: restarting in %v", reason, delay.Round(time.Millisecond))
	return step{
		event: t.newTaskEvent(fleet.TaskRestarting, message),
		change: func(s *fleet.TaskState) {
			s.State, s.LastRestart = fleet.TaskPending, &now
			s.Restarts++
		},
	}
}

// killedStep returns the step that makes the task dead after it was told to end.
func (t *task) killedStep(message string) step {
	return step{
		event:  t.newTaskEvent(fleet.TaskKilled, message),
		change: func(s *fleet.TaskState) { s.State = fleet.TaskDead },
	}
}

// newTaskEvent returns an event of now, without the values of the task's secrets: a driver's error may have one. It records nothing.
func (t *task) newTaskEvent(kind, message string) fleet.TaskEvent {
	return fleet.TaskEvent{Type: kind, Time: t.runner.factory.Now().UnixNano(), DisplayMessage: t.hidden.Text(message)}
}

// eventTransition returns the row of an event, with the task's state now.
func (t *task) eventTransition(event fleet.TaskEvent) fleet.Transition {
	state := t.state
	if state.State == fleet.TaskRunning && event.Type != fleet.TaskTerminated {
		state.RunningFor = t.runner.factory.Mono() - t.rec.Started
	}
	return fleet.Transition{
		Kind: fleet.TransitionTask, Alloc: t.runner.id, Task: t.name, TaskState: &state, Event: &event,
	}
}
