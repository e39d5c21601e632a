package check

import (
	"time"

	"skerry/fleet"
	"skerry/fleet/cron"
)

// windows checks that an edge stops tasks for a newer version only while an update window is open, with or
// without a link.
type windows struct{}

// newWindows returns the checker of update windows. It has no memory.
func newWindows() checker { return checker{task: windows{}.judgeWindowStop} }

// judgeWindowStop reports a stop of a task whose allocation has update windows, if none was open from the earliest
// time at which the stop can have begun until its end. It skips stops with another possible reason.
func (t windows) judgeWindowStop(s *runContext, task *Task) {
	if task.What != TaskStopped || task.Wall.IsZero() || s.faults.isRewindActive() {
		return
	}
	f := s.registry.allocs[task.Alloc]
	if f == nil || f.stale || !f.alloc.ServerTerminal() || len(f.alloc.StopWindows) == 0 {
		return
	}
	m := s.machines.ensureMachine(task.Edge)
	took := f.killTimeout(task.Task) + s.limits.Slack
	if s.faults.hasFaultSince(s.now, s.now-took, m.name, Chokes) { // a slow disk delays the journaling before the stop
		took += s.limits.Runner
	}
	asked := s.hasRequest(func(r asked) bool { return r.Edge == task.Edge && s.now-r.at <= keptRequests })
	if _, limited := f.stopAfter(); limited || asked || s.isClonedMachine(m.name) || m.hasDamageSince(s.now-s.limits.Heal) ||
		s.faults.hasFaultSince(s.now, s.now-took, m.name, EndsTasks) {
		return
	}
	s.countJudgement(Windows)
	open, next := windowAt(f.alloc.StopWindows, task.Wall.Add(-took))
	if !open && (next.IsZero() || next.After(task.Wall)) {
		s.reportViolation(Windows, task.Edge, "task %s was stopped at %s for a newer version: no window was open since %s, the next one opens at %s",
			task.Task, task.Wall.UTC().Format(time.TimeOnly), took, next.UTC().Format(time.TimeOnly))
	}
	if m.connected < 0 {
		s.countBranch(BranchWindowAway)
	}
}

// windowAt reports whether one of the windows is open at a time, and otherwise when the next one opens. A window that
// cannot be parsed counts as open.
func windowAt(of []fleet.UpdateWindow, at time.Time) (open bool, next time.Time) {
	w, err := cron.WindowStateAt(of, "", at)
	if err != nil { // hubs have accepted it
		return true, time.Time{}
	}
	return w.Open, w.Next
}
