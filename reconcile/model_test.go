package reconcile_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"skerry/fleet"
	"skerry/reconcile"
)

// TestAgainstModel compares decisions with a model that only counts, for groups whose nodes are
// all ready.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &script{cluster: newSimCluster(), versions: map[uint64]*fleet.Job{}}
		l := &modelTest{t: t, s: s}
		count := rapid.IntRange(0, 8).Draw(t, "count")
		l.mustRunCommand("job", fmt.Sprintf("count=%d reschedule=unlimited/0s/0s", count))
		l.mustRunCommand("node", "n0 ready")
		statuses := rapid.SliceOfN(rapid.SampledFrom([]string{"none", "running", "pending", "failed", "complete", "stopped"}), 0, 12).Draw(t, "statuses")
		live, dead := 0, 0
		for i, status := range statuses {
			switch status {
			case "none":
				continue
			case "stopped":
				l.mustRunCommand("alloc", fmt.Sprintf("a%02d %d n0 running desired=stop", i, i))
				continue
			case "running", "pending":
				live++
			default:
				dead++
			}
			l.mustRunCommand("alloc", fmt.Sprintf("a%02d %d n0 %s", i, i, status))
		}
		out := reconcile.Decide(s.cluster.decisionInput("e"))

		// The model keeps as many live allocations as are wanted, and places the missing
		// ones. It retires each dead one that was not stopped before, or stops it where it
		// failed and is replaced.
		kept := min(live, count)
		wantPlace, wantGone := count-kept, dead+live-kept
		if gone := len(out.Stops) + len(out.Retired); len(out.Place) != wantPlace || gone != wantGone {
			t.Fatalf("count %d of %v: %d placed, %d stopped or retired; want %d and %d\n%s",
				count, statuses, len(out.Place), gone, wantPlace, wantGone, out.Describe())
		}
		names, replaced := map[string]bool{}, map[*fleet.Alloc]bool{}
		for _, p := range out.Place {
			if names[p.Name] {
				t.Fatalf("%s is placed twice", p.Name)
			}
			names[p.Name], replaced[p.Previous] = true, true
		}
		for _, c := range out.Retired {
			if !c.Alloc.EndedOnEdge() || c.DesiredStatus != "" {
				t.Fatalf("%s is %s, and is retired:\n%s", c.Alloc.ID, c.Alloc.ClientStatus, out.Describe())
			}
		}
		for _, c := range out.Stops {
			if c.Alloc.EndedOnEdge() && !(c.Alloc.ClientStatus == fleet.ClientFailed && replaced[c.Alloc]) {
				t.Fatalf("%s had ended, %s, and is stopped:\n%s", c.Alloc.ID, c.Alloc.ClientStatus, out.Describe())
			}
		}
	})
}

// checkEnds checks that an allocation that ended by itself is stopped only if it failed and its
// group may replace it on another node, and that no other allocation is retired.
func (l *modelTest) checkEnds(out reconcile.Output) {
	for _, c := range out.Stops {
		if a := c.Alloc; a.ClientTerminal() && a.EndedOnEdge() && (a.ClientStatus != fleet.ClientFailed || l.s.cluster.isSystemJob()) {
			l.t.Fatalf("%s had ended, %s, and is stopped: %s", a.ID, a.ClientStatus, c.Reason)
		}
	}
	for _, c := range out.Retired {
		if !c.Alloc.EndedOnEdge() {
			l.t.Fatalf("%s is %s, and is retired: %s", c.Alloc.ID, c.Alloc.ReportedStatus, c.Reason)
		}
	}
}
