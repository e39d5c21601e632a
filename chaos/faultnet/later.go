package faultnet

import (
	"slices"
	"sync"
	"time"
)

// callScheduler calls functions at given times, in the order of these times, in one goroutine.
type callScheduler struct {
	mu      sync.Mutex
	queue   []event // guarded by mu: in the order of their times
	wake    chan struct{}
	done    chan struct{}
	running sync.WaitGroup
}

// event is a function and the time of its call.
type event struct {
	at time.Time
	do func()
}

// newCallScheduler starts the goroutine; close stops it.
func newCallScheduler() *callScheduler {
	l := &callScheduler{wake: make(chan struct{}, 1), done: make(chan struct{})}
	l.running.Go(l.runLoop)
	return l
}

// scheduleCall calls f at the time t, after earlier calls of the same time. f is never called if the
// scheduler is closed before.
func (l *callScheduler) scheduleCall(t time.Time, f func()) {
	l.mu.Lock()
	i := len(l.queue)
	for i > 0 && l.queue[i-1].at.After(t) { // most new calls belong at the end
		i--
	}
	l.queue = slices.Insert(l.queue, i, event{t, f})
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// close stops the goroutine, waits for it, and drops the remaining calls.
func (l *callScheduler) close() {
	close(l.done)
	l.running.Wait()
}

// runLoop makes due calls until close.
func (l *callScheduler) runLoop() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(l.runDueCalls())
		select {
		case <-l.done:
			return
		case <-l.wake:
		case <-timer.C:
		}
	}
}

// runDueCalls makes the calls that are due, and returns the time until the next one.
func (l *callScheduler) runDueCalls() time.Duration {
	for {
		l.mu.Lock()
		if len(l.queue) == 0 {
			l.mu.Unlock()
			return time.Hour
		}
		next := l.queue[0]
		if wait := time.Until(next.at); wait > 0 {
			l.mu.Unlock()
			return wait
		}
		l.queue = slices.Delete(l.queue, 0, 1)
		l.mu.Unlock()
		next.do()
	}
}
