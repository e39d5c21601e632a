package fabric

import "time"

// waiter lets goroutines wait on one side of a socket. One of them at a time sleeps, until it is
// woken or until a given instant; the others wait for their turn.
type waiter struct {
	net   *Net
	turn  chan struct{} // has an element while a goroutine has its turn
	wake  chan struct{} // gets an element when the sleeper has to check again
	timer *time.Timer

	// Guarded by Net.mu.
	waiting  int     // goroutines in waitUntilDone that were not done at once
	asleep   bool    // a goroutine sleeps
	timerAt  instant // instant of the timer; never: it is off
	deadline instant
}

// newWaiter returns a waiter without a deadline, with its timer off.
func newWaiter(n *Net) waiter {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return waiter{net: n, turn: make(chan struct{}, 1), wake: make(chan struct{}, 1), timer: t, timerAt: never, deadline: never}
}

// waitUntilDone calls step, with Net.mu held, until it returns done. Between the calls it sleeps until
// the instant next, the deadline, or wakeSleeper. Several calls take turns, in order of their
// beginning, so that writes do not mix.
func (w *waiter) waitUntilDone(step func(now instant) (next instant, done bool)) {
	w.net.mu.Lock()
	done := false
	if w.waiting == 0 {
		_, done = step(w.net.currentInstant())
	}
	if !done {
		w.waiting++
	}
	w.net.mu.Unlock()
	if done {
		return
	}
	w.turn <- struct{}{}
	for fired := false; !w.runStep(fired, step); {
		select {
		case <-w.wake:
			fired = false
		case <-w.timer.C:
			fired = true
		}
	}
	<-w.turn
}

// runStep calls step and returns its done. If it is not done, it sets the timer for the sleep. fired
// is set if the timer has fired since the last step.
func (w *waiter) runStep(fired bool, step func(now instant) (next instant, done bool)) bool {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	if fired {
		w.timerAt = never
	}
	now := w.net.currentInstant()
	next, done := step(now)
	if done {
		w.waiting--
		w.setTimer(now, never)
	} else {
		w.setTimer(now, min(next, w.deadline))
	}
	w.asleep = !done
	return done
}

// setTimer sets the timer to an instant, or stops it for never; Net.mu is held.
func (w *waiter) setTimer(now, at instant) {
	switch {
	case at == w.timerAt:
		return
	case at == never:
		w.timer.Stop()
	default:
		w.timer.Reset(time.Duration(at - now))
	}
	w.timerAt = at
}

// wakeAtLatest makes the sleeping goroutine check at that instant or earlier; Net.mu is held.
func (w *waiter) wakeAtLatest(now, at instant) {
	if w.asleep && at < w.timerAt {
		w.setTimer(now, at)
	}
}

// wakeSleeper makes the sleeping goroutine check now; Net.mu is held.
func (w *waiter) wakeSleeper() {
	if !w.asleep {
		return
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// setDeadline sets the deadline, and wakes the sleeping goroutine. A zero time means none.
func (w *waiter) setDeadline(t time.Time) {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	w.deadline = w.net.instantOf(t)
	w.wakeSleeper()
}

// isPastDeadline reports whether the deadline has passed; Net.mu is held.
func (w *waiter) isPastDeadline(now instant) bool { return w.deadline <= now }
