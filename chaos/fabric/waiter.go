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
	asleep   bool
	due      instant // what the timer is set to; never: it is off
	deadline instant
}

func newWaiter(n *Net) waiter {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return waiter{net: n, turn: make(chan struct{}, 1), wake: make(chan struct{}, 1), timer: t, due: never, deadline: never}
}

// wait calls step, which holds Net.mu, until it is done. In between it sleeps
// until the instant that step gave, until the deadline, or until notify.
func (w *waiter) wait(step func(now instant) (next instant, done bool)) {
	w.net.mu.Lock()
	_, done := step(w.net.now())
	w.net.mu.Unlock()
	if done {
		return
	}
	w.turn <- struct{}{}
	defer func() { <-w.turn }()
	for fired := false; ; {
		w.net.mu.Lock()
		if fired {
			w.due = never
		}
		now := w.net.now()
		next, done := step(now)
		if done {
			next = never
		} else {
			next = min(next, w.deadline)
		}
		w.asleep = !done
		w.arm(now, next)
		w.net.mu.Unlock()
		if done {
			return
		}
		select {
		case <-w.wake:
			fired = false
		case <-w.timer.C:
			fired = true
		}
	}
}

// arm sets the timer; Net.mu is held.
func (w *waiter) arm(now, at instant) {
	switch {
	case at == w.due:
		return
	case at == never:
		w.timer.Stop()
	default:
		w.timer.Reset(time.Duration(at - now))
	}
	w.due = at
}

// expect makes who sleeps wake at an instant, if not before; Net.mu is held.
func (w *waiter) expect(now, at instant) {
	if w.asleep && at < w.due {
		w.arm(now, at)
	}
}

// notify makes who sleeps look again; Net.mu is held.
func (w *waiter) notify() {
	if !w.asleep {
		return
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// until sets the deadline.
func (w *waiter) until(t time.Time) {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	w.deadline = w.net.at(t)
	w.notify()
}

// expired reports whether the deadline has passed; Net.mu is held.
func (w *waiter) expired(now instant) bool { return w.deadline <= now }
