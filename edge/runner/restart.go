package runner

import (
	"fmt"
	"time"

	"skerry/drivers"
	"skerry/fleet"
)

// maxJitter is the largest part of a restart's delay that is added, so that tasks that failed together
// do not restart together.
const maxJitter = 0.25

// Reasons for a restart or its absence, shown in events.
const (
	reasonWithinPolicy  = "Restart within policy"
	reasonDelayMode     = `Attempts of this interval are used up; mode "delay" waits for the next`
	reasonNoRestarts    = "Policy allows no restarts"
	reasonUnrecoverable = "Error was unrecoverable"
	reasonCompleted     = "Task completed"
)

// restartWindow counts the restarts of a task since Start, in monotonic time, for the restart policy's interval.
type restartWindow struct {
	Start time.Duration `json:"start"`
	Count int           `json:"count"`
}

// rebaseStart returns a window of an earlier boot on the clock of this one, without the time that the machine
// was off. then is the clock when the window was written, now the clock in this boot.
func (w restartWindow) rebaseStart(then, now time.Duration) restartWindow {
	w.Start = now - (then - w.Start)
	return w
}

// outcome is the result of an attempt: startErr if it did not start, otherwise exit.
type outcome struct {
	startErr error
	exit     drivers.Exit
}

func (o outcome) isSuccess() bool { return o.startErr == nil && o.exit.Success() }

// action is what follows the end of an attempt.
type action int

const (
	actionRestart  action = iota // start it again after a delay
	actionComplete               // the task has completed
	actionFail                   // the task has failed for good
)

// restartDecision is the decision of a restart policy, with its reason.
type restartDecision struct {
	action action
	delay  time.Duration
	reason string
}

// decideRestart applies a restart policy to an outcome at the monotonic time now. always asks for a restart
// also after a success (service and system jobs). jitter is in [0, 1) and scales maxJitter. It returns the
// decision and the new window.
func decideRestart(p fleet.RestartPolicy, w restartWindow, o outcome, always bool, now time.Duration, jitter float64) (restartDecision, restartWindow) {
	if !always && o.isSuccess() {
		return restartDecision{action: actionComplete, reason: reasonCompleted}, w
	}
	if p.Attempts == 0 {
		return restartDecision{action: actionFail, reason: reasonNoRestarts}, w
	}
	if now >= w.Start+p.Interval {
		w = restartWindow{Start: now}
	}
	w.Count++
	switch {
	case o.startErr != nil && !drivers.IsRecoverable(o.startErr):
		return restartDecision{action: actionFail, reason: reasonUnrecoverable}, w
	case w.Count <= p.Attempts:
		delay := p.Delay + time.Duration(jitter*maxJitter*float64(p.Delay))
		return restartDecision{action: actionRestart, delay: delay, reason: reasonWithinPolicy}, w
	case p.Mode == fleet.RestartModeDelay:
		return restartDecision{action: actionRestart, delay: w.Start + p.Interval - now, reason: reasonDelayMode}, w
	}
	reason := fmt.Sprintf(`Used up its %d attempts in %v; mode is "fail"`, p.Attempts, p.Interval)
	return restartDecision{action: actionFail, reason: reason}, w
}
