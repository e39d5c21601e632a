package runner

import (
	"context"
	"fmt"
	"time"

	"skerry/fleet"
)

// A task that is to end and has, or whose group has, a shutdown_delay goes on for so
// long: its services are out of the catalogue, and who found them there before may
// finish. The group's delay counts from when the first of its tasks was to end, and is
// waited for once; the task's own follows it. Both count on through restarts of the
// agent. What does not run, or ends meanwhile, waits for nothing; nor does
// anything where the stop leaves the delays out, also one that has begun.

// endsSince is when, by monotonic time, the first of the tasks was to end: now, where
// none was before.
func (r *Runner) endsSince() time.Duration {
	if r.firstEndAt == 0 {
		r.firstEndAt = max(r.factory.Mono(), 1)
	}
	return r.firstEndAt
}

// resumeEnding goes on where an earlier life of the agent was. It is called before the
// tasks' goroutines are there.
func (r *Runner) resumeEnding() {
	for _, t := range r.tasks {
		if since := t.rec.Ending; since > 0 && (r.firstEndAt == 0 || since < r.firstEndAt) {
			r.firstEndAt = since
		}
	}
}

// isDelaySkipped reports whether Hasten was called.
func (r *Runner) isDelaySkipped() bool {
	select {
	case <-r.delaySkipped:
		return true
	default:
		return false
	}
}

// delayShutdown journals, where the attempt is to go on for a while, that it is to end, and
// returns when, by monotonic time, it is to be stopped.
func (t *task) delayShutdown(ctx context.Context) (time.Duration, error) {
	now := t.runner.factory.Mono()
	switch {
	case t.rec.Killing, t.runner.isDelaySkipped():
		return now, nil
	case t.rec.StopAt > 0: // an earlier life said so
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
