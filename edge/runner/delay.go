package runner

import (
	"context"
	"fmt"
	"time"

	"skerry/fleet"
)

// A task with a shutdown_delay, its own or its group's, runs on for that time after it was told to stop: its
// services are no longer listed, and their clients may finish. The group's delay counts once, from when the first
// of its tasks was told to stop; the task's own follows it. Both continue when the agent restarts. A task that
// does not run waits for no delay, nor does any task if the stop skips the delays, even after they have begun.

// ensureFirstStopTime returns the monotonic time at which the first of the allocation's tasks was told to stop. If
// none was, it sets that time to now.
func (r *Runner) ensureFirstStopTime() time.Duration {
	if r.firstEndAt == 0 {
		r.firstEndAt = max(r.factory.Mono(), 1)
	}
	return r.firstEndAt
}

// restoreFirstStopTime restores firstEndAt from the tasks' records after a restart of the agent. It is called
// before the tasks' goroutines start.
func (r *Runner) restoreFirstStopTime() {
	for _, t := range r.tasks {
		if since := t.rec.Ending; since > 0 && (r.firstEndAt == 0 || since < r.firstEndAt) {
			r.firstEndAt = since
		}
	}
}

// isDelaySkipped reports whether SkipDelay was called.
func (r *Runner) isDelaySkipped() bool {
	select {
	case <-r.delaySkipped:
		return true
	default:
		return false
	}
}

// planStopTime returns the monotonic time at which the attempt is to be stopped, after the shutdown_delay of
// its group and its own. If that is later than now, it journals the delay first. It does not wait.
func (t *task) planStopTime(ctx context.Context) (time.Duration, error) {
	now := t.runner.factory.Mono()
	switch {
	case t.rec.Killing, t.runner.isDelaySkipped():
		return now, nil
	case t.rec.StopAt > 0: // decided before the agent restarted
		return t.rec.StopAt, nil
	}
	s, err := t.currentSpec()
	if err != nil {
		return now, nil
	}
	at := now
	if g := s.alloc.Group(); g != nil && g.ShutdownDelay != nil {
		at = max(at, t.killedAt+*g.ShutdownDelay)
	}
	at += s.task.ShutdownDelay
	if at <= now {
		return now, nil
	}
	t.rec.Ending, t.rec.StopAt = t.killedAt, at
	why := "Task is to end"
	if t.killReason != "" {
		why = t.killReason
	}
	message := fmt.Sprintf("%s: its services are withdrawn, and it is stopped in %v (shutdown_delay)", why, (at - now).Round(time.Millisecond))
	return at, t.reportWithRecord(ctx, step{event: t.newTaskEvent(fleet.TaskWaitsToStop, message)})
}
