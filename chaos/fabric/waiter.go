package fabric

import "time"

// waiter is one side of a socket that goroutines wait on: one of them at a time
// sleeps until something changes or until an instant that it knows.
type waiter struct {
	net   *Net
	turn  chan struct{} // held by the one that waits
	wake  chan struct{} // something has changed
	timer *time.Timer

	// Guarded by Net.mu.
	waiting  int // goroutines in wait that were not done at once
	asleep   bool
	timerAt  instant // what the timer is set to; never: it is off
	deadline instant
}

func newWaiter(n *Net) waiter {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return waiter{net: n, turn: make(chan struct{}, 1), wake: make(chan struct{}, 1), timer: t, timerAt: never, deadline: never}
}

// waitUntilDone calls step, which holds Net.mu, until it is done. In between it sleeps
// until the instant that step gave, until the deadline, or until notify. Who comes
// later waits for those before, so that writes do not mix.
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

// runStep calls step and prepares for sleep where it is not done. fired: the timer is
// off, because it has woken who calls.
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

// setTimer sets the timer; Net.mu is held.
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

// wakeAtLatest makes who sleeps wake at an instant, if not before; Net.mu is held.
func (w *waiter) wakeAtLatest(now, at instant) {
	if w.asleep && at < w.timerAt {
		w.setTimer(now, at)
	}
}

// wakeSleeper makes who sleeps look again; Net.mu is held.
func (w *waiter) wakeSleeper() {
	if !w.asleep {
		return
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// setDeadline sets the deadline.
func (w *waiter) setDeadline(t time.Time) {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	w.deadline = w.net.instantOf(t)
	w.wakeSleeper()
}

// isPastDeadline reports whether the deadline has passed; Net.mu is held.
func (w *waiter) isPastDeadline(now instant) bool { return w.deadline <= now }
