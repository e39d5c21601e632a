package liveness

import (
	"container/heap"
	"time"

	"skerry/fleet"
)

// deadlines orders nodes by when they count as gone. It is not safe for
// concurrent use.
type deadlines struct {
	byNode map[fleet.NodeID]*deadline
	queue  deadlineQueue
}

type deadline struct {
	node  fleet.NodeID
	epoch fleet.Epoch
	at    time.Time
	place int // in the queue
}

func newDeadlines() *deadlines {
	return &deadlines{byNode: make(map[fleet.NodeID]*deadline)}
}

// setDeadline moves a node's deadline, unless epoch is of a session older than the one
// that set it.
func (d *deadlines) setDeadline(node fleet.NodeID, epoch fleet.Epoch, at time.Time) {
	e, ok := d.byNode[node]
	if !ok {
		e = &deadline{node: node, epoch: epoch, at: at}
		d.byNode[node] = e
		heap.Push(&d.queue, e)
		return
	}
	if epoch < e.epoch {
		return
	}
	e.epoch, e.at = epoch, at
	heap.Fix(&d.queue, e.place)
}

// sessionEpoch returns the session that a node's deadline belongs to, 0 for none.
func (d *deadlines) sessionEpoch(node fleet.NodeID) fleet.Epoch {
	if e, ok := d.byNode[node]; ok {
		return e.epoch
	}
	return 0
}

func (d *deadlines) removeNode(node fleet.NodeID) {
	if e, ok := d.byNode[node]; ok {
		heap.Remove(&d.queue, e.place)
		delete(d.byNode, node)
	}
}

// earliestDeadline returns the earliest deadline.
func (d *deadlines) earliestDeadline() (time.Time, bool) {
	if len(d.queue) == 0 {
		return time.Time{}, false
	}
	return d.queue[0].at, true
}

// popExpired removes and returns up to limit deadlines that are over at now.
func (d *deadlines) popExpired(now time.Time, limit int) []deadline {
	var out []deadline
	for len(d.queue) > 0 && len(out) < limit && !d.queue[0].at.After(now) {
		e := heap.Pop(&d.queue).(*deadline)
		delete(d.byNode, e.node)
		out = append(out, *e)
	}
	return out
}

type deadlineQueue []*deadline

func (q deadlineQueue) Len() int           { return len(q) }
func (q deadlineQueue) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q deadlineQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

func (q *deadlineQueue) Push(x any) {
	e := x.(*deadline)
	e.place = len(*q)
	*q = append(*q, e)
}

func (q *deadlineQueue) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return e
}
