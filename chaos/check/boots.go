package check

import (
	"time"

	"skerry/fleet"
)

// boots sees that what ran on a machine when it went down runs again soon after its
// agent is back, link or not.
type boots struct{ due []back }

// back is a task that shall be back.
type back struct {
	m     *machine
	key   TaskKey
	since time.Duration // when its agent started
}

func newBoots() *boots { return &boots{} }

func (t *boots) see(s *scene, o *Observation) {
	switch {
	case o.Process != nil && o.Process.Edge && o.Process.What == ProcessStart:
		m := s.truth.of(o.Process.Name)
		for key, truth := range m.tasks {
			if truth.live == 0 && truth.what == TaskVanished {
				t.due = append(t.due, back{m, key, s.now})
			}
		}
	case o.Process != nil && o.Process.Edge:
		t.drop(o.Process.Name)
	case o.Task != nil && o.Task.What == TaskStarted:
		t.started(s, o.Task)
	}
}

// drop forgets what an agent owes that has ended: the next one owes it.
func (t *boots) drop(name string) {
	left := t.due[:0]
	for _, b := range t.due {
		if b.m.name != name {
			left = append(left, b)
		}
	}
	t.due = left
}

func (t *boots) started(s *scene, e *Task) {
	for i, b := range t.due {
		if b.m.name == e.Edge && b.key == (TaskKey{e.Alloc, e.Task}) {
			s.judge(RebootBringsBack)
			if s.weather.during(e.Edge, Severs) {
				s.reach(BranchBootedAway)
			}
			t.due = append(t.due[:i], t.due[i+1:]...)
			return
		}
	}
}

func (t *boots) tick(s *scene) {
	left := t.due[:0]
	for _, b := range t.due {
		if s.now-b.since <= s.limits.Start+s.limits.Slack+startDelay(s.fleet.allocs[b.key.Alloc], b.key.Task) {
			left = append(left, b)
			continue
		}
		truth := b.m.tasks[b.key]
		if truth == nil || truth.live > 0 || truth.what != TaskVanished {
			continue
		}
		truth.what = "" // judged once
		s.judge(RebootBringsBack)
		if t.excused(s, b, truth.since) {
			continue
		}
		s.broke(RebootBringsBack, b.m.name, "task %s ran when the machine went down at %s, and does not run %s after its agent's start",
			b.key, truth.since, s.now-b.since)
	}
	t.due = left
}

// startDelay is how long a simulated task takes to start, as its script says.
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

// excused reports whether a task that ran when its machine went down need not run again. An
// edge that began to stop it for want of a hub goes on, also where a hub has answered since.
func (t *boots) excused(s *scene, b back, down time.Duration) bool {
	f := s.fleet.allocs[b.key.Alloc]
	if f == nil || f.stopped > 0 && f.stopped <= b.m.heard(s) || f.alloc.ClientStatus == fleet.ClientFailed {
		return true
	}
	stopping := s.now - down + f.killTimeout(b.key.Task) + s.limits.Slack // since it may have begun
	if after, limited := f.stopAfter(); limited && b.m.aloneAtMost(s.now, stopping) >= after-s.limits.Start-2*s.limits.Slack {
		return true
	}
	return s.cloned(b.m.name) || b.m.forgetful(b.since-s.limits.Heal) ||
		s.weather.since(s.now, b.since, b.m.name, Chokes, EndsTasks) || s.weather.during(b.m.name, Halts) ||
		s.weather.beganAfter(b.since, b.m.name, Halts)
}

func (t *boots) end(*scene, *Picture) {}
