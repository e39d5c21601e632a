package runner

import (
	"context"
	"errors"

	"skerry/drivers"
	"skerry/fleet"
)

// resumeAttempt asks the driver for the attempt of the previous agent, and journals what became of it. It
// returns the attempt if it runs or its end is not journaled yet. It returns nil, after the delay before the
// next attempt, if that is to be started.
func (t *task) resumeAttempt(ctx context.Context) (drivers.Task, error) {
	rebooted := t.rec.BootID != t.runner.factory.BootID
	switch {
	case !t.hasRecord:
		return nil, nil
	case t.rec.Ended || t.state.Restarts > t.rec.Restarts:
		return nil, t.resumeDelay(ctx, rebooted)
	}
	intended := t.rec.Handle == nil
	live, err := t.findAttempt(ctx)
	switch {
	case errors.Is(err, drivers.ErrTaskGone) && intended:
		t.rec.Attempt-- // it was not started, so its number is used again
		return nil, nil
	case errors.Is(err, drivers.ErrTaskGone) && !rebooted:
		gone := drivers.Exit{Code: -1, Err: "lost: the driver no longer has the task", FinishedAt: t.runner.factory.Now()}
		return nil, t.handleExit(ctx, outcome{exit: gone}, nil)
	case err != nil && !errors.Is(err, drivers.ErrTaskGone):
		return nil, err
	case rebooted && (live == nil || live.Ended()):
		return t.resumeRebooted(ctx, live)
	case rebooted:
		return live, t.resumeWithOldRecord(ctx)
	case t.state.State != fleet.TaskRunning:
		return live, t.resumeStarted(ctx, intended)
	case !live.Ended():
		return live, t.reportSteps(ctx, step{event: t.newTaskEvent(fleet.TaskRestored, "Task was found running")})
	}
	return live, nil
}

// resumeStarted journals that an attempt was started: the previous agent died during the start. intended says
// that not even the handle was journaled.
func (t *task) resumeStarted(ctx context.Context, intended bool) error {
	if intended {
		t.rec.Started = t.rec.Mono // the time of the record before the start
		if err := t.saveRecord(ctx); err != nil {
			return err
		}
	}
	return t.reportSteps(ctx, t.startedStep())
}

// resumeWithOldRecord journals a running attempt whose record is of an earlier boot: a damaged journal lost its
// start. Its running time begins now.
func (t *task) resumeWithOldRecord(ctx context.Context) error {
	t.rec.Started = t.runner.factory.Mono()
	if err := t.saveRecord(ctx); err != nil {
		return err
	}
	return t.reportSteps(ctx, t.startedStep())
}

// resumeDelay waits for the rest of the delay before the next attempt. After a reboot it does not wait.
func (t *task) resumeDelay(ctx context.Context, rebooted bool) error {
	if rebooted {
		return nil
	}
	if !t.rec.Ended { // the agent died between the row and this record
		spec, err := t.currentSpec()
		if err != nil {
			return nil // startAttempt reports the error
		}
		t.rec.Window.Count++
		t.rec.Due = t.runner.factory.Mono() + spec.policy.Delay
	}
	return t.waitForRestart(ctx, t.rec.Due-t.runner.factory.Mono())
}

// resumeRebooted journals that a reboot ended the attempt, and returns nil: the task starts again at once,
// which is not counted as a restart. If the driver knows that the attempt had succeeded and the task does not
// run forever, it returns the attempt, so that its exit is handled.
func (t *task) resumeRebooted(ctx context.Context, live drivers.Task) (drivers.Task, error) {
	if live != nil { // the driver knows how it ended
		exit, err := live.Wait(ctx)
		if err != nil {
			return nil, err
		}
		if spec, err := t.currentSpec(); err == nil && !spec.alwaysRestart && exit.Success() {
			return live, nil
		}
		t.releaseAttempt(ctx, live)
	}
	if t.state.State != fleet.TaskRunning {
		return nil, nil
	}
	return nil, t.reportSteps(ctx, step{
		event: t.newTaskEvent(fleet.TaskLostAtReboot, "The machine rebooted while the task ran"),
		change: func(s *fleet.TaskState) {
			s.State, s.RunningFor = fleet.TaskPending, 0
		},
	})
}

// findAttempt asks the driver for the attempt until it answers. The error is drivers.ErrTaskGone if the driver
// does not have it or could not tell in recoverTries tries; another error means that ctx has ended.
func (t *task) findAttempt(ctx context.Context) (drivers.Task, error) {
	for try := 1; ; try++ {
		live, err := t.recoverAttempt(ctx)
		if err == nil || errors.Is(err, drivers.ErrTaskGone) || ctx.Err() != nil {
			return live, err
		}
		t.runner.log.Error("driver cannot look up task", "task", t.name, "try", try, "error", err)
		if try >= recoverTries && !drivers.IsRecoverable(err) {
			return nil, drivers.ErrTaskGone
		}
		if err := sleepContext(ctx, recordRetry); err != nil {
			return nil, err
		}
	}
}

// recoverAttempt asks the driver for the attempt once, by its journaled handle or otherwise by its id.
func (t *task) recoverAttempt(ctx context.Context) (drivers.Task, error) {
	spec, err := t.currentSpec()
	if err != nil {
		return nil, err
	}
	h := t.rec.Handle
	if h == nil {
		h = &drivers.Handle{Driver: spec.task.Driver, TaskID: t.attemptID()}
	}
	driver, err := t.findDriver(h.Driver)
	if err != nil {
		return nil, err
	}
	live, err := driver.Recover(ctx, t.driverConfig(spec), *h)
	if err == nil {
		t.rec.Handle = h
	}
	return live, err
}
