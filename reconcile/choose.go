package reconcile

import (
	"fmt"
	"time"

	"skerry/fleet"
)

// chooseCurrent returns the allocation that stays, and why; "" if there was no choice. members are in the
// order of their creation, so that the original comes first. It sets the reason of each other one.
func (d *decision) chooseCurrent(members []*member) (winner *member, why string) {
	for _, m := range members {
		if winner == nil {
			winner = m
			continue
		}
		original, reason := d.isOriginalPreferred(winner, m)
		which, loser := "original", m
		if !original {
			which, loser, winner = "replacement", winner, m
		}
		why = fmt.Sprintf("the %s %s is kept: %s", which, fleet.Short(winner.a.ID), reason)
		loser.reason = why
	}
	return winner, why
}

// isOriginalPreferred reports whether the original stays rather than its replacement, and why.
func (d *decision) isOriginalPreferred(orig, repl *member) (original bool, why string) {
	if newer := d.newerNotYetRunning(orig, repl); newer != nil {
		newer.newerNotRunning = true
		return newer == repl, "the other has a newer version of the job, but does not run"
	}
	rules := []struct {
		bad  func(*member) bool
		why  string
		both string
	}{
		{func(m *member) bool { return d.needsDestructiveUpdate(m.a) }, "the other has an older version of the job", ""},
		{func(m *member) bool { return m.kind == kindFailed }, "the other failed", "both failed"},
		{func(m *member) bool { return m.kind == kindCompleted }, "the other has ended", "both have ended"},
	}
	for _, r := range rules {
		switch o, p := r.bad(orig), r.bad(repl); {
		case o != p:
			return p, r.why
		case o && r.both != "":
			return true, r.both
		}
	}
	if o, p := orig.kind == kindSucceeded, repl.kind == kindSucceeded; o != p {
		return o, "it has completed"
	}
	if o, p := orig.statusOnEdge() == fleet.ClientRunning, repl.statusOnEdge() == fleet.ClientRunning; o != p {
		return o, "the other is not running"
	}
	switch strategy := orig.rules.Reconcile; strategy {
	case fleet.ReconcileKeepReplacement:
		return false, "reconcile = " + strategy
	case fleet.ReconcileLongestRunning:
		o, p := runningFor(orig.a, d.in.Now), runningFor(repl.a, d.in.Now)
		return o >= p, fmt.Sprintf("reconcile = %s, %s against %s", strategy, o.Round(time.Second), p.Round(time.Second))
	case fleet.ReconcileBestScore:
		return orig.a.Score >= repl.a.Score,
			fmt.Sprintf("reconcile = %s, %.3g against %.3g", strategy, orig.a.Score, repl.a.Score)
	}
	return true, "reconcile = " + fleet.ReconcileKeepOriginal
}

// newerNotYetRunning returns the one of two allocations that has the newest version but does not run, if
// the other runs and the group is rolled out; else nil. Such an allocation must wait for an update turn
// like any other.
func (d *decision) newerNotYetRunning(orig, repl *member) *member {
	g := d.in.Job.Group(orig.a.TaskGroup)
	older, newer := orig, repl
	if !d.needsDestructiveUpdate(older.a) {
		older, newer = repl, orig
	}
	if g == nil || !isRolledOut(d.in.Job, g) || !d.needsDestructiveUpdate(older.a) || d.needsDestructiveUpdate(newer.a) ||
		older.statusOnEdge() != fleet.ClientRunning || newer.statusOnEdge() == fleet.ClientRunning {
		return nil
	}
	return newer
}

// runningFor returns how long an allocation has been running: its leader task, or if there is none the
// task that runs longest. Times without contact count.
func runningFor(a *fleet.Alloc, now time.Time) time.Duration {
	var d time.Duration
	leader := ""
	if g := a.Group(); g != nil {
		for _, t := range g.Tasks {
			if t.Leader {
				leader = t.Name
			}
		}
	}
	for name, s := range a.TaskStates {
		if s.State == fleet.TaskRunning && (leader == "" || name == leader) {
			d = max(d, time.Duration(now.UnixNano()-s.RunningSince))
		}
	}
	return d
}
