package check

import (
	"slices"
	"time"

	"skerry/fleet"
)

// boots checks that tasks that ran when their machine went down run again soon after its agent has started,
// with or without a link.
type boots struct{ expected []expectedRestart }

// expectedRestart is a task that a machine's reboot ended, and that the agent has to start again.
type expectedRestart struct {
	m     *machine
	key   TaskKey
	since time.Duration // when its agent started, or somebody on site started the task
}

// newBoots returns the checker of restarts after a reboot.
func newBoots() checker {
	t := &boots{}
	return checker{state: t, agent: t.recordBoot, request: t.recordSiteStart, task: t.recordRestartedTask, tick: t.judgeOverdueRestarts}
}

// recordBoot expects, when an edge's agent starts, a restart of each task that vanished with the machine. When the
// agent ends it drops them: the next start expects them again.
func (t *boots) recordBoot(s *runContext, p *Process) {
	if p.What != ProcessStart {
		t.expected = slices.DeleteFunc(t.expected, func(b expectedRestart) bool { return b.m.name == p.Name })
		return
	}
	m := s.machines.ensureMachine(p.Name)
	for key, truth := range m.tasks {
		if truth.live == 0 && truth.what == TaskVanished {
			t.expected = append(t.expected, expectedRestart{m, key, s.now})
		}
	}
}

// recordSiteStart gives a task that was stopped on site when its machine went down its whole time, from when somebody starts
// it again.
func (t *boots) recordSiteStart(s *runContext, r *Request) {
	for i, b := range t.expected {
		if r.What == AskStart && b.m.name == r.Edge && b.key.Alloc == r.Alloc {
			t.expected[i].since = s.now
		}
	}
}

// recordRestartedTask counts RebootBringsBack as judged for an expected task that starts, and expects it no
// longer.
func (t *boots) recordRestartedTask(s *runContext, e *Task) {
	if e.What != TaskStarted {
		return
	}
	for i, b := range t.expected {
		if b.m.name == e.Edge && b.key == (TaskKey{e.Alloc, e.Task}) {
			s.countJudgement(RebootBringsBack)
			if s.faults.hasFaultNow(e.Edge, Severs) {
				s.countBranch(BranchBootedAway)
			}
			t.expected = append(t.expected[:i], t.expected[i+1:]...)
			return
		}
	}
}

// judgeOverdueRestarts reports expected tasks that did not run again within their bound (Limits.Start, Slack
// and their own start delay), and are not excused. Each is judged once.
func (t *boots) judgeOverdueRestarts(s *runContext) {
	left := t.expected[:0]
	for _, b := range t.expected {
		if s.now-b.since <= s.limits.Start+s.limits.Slack+startDelay(s.registry.allocs[b.key.Alloc], b.key.Task) {
			left = append(left, b)
			continue
		}
		truth := b.m.tasks[b.key]
		if truth == nil || truth.live > 0 || truth.what != TaskVanished {
			continue
		}
		truth.what = "" // judged once
		s.countJudgement(RebootBringsBack)
		if t.isRestartExcused(s, b, truth.since) {
			continue
		}
		s.reportViolation(RebootBringsBack, b.m.name, "task %s ran when the machine went down at %s, and does not run %s after it could start",
			b.key, truth.since, s.now-b.since)
	}
	t.expected = left
}

// startDelay returns how long a simulated task takes to start, by its start_delay, or 0 for an unknown task.
func startDelay(f *allocFact, name string) time.Duration {
	if f == nil || f.group == nil || f.group.Task(name) == nil {
		return 0
	}
	said, _ := f.group.Task(name).Config["start_delay"].(string)
	d, err := time.ParseDuration(said)
	if err != nil {
		return 0
	}
	return d
}

// isRestartExcused reports whether a task that ran when its machine went down need not run again: it had to stop, its
// allocation failed, it is held on site, or a fault excuses it. A stop by stop_on_client_after continues even if a hub
// answers again.
func (t *boots) isRestartExcused(s *runContext, b expectedRestart, down time.Duration) bool {
	f := s.registry.allocs[b.key.Alloc]
	if f == nil || f.stopped > 0 && f.stopped <= b.m.latestHubContact(s) || f.alloc.ClientStatus == fleet.ClientFailed || s.holdOf(b.m.name, f) != nil {
		return true
	}
	stopping := s.now - down + f.killTimeout(b.key.Task) + s.limits.Slack // since it may have begun
	if after, limited := f.stopAfter(); limited && b.m.aloneAtMost(s.now, stopping) >= after-s.limits.Start-2*s.limits.Slack {
		return true
	}
	return s.isClonedMachine(b.m.name) || b.m.hasDamageSince(b.since-s.limits.Heal) ||
		s.faults.hasFaultSince(s.now, b.since, b.m.name, Chokes, EndsTasks) || s.faults.hasFaultNow(b.m.name, Halts) ||
		s.faults.beganAfter(b.since, b.m.name, Halts)
}
