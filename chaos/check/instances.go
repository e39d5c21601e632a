package check

import (
	"slices"
	"time"

	"skerry/fleet"
)

// instances counts real processes: at most one for a task, and for a job at most as many allocations as it allows once
// faults have been over for Limits.Heal.
type instances struct {
	over map[fleet.JobID]time.Duration // since when more run than are allowed
	told map[fleet.JobID]bool
}

// newInstances returns the checker of the number of running processes and allocations.
func newInstances() checker {
	t := &instances{over: map[fleet.JobID]time.Duration{}, told: map[fleet.JobID]bool{}}
	return checker{state: t, task: t.judgeTaskInstances, tick: t.judgeJobInstances}
}

// judgeTaskInstances reports a task that starts while a process of it runs.
func (t *instances) judgeTaskInstances(s *runContext, e *Task) {
	s.countJudgement(Instances)
	key := TaskKey{e.Alloc, e.Task}
	if truth := s.machines.ensureMachine(e.Edge).tasks[key]; e.What == TaskStarted && truth.live > 1 {
		s.reportViolation(Instances, e.Edge, "task %s was started while it runs: it has %d processes", key, truth.live)
	}
}

// judgeJobInstances reports jobs of which more allocations really run than are allowed, for longer than
// Limits.Heal without faults. Each job is reported once until it is back within its count.
func (t *instances) judgeJobInstances(s *runContext) {
	running := t.runningAllocsByJob(s)
	for id, f := range s.registry.jobs {
		allowed, counted := f.allowedAllocCount()
		if !counted || f.unsure {
			continue
		}
		s.countJudgement(Instances)
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
			s.reportWithEvidence(Settled, string(id), running[id], "%d allocations run of a job that was stopped at %s", len(running[id]), f.changed)
			continue
		}
		s.reportWithEvidence(Instances, string(id), running[id], "%d allocations really run since %s, %d are allowed", len(running[id]), t.over[id], allowed)
	}
}

// runningAllocsByJob describes, for each job, the known allocations with at least one task that really runs.
func (t *instances) runningAllocsByJob(s *runContext) map[fleet.JobID][]string {
	running := map[fleet.JobID][]string{}
	seen := map[fleet.AllocID]bool{}
	for _, m := range s.machines.by {
		for key, truth := range m.tasks {
			f := s.registry.allocs[key.Alloc]
			if truth.live == 0 || f == nil || seen[key.Alloc] {
				continue
			}
			if f.stale { // hubs that were restored from an older copy may not know it
				continue
			}
			seen[key.Alloc] = true
			running[f.alloc.JobID] = append(running[f.alloc.JobID], f.alloc.Name+" "+fleet.Short(key.Alloc)+" on "+m.name)
		}
	}
	return running
}

// allowedAllocCount returns how many allocations of a job may run, canaries included; 0 for a stopped one.
// counted is false for jobs that run on every node.
func (f *jobFact) allowedAllocCount() (n int, counted bool) {
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
