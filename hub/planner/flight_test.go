package planner

import (
	"fmt"
	"testing"
	"time"

	"skerry/fleet"
)

// commitOf returns a plan of a job that places one allocation on node n1, committed in entry index.
func commitOf(job string, index fleet.Index) *verifiedPlan {
	v := &verifiedPlan{job: jobKey{fleet.DefaultNamespace, fleet.JobID(job)}}
	v.result.AllocIndex = index
	v.result.NodeAllocation = map[fleet.NodeID][]fleet.Alloc{"n1": {{ID: fleet.AllocID("alloc-of-" + job)}}}
	return v
}

// TestLastCommitsAreRemembered commits plans of more jobs than are remembered without end: a commit is forgotten
// only when it is old, and never while it is in progress. The resources of a plan count until its commit ends.
func TestLastCommitsAreRemembered(t *testing.T) {
	f, now := &inFlight{}, time.Unix(1e9, 0)
	slow := commitOf("slow", 7)
	f.addPlan(slow)
	commitMany := func(prefix string) {
		for i := range fleet.Index(maxLastCommits) {
			v := commitOf(fmt.Sprint(prefix, i), 100+i)
			f.addPlan(v)
			f.removePlan(v, now)
		}
	}
	first := commitOf("first0", 0).job
	commitMany("first")
	if got := f.lastCommitOf(first); got.index != 100 || got.underway != 0 {
		t.Errorf("the commit of a moment ago is remembered as %+v, want entry 100", got)
	}
	if n := len(f.usageOnNodes([]fleet.NodeID{"n1"})["n1"]); n != 1 {
		t.Errorf("%d allocations are in flight, want the one of the commit in progress", n)
	}
	now = now.Add(lastCommitTTL + time.Second)
	commitMany("second")
	if got := f.lastCommitOf(first); got != (lastCommit{}) {
		t.Errorf("the commit of %s ago is remembered as %+v, want it forgotten", lastCommitTTL, got)
	}
	if got := f.lastCommitOf(slow.job); got.underway != 1 {
		t.Errorf("the commit in progress is remembered as %+v, want 1 underway", got)
	}
	f.removePlan(slow, now)
	if got := f.usageOnNodes([]fleet.NodeID{"n1"}); len(got) != 0 || len(f.usageByNode) != 0 {
		t.Errorf("no commit is in progress, and %d nodes have allocations in flight", len(f.usageByNode))
	}
}
