package faultnet

import (
	"slices"
	"sync"
	"time"
)

// callScheduler does things at their time, in the order of their times, on one goroutine.
type callScheduler struct {
	mu      sync.Mutex
	queue   []event // guarded by mu: in the order of their times
	wake    chan struct{}
	done    chan struct{}
	running sync.WaitGroup
}

type event struct {
	at time.Time
	do func()
}

func newCallScheduler() *callScheduler {
	l := &callScheduler{wake: make(chan struct{}, 1), done: make(chan struct{})}
	l.running.Go(l.runLoop)
	return l
}

// scheduleCall does f at a time, after what is due then already, or drops it if everything is over
// by then.
func (l *callScheduler) scheduleCall(t time.Time, f func()) {
	l.mu.Lock()
	i := len(l.queue)
	for i > 0 && l.queue[i-1].at.After(t) { // most are due last
		i--
	}
	l.queue = slices.Insert(l.queue, i, event{t, f})
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// close drops what is still to be done.
func (l *callScheduler) close() {
	close(l.done)
	l.running.Wait()
}

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

// runDueCalls does what is due, and says how long until there is more.
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
