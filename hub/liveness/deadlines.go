package liveness

import (
	"container/heap"
	"time"

	"skerry/fleet"
)

// deadlines holds the heartbeat deadlines of nodes, ordered by time. It is not safe for concurrent use.
type deadlines struct {
	byNode map[fleet.NodeID]*deadline
	queue  deadlineQueue
}

// deadline is the time at which a node counts as gone, if its session of that epoch has no heartbeat
// before.
type deadline struct {
	node  fleet.NodeID
	epoch fleet.Epoch
	at    time.Time
	place int // index in the queue
}

func newDeadlines() *deadlines {
	return &deadlines{byNode: make(map[fleet.NodeID]*deadline)}
}

// setDeadline sets or moves a node's deadline. It does nothing if the deadline belongs to a session
// with a higher epoch.
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

// sessionEpoch returns the epoch of the session that the node's deadline belongs to; 0: the node has no
// deadline.
func (d *deadlines) sessionEpoch(node fleet.NodeID) fleet.Epoch {
	if e, ok := d.byNode[node]; ok {
		return e.epoch
	}
	return 0
}

// removeNode removes the node's deadline, if it has one.
func (d *deadlines) removeNode(node fleet.NodeID) {
	if e, ok := d.byNode[node]; ok {
		heap.Remove(&d.queue, e.place)
		delete(d.byNode, node)
	}
}

// earliestDeadline returns the earliest deadline; ok is false if there is none.
func (d *deadlines) earliestDeadline() (at time.Time, ok bool) {
	if len(d.queue) == 0 {
		return time.Time{}, false
	}
	return d.queue[0].at, true
}

// popExpired removes and returns up to limit deadlines that are not after now.
func (d *deadlines) popExpired(now time.Time, limit int) []deadline {
	var out []deadline
	for len(d.queue) > 0 && len(out) < limit && !d.queue[0].at.After(now) {
		e := heap.Pop(&d.queue).(*deadline)
		delete(d.byNode, e.node)
		out = append(out, *e)
	}
	return out
}

// deadlineQueue is a heap of deadlines, the earliest first.
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
