package runner

import (
	"fmt"
	"time"

	"skerry/drivers"
	"skerry/fleet"
)

// maxJitter is the part of a restart's delay that is added at most, so that what
// failed together does not come back together.
const maxJitter = 0.25

// Why a task is, or is not, restarted: shown in its events.
const (
	reasonWithinPolicy  = "Restart within policy"
	reasonDelayMode     = `Attempts of this interval are used up; mode "delay" waits for the next`
	reasonNoRestarts    = "Policy allows no restarts"
	reasonUnrecoverable = "Error was unrecoverable"
	reasonCompleted     = "Task completed"
)

// restartWindow is how often a task was restarted since Start, by monotonic time.
type restartWindow struct {
	Start time.Duration `json:"start"`
	Count int           `json:"count"`
}

// rebaseStart moves a window of an earlier boot into this one: the time that the
// machine was off does not count. then is what the clock said when the window
// was written, now is what it says in this boot.
func (w restartWindow) rebaseStart(then, now time.Duration) restartWindow {
	w.Start = now - (then - w.Start)
	return w
}

// outcome is how an attempt to run a task went: startErr where it did not start,
// exit otherwise.
type outcome struct {
	startErr error
	exit     drivers.Exit
}

func (o outcome) isSuccess() bool { return o.startErr == nil && o.exit.Success() }

// action is what is done about an outcome.
type action int

const (
	actionRestart  action = iota // start it again after a delay
	actionComplete               // it has done what it was to do
	actionFail                   // it has failed for good
)

// restartDecision is what a restart policy says about an outcome, and why.
type restartDecision struct {
	action action
	delay  time.Duration
	reason string
}

// decideRestart applies a restart policy at the monotonic time now. always says that
// the task is to run for ever, so that a success, too, is followed by a restart
// (service and system jobs). jitter is in [0, 1) and scales maxJitter. It returns
// the window as it is after it.
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
