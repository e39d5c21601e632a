package planner

import (
	"container/heap"
	"context"

	"skerry/fleet"
)

// submission is a plan that waits for its turn. Its context ends its wait, not a
// commit that has begun: that is why it is kept here.
type submission struct {
	plan fleet.Plan
	ctx  context.Context
	seq  uint64
	done chan outcome // room for one
}

type outcome struct {
	result fleet.PlanResult
	err    error
}

// planQueue is a heap: higher priority first, then first come.
type planQueue []*submission

func (q *planQueue) push(s *submission) { heap.Push(q, s) }
func (q *planQueue) pop() *submission   { return heap.Pop(q).(*submission) }

func (q planQueue) Len() int { return len(q) }

func (q planQueue) Less(i, j int) bool {
	if a, b := q[i].plan.Priority, q[j].plan.Priority; a != b {
		return a > b
	}
	return q[i].seq < q[j].seq
}

func (q planQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

func (q *planQueue) Push(x any) { *q = append(*q, x.(*submission)) }

func (q *planQueue) Pop() any {
	old := *q
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return last
}
