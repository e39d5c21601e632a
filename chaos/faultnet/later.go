package faultnet

import (
	"container/heap"
	"sync"
	"time"
)

// callScheduler does things at their time, in the order of their times, on one goroutine.
type callScheduler struct {
	mu      sync.Mutex
	queue   events // guarded by mu
	count   uint64 // guarded by mu: keeps things of the same time in their order
	wake    chan struct{}
	done    chan struct{}
	running sync.WaitGroup
}

func newCallScheduler() *callScheduler {
	l := &callScheduler{wake: make(chan struct{}, 1), done: make(chan struct{})}
	l.running.Go(l.runLoop)
	return l
}

// scheduleCall does f at a time, or drops it if everything is over by then.
func (l *callScheduler) scheduleCall(t time.Time, f func()) {
	l.mu.Lock()
	l.count++
	heap.Push(&l.queue, event{t, l.count, f})
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
		if wait := time.Until(l.queue[0].at); wait > 0 {
			l.mu.Unlock()
			return wait
		}
		next := heap.Pop(&l.queue).(event)
		l.mu.Unlock()
		next.do()
	}
}

type event struct {
	at    time.Time
	order uint64
	do    func()
}

// events is a heap, the earliest first.
type events []event

func (q events) Len() int      { return len(q) }
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q events) Less(i, j int) bool {
	if q[i].at.Equal(q[j].at) {
		return q[i].order < q[j].order
	}
	return q[i].at.Before(q[j].at)
}
func (q *events) Push(x any) { *q = append(*q, x.(event)) }
func (q *events) Pop() any {
	old := *q
	last := old[len(old)-1]
	old[len(old)-1] = event{}
	*q = old[:len(old)-1]
	return last
}
