package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/history"
	"skerry/fleet"
)

// copyRecordsUntil copies a history without the records after the rehearsal's end, where only
// leftover faults are healed, but with the verdicts. unplaced describes the allocations that had found
// no node by then. The caller closes seen.
func copyRecordsUntil(from, to string, end time.Duration) (seen *history.Reader, unplaced map[string]string, err error) {
	in, err := history.Open(from)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := history.Create(to, in.Header())
	if err != nil {
		return nil, nil, err
	}
	var last check.Hub
	err = in.ForEach(func(r *history.Record) error {
		if r.At > end && r.Verdict == nil && r.Violation == nil && r.Sometimes == nil && r.End == nil {
			return nil
		}
		if r.Hub != nil && r.Hub.Index >= last.Index {
			last = *r.Hub
		}
		r.At = min(r.At, end)
		return out.Write(*r)
	})
	if err := errors.Join(err, out.Close()); err != nil {
		return nil, nil, err
	}
	seen, err = history.Open(to)
	return seen, unplacedReasons(last.Evals), err
}

// unplacedReasons describes, by JOB.GROUP, the allocations of blocked evaluations that found no node, with
// the reason.
func unplacedReasons(evals []fleet.Evaluation) map[string]string {
	out := map[string]string{}
	for _, e := range evals {
		if e.Status != fleet.EvalBlocked {
			continue
		}
		failed := e.FailedTGAllocs
		if len(failed) == 0 && len(e.AwaitsRoom) == 0 {
			failed = findEvaluation(evals, e.PreviousEval).FailedTGAllocs
		}
		for _, group := range slices.Sorted(maps.Keys(failed)) {
			n := max(e.QueuedAllocations[group]-e.AwaitsRoom[group], failed[group].CoalescedFailures+1)
			name := groupName(e.JobID, group)
			out[name] = fmt.Sprintf("%d of %s found no place: %s", n, name, placementFailure(failed[group]))
		}
	}
	return out
}

// groupName is JOB.GROUP, with which the names of the group's allocations begin.
func groupName(job fleet.JobID, group string) string { return fmt.Sprintf("%s.%s", job, group) }

// findEvaluation returns the evaluation with the id; a zero one if there is none.
func findEvaluation(evals []fleet.Evaluation, id fleet.EvalID) fleet.Evaluation {
	if i := slices.IndexFunc(evals, func(e fleet.Evaluation) bool { return e.ID == id }); i >= 0 {
		return evals[i]
	}
	return fleet.Evaluation{}
}

// placementFailure explains in words why no node was suitable.
func placementFailure(m *fleet.AllocMetric) string {
	if m.NodesEvaluated == 0 {
		return fmt.Sprintf("none of %d nodes in the pool is in the job's datacenters, ready and eligible", m.NodesInPool)
	}
	var parts []string
	for _, c := range slices.Sorted(maps.Keys(m.ConstraintFiltered)) {
		parts = append(parts, fmt.Sprintf("%s rules out %s", c, history.Plural(m.ConstraintFiltered[c], "node")))
	}
	for _, c := range slices.Sorted(maps.Keys(m.ClassFiltered)) {
		parts = append(parts, fmt.Sprintf("class %q rules out %s", c, history.Plural(m.ClassFiltered[c], "node")))
	}
	for _, d := range slices.Sorted(maps.Keys(m.DimensionExhausted)) {
		parts = append(parts, fmt.Sprintf("%s is exhausted on %s", d, history.Plural(m.DimensionExhausted[d], "node")))
	}
	return strings.Join(append(parts, history.Plural(m.NodesEvaluated, "node")+" looked at"), ", ")
}
