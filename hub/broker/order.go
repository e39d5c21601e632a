package broker

import (
	"cmp"
	"container/heap"
	"strings"
	"time"

	"skerry/fleet"
)

// isMoreUrgent orders evaluations for delivery: higher priority first, then the older.
func isMoreUrgent(a, b *fleet.Evaluation) bool {
	if a.Priority != b.Priority {
		return a.Priority > b.Priority
	}
	if a.CreateIndex != b.CreateIndex {
		return a.CreateIndex < b.CreateIndex
	}
	return a.ID < b.ID
}

// compareLastChange orders evaluations of one job by their last change.
func compareLastChange(a, b *fleet.Evaluation) int {
	return cmp.Or(cmp.Compare(a.ModifyIndex, b.ModifyIndex), cmp.Compare(a.CreateIndex, b.CreateIndex),
		strings.Compare(string(a.ID), string(b.ID)))
}

// readyHeap holds what is ready, by before.
type readyHeap []*entry

func (h readyHeap) Len() int           { return len(h) }
func (h readyHeap) Less(i, j int) bool { return isMoreUrgent(h[i].eval, h[j].eval) }

func (h readyHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapIndex, h[j].heapIndex = i, j
}

func (h *readyHeap) Push(x any) {
	e := x.(*entry)
	e.heapIndex = len(*h)
	*h = append(*h, e)
}

func (h *readyHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return last
}

// deadlines are the deadlines of entries, of which each has one at most. An alarm
// that was replaced stays in the heap until its time, and then counts for
// nothing.
type deadlines struct {
	heap    deadlineHeap
	serial  uint64
	earlier chan struct{} // holds a token when a deadline came before all others
}

type deadline struct {
	at     time.Time
	entry  *entry
	serial uint64
}

func newDeadlines() *deadlines { return &deadlines{earlier: make(chan struct{}, 1)} }

func (a *deadlines) setDeadline(e *entry, at time.Time) {
	a.serial++
	e.deadlineSerial = a.serial
	heap.Push(&a.heap, deadline{at, e, a.serial})
	if a.heap[0].serial == a.serial {
		select {
		case a.earlier <- struct{}{}:
		default:
		}
	}
}

func (a *deadlines) cancelDeadline(e *entry) { e.deadlineSerial = 0 }

// popExpired takes an entry whose time has come, or returns the next deadline.
func (a *deadlines) popExpired(now time.Time) (e *entry, next time.Time, armed bool) {
	for len(a.heap) > 0 {
		first := a.heap[0]
		counts := first.entry.deadlineSerial == first.serial
		if counts && first.at.After(now) {
			return nil, first.at, true
		}
		heap.Pop(&a.heap)
		if counts {
			first.entry.deadlineSerial = 0
			return first.entry, time.Time{}, true
		}
	}
	return nil, time.Time{}, false
}

type deadlineHeap []deadline

func (h deadlineHeap) Len() int           { return len(h) }
func (h deadlineHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h deadlineHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *deadlineHeap) Push(x any)        { *h = append(*h, x.(deadline)) }

func (h *deadlineHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = deadline{}
	*h = old[:len(old)-1]
	return last
}
