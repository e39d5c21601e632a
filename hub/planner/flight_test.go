package planner

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
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

// TestResultsOfEntriesAddUp adds results in both orders: what may be committed later counts for more than an entry that is
// too large, and the newest refusal counts, also one without an index.
func TestResultsOfEntriesAddUp(t *testing.T) {
	unknown, tooLarge := errors.New("leadership lost"), fmt.Errorf("encode: %w", state.ErrTooLarge)
	refusal := func(index fleet.Index) state.Result {
		return state.Result{Index: index, Err: fleet.Errorf(fleet.CodeConflict, "changed in %d", index)}
	}
	for name, tt := range map[string]struct{ x, y, want commitResult }{
		"committed":          {commitResult{index: 7}, commitResult{index: 5}, commitResult{index: 7}},
		"refused twice":      {commitResult{refusal: refusal(8)}, commitResult{refusal: refusal(9)}, commitResult{refusal: refusal(9)}},
		"without an index":   {commitResult{refusal: refusal(0)}, commitResult{index: 5}, commitResult{index: 5, refusal: refusal(0)}},
		"too large, doubted": {commitResult{err: tooLarge}, commitResult{err: unknown}, commitResult{err: unknown}},
		"refused, doubted":   {commitResult{refusal: refusal(8)}, commitResult{err: unknown}, commitResult{refusal: refusal(8), err: unknown}},
	} {
		for _, order := range [][2]commitResult{{tt.x, tt.y}, {tt.y, tt.x}} {
			all := order[0]
			all.addResult(order[1])
			if all.index != tt.want.index || all.err != tt.want.err || all.refusal.Index != tt.want.refusal.Index || (all.refusal.Err == nil) != (tt.want.refusal.Err == nil) {
				t.Errorf("%s: %+v, want %+v", name, all, tt.want)
			}
			if all.isComplete() != (name == "committed") || all.isDoubtful() != (tt.want.err == unknown) {
				t.Errorf("%s: complete %v, doubtful %v", name, all.isComplete(), all.isDoubtful())
			}
		}
	}
}
