package check

import (
	"slices"
	"time"

	"skerry/fleet"
)

// instances counts what really runs: of a task at most one, and of a job, when the
// weather has been fair for long enough, at most as many as it allows.
type instances struct {
	over map[fleet.JobID]time.Duration // since when more run than are allowed
	told map[fleet.JobID]bool
}

func newInstances() *instances {
	return &instances{over: map[fleet.JobID]time.Duration{}, told: map[fleet.JobID]bool{}}
}

func (t *instances) see(s *scene, o *Observation) {
	if o.Task == nil {
		return
	}
	s.judge(Instances)
	truth := s.truth.of(o.Task.Edge).tasks[TaskKey{o.Task.Alloc, o.Task.Task}]
	if o.Task.What == TaskStarted && truth.live > 1 {
		s.broke(Instances, o.Task.Edge, "task %s was started while it runs: it has %d processes",
			TaskKey{o.Task.Alloc, o.Task.Task}, truth.live)
	}
}

func (t *instances) tick(s *scene) {
	running := t.running(s)
	for id, f := range s.fleet.jobs {
		allowed, counted := f.allowed()
		if !counted || f.unsure {
			continue
		}
		s.judge(Instances)
		if len(running[id]) <= allowed {
			delete(t.over, id)
			delete(t.told, id)
			continue
		}
		if _, ok := t.over[id]; !ok {
			t.over[id] = s.now
		}
		if t.told[id] || !s.overdueEverywhere(max(t.over[id], f.changed), s.limits.Heal) {
			continue
		}
		t.told[id] = true
		slices.Sort(running[id])
		if f.job.Stop {
			s.shown(Settled, string(id), running[id], "%d allocations run of a job that was stopped at %s", len(running[id]), f.changed)
			continue
		}
		s.shown(Instances, string(id), running[id], "%d allocations really run since %s, %d are allowed", len(running[id]), t.over[id], allowed)
	}
}

// running lists the allocations of each job of which a task really runs.
func (t *instances) running(s *scene) map[fleet.JobID][]string {
	running := map[fleet.JobID][]string{}
	seen := map[fleet.AllocID]bool{}
	for _, m := range s.truth.by {
		for key, truth := range m.tasks {
			f := s.fleet.allocs[key.Alloc]
			if truth.live == 0 || f == nil || seen[key.Alloc] {
				continue
			}
			if f.stale { // hubs that were put back do not know it: it runs on, and is shown
				continue
			}
			seen[key.Alloc] = true
			running[f.alloc.JobID] = append(running[f.alloc.JobID], f.alloc.Name+" "+fleet.Short(key.Alloc)+" on "+m.name)
		}
	}
	return running
}

// allowed is how many allocations of a job may run, with canaries beside; counted is false for jobs that
// run on every node.
func (f *jobFact) allowed() (n int, counted bool) {
	switch {
	case f.job.Stop:
		return 0, true
	case fleet.RunsEverywhere(f.job.Type):
		return 0, false
	}
	for _, g := range f.job.TaskGroups {
		n += g.Count
		if g.Update.Rolling() {
			n += g.Update.Canary
		}
	}
	return n, true
}

func (t *instances) end(*scene, *Picture) {}
