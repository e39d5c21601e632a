package broker

import (
	"cmp"
	"container/heap"
	"strings"
	"time"

	"skerry/fleet"
)

// isMoreUrgent orders evaluations for delivery: a higher priority first, then the older one.
func isMoreUrgent(a, b *fleet.Evaluation) bool {
	if a.Priority != b.Priority {
		return a.Priority > b.Priority
	}
	if a.CreateIndex != b.CreateIndex {
		return a.CreateIndex < b.CreateIndex
	}
	return a.ID < b.ID
}

// compareLastChange compares evaluations of one job by their last change; the newer one is greater.
func compareLastChange(a, b *fleet.Evaluation) int {
	return cmp.Or(cmp.Compare(a.ModifyIndex, b.ModifyIndex), cmp.Compare(a.CreateIndex, b.CreateIndex),
		strings.Compare(string(a.ID), string(b.ID)))
}

// readyHeap is a heap of the ready evaluations, ordered by isMoreUrgent.
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

// deadlines holds at most one deadline for each entry. A replaced or canceled deadline stays in the heap
// until its time, and is then ignored, because its serial is not the entry's.
type deadlines struct {
	heap    deadlineHeap
	serial  uint64
	earlier chan struct{} // receives a token when a new deadline is the earliest; capacity 1
}

// deadline is a deadline of an entry. It is valid while serial equals the entry's deadlineSerial.
type deadline struct {
	at     time.Time
	entry  *entry
	serial uint64
}

func newDeadlines() *deadlines { return &deadlines{earlier: make(chan struct{}, 1)} }

// setDeadline sets or replaces the deadline of an entry.
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

// cancelDeadline removes the deadline of an entry, if it has one.
func (a *deadlines) cancelDeadline(e *entry) { e.deadlineSerial = 0 }

// popExpired removes an expired deadline and returns its entry. If none is expired, e is nil, and next is
// the earliest deadline if armed.
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

// deadlineHeap is a heap of deadlines, the earliest first.
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
