package planner

import (
	"container/heap"
	"context"

	"skerry/fleet"
)

// submission is a plan in the queue. ctx is the submitter's: its end removes a plan that waits, but does
// not stop a commit that has begun.
type submission struct {
	plan fleet.Plan
	ctx  context.Context
	seq  uint64       // order of arrival
	done chan outcome // receives the answer; capacity 1
}

// outcome is the answer to a submission.
type outcome struct {
	result fleet.PlanResult
	err    error
}

// planQueue is a heap of submissions: the highest priority first, then the first to arrive.
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
