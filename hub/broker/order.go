package broker

import (
	"cmp"
	"container/heap"
	"strings"
	"time"

	"skerry/fleet"
)

// before orders evaluations for delivery: higher priority first, then the older.
func before(a, b *fleet.Evaluation) bool {
	if a.Priority != b.Priority {
		return a.Priority > b.Priority
	}
	if a.CreateIndex != b.CreateIndex {
		return a.CreateIndex < b.CreateIndex
	}
	return a.ID < b.ID
}

// byChange orders evaluations of one job by their last change.
func byChange(a, b *fleet.Evaluation) int {
	return cmp.Or(cmp.Compare(a.ModifyIndex, b.ModifyIndex), cmp.Compare(a.CreateIndex, b.CreateIndex),
		strings.Compare(string(a.ID), string(b.ID)))
}

// readyHeap holds what is ready, by before.
type readyHeap []*entry

func (h readyHeap) Len() int           { return len(h) }
func (h readyHeap) Less(i, j int) bool { return before(h[i].eval, h[j].eval) }

func (h readyHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapAt, h[j].heapAt = i, j
}

func (h *readyHeap) Push(x any) {
	e := x.(*entry)
	e.heapAt = len(*h)
	*h = append(*h, e)
}

func (h *readyHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return last
}

// alarms are the deadlines of entries, of which each has one at most. An alarm
// that was replaced stays in the heap until its time, and then counts for
// nothing.
type alarms struct {
	heap    alarmHeap
	serial  uint64
	earlier chan struct{} // holds a token when a deadline came before all others
}

type alarm struct {
	at     time.Time
	entry  *entry
	serial uint64
}

func newAlarms() *alarms { return &alarms{earlier: make(chan struct{}, 1)} }

func (a *alarms) arm(e *entry, at time.Time) {
	a.serial++
	e.alarm = a.serial
	heap.Push(&a.heap, alarm{at, e, a.serial})
	if a.heap[0].serial == a.serial {
		select {
		case a.earlier <- struct{}{}:
		default:
		}
	}
}

func (a *alarms) disarm(e *entry) { e.alarm = 0 }

// due takes an entry whose time has come, or returns the next deadline.
func (a *alarms) due(now time.Time) (e *entry, next time.Time, armed bool) {
	for len(a.heap) > 0 {
		first := a.heap[0]
		counts := first.entry.alarm == first.serial
		if counts && first.at.After(now) {
			return nil, first.at, true
		}
		heap.Pop(&a.heap)
		if counts {
			first.entry.alarm = 0
			return first.entry, time.Time{}, true
		}
	}
	return nil, time.Time{}, false
}

type alarmHeap []alarm

func (h alarmHeap) Len() int           { return len(h) }
func (h alarmHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h alarmHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *alarmHeap) Push(x any)        { *h = append(*h, x.(alarm)) }

func (h *alarmHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = alarm{}
	*h = old[:len(old)-1]
	return last
}
