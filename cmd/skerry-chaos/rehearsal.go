package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"skerry/chaos/schedule"
	"skerry/chaos/virtual"
	"skerry/drivers/sim"
	"skerry/fleet"
)

// errUnplaced is the error of a rehearsal in which no allocation was ever placed: it would have no
// answer.
var errUnplaced = errors.New("nothing was placed")

// rehearsal configures a run of a user's jobs on a user's fleet in virtual time. Placement,
// disconnect rules, restarts and reschedules are those of production; tasks are simulated.
type rehearsal struct {
	Name   string // names of the jobs, for messages
	Repeat string // the command that repeats it
	Dir    string // directory of its temporary files; "": the system's default
	Jobs   []*fleet.Job
	// Updates are newer versions of Jobs with the times of their registration.
	Updates []jobUpdate
	Fleet   rehearsedFleet
	// Faults are the faults to play. A cut without a duration lasts to the end of the rehearsal.
	Faults []schedule.Fault
	Length time.Duration // 0: computed from the faults and the jobs' rules
	Seed   uint64
	// TaskRun is the run time of batch jobs' tasks; tasks of services run until they are
	// stopped. 0: defaultTaskRun.
	TaskRun time.Duration
	// MinTTL and Grace of heartbeats, BackoffCap of edges; 0: the production defaults.
	MinTTL, Grace, BackoffCap time.Duration
}

// jobUpdate is a newer version of a job, registered at a time of the rehearsal.
type jobUpdate struct {
	Job *fleet.Job
	At  time.Duration
}

// defaultTaskRun is the default run time of batch jobs' tasks.
const defaultTaskRun = 10 * time.Minute

// rehearsalSettle is the time after the last fault in which edges reconnect and replacements start.
const rehearsalSettle = 10 * time.Minute

// rehearsalCertValidity is the validity of edges' certificates: long, so that none expires that would
// not expire in production.
const rehearsalCertValidity = 365 * 24 * time.Hour

// buildSchedule returns the schedule of the rehearsal, or an error with all its mistakes.
func (c rehearsal) buildSchedule() (schedule.Schedule, error) {
	s := schedule.Schedule{
		Seed: c.Seed, Length: c.Length, Settle: schedule.DefaultSettle, Topology: c.Fleet.Topology,
		Faults: slices.Clone(c.Faults),
	}
	if s.Length == 0 {
		s.Length = c.rehearsalLength()
	}
	for i := range s.Faults {
		if f := &s.Faults[i]; isEndlessCut(*f) {
			f.For = s.Length - f.At
		}
	}
	slices.SortStableFunc(s.Faults, func(a, b schedule.Fault) int { return cmp.Compare(a.At, b.At) })
	for _, job := range c.Jobs {
		text, err := c.encodeSimulatedJob(job)
		if err != nil {
			return s, err
		}
		s.Jobs = append(s.Jobs, schedule.Job{ID: job.ID, HCL: text})
	}
	for _, u := range c.Updates {
		i := slices.IndexFunc(s.Jobs, func(j schedule.Job) bool { return j.ID == u.Job.ID })
		if i < 0 || s.Jobs[i].Next != "" {
			return s, fmt.Errorf("rehearse an update of job %s: name its present file with --job, and each job's update once", u.Job.ID)
		}
		text, err := c.encodeSimulatedJob(u.Job)
		if err != nil {
			return s, err
		}
		s.Jobs[i].Next = text
		s.Steps = append(s.Steps, schedule.Step{At: u.At, Verb: schedule.Update, Job: u.Job.ID})
	}
	slices.SortStableFunc(s.Steps, func(a, b schedule.Step) int { return cmp.Compare(a.At, b.At) })
	if problems := s.Validate(); len(problems) > 0 {
		return s, fmt.Errorf("rehearse %s: %w", c.Name, problems.Err())
	}
	return s, nil
}

// isEndlessCut reports whether the fault is a cut without a duration, which lasts to the end.
func isEndlessCut(f schedule.Fault) bool { return f.Kind == schedule.LinkCut && f.For == 0 }

// rehearsalLength returns the default length: until the faults are over, rollouts and batch tasks have
// ended, and the jobs' disconnect rules have taken effect.
func (c rehearsal) rehearsalLength() time.Duration {
	var end time.Duration
	for _, f := range c.Faults {
		over := f.At + f.For
		if isEndlessCut(f) {
			over += c.longestAbsenceWait()
		}
		end = max(end, over)
	}
	for _, u := range c.Updates {
		end = max(end, u.At+c.rolloutTime(u.Job))
	}
	for _, job := range c.Jobs {
		if endsByItself(job) {
			end = max(end, cmp.Or(c.TaskRun, defaultTaskRun))
		}
	}
	return end + rehearsalSettle
}

// rolloutTime estimates the time of a job's rollout without faults: its batches one after the other,
// each with its time until it is healthy.
func (c rehearsal) rolloutTime(job *fleet.Job) time.Duration {
	var sum time.Duration
	for _, g := range job.TaskGroups {
		if g.Update == nil {
			continue
		}
		count := g.Count
		if job.Type == fleet.JobTypeSystem {
			count = len(c.Fleet.Edges)
		}
		turns := count/max(g.Update.MaxParallel, 1) + 1
		sum += time.Duration(turns) * (g.Update.MinHealthyTime + time.Minute)
	}
	return sum
}

// longestAbsenceWait returns the longest lost_after or stop_on_client_after of the jobs.
func (c rehearsal) longestAbsenceWait() time.Duration {
	var longest time.Duration
	for _, job := range c.allJobs() {
		for _, g := range job.TaskGroups {
			if g.Disconnect == nil {
				continue
			}
			for _, d := range []*time.Duration{g.Disconnect.LostAfter, g.Disconnect.StopOnClientAfter} {
				if d != nil {
					longest = max(longest, *d)
				}
			}
		}
	}
	return longest
}

// encodeSimulatedJob returns the job with simulated tasks as a job file in JSON.
func (c rehearsal) encodeSimulatedJob(job *fleet.Job) (string, error) {
	text, err := json.Marshal(map[string]any{"Job": c.simulatedJob(job)})
	if err != nil {
		return "", fmt.Errorf("encode job %s: %w", job.ID, err)
	}
	return string(text), nil
}

// simulatedJob returns a copy of the job whose tasks use the driver sim. Its rules of placement,
// disconnection, restart and reschedule are unchanged.
func (c rehearsal) simulatedJob(job *fleet.Job) *fleet.Job {
	out := *job
	out.TaskGroups = slices.Clone(job.TaskGroups)
	for i := range out.TaskGroups {
		g := &out.TaskGroups[i]
		g.Tasks = slices.Clone(g.Tasks)
		for k := range g.Tasks {
			task := &g.Tasks[k]
			task.Config = c.simulatedTaskConfig(job, task)
			task.Driver = sim.Name
		}
	}
	return &out
}

// simulatedTaskConfig returns the configuration of the driver sim for a task. A task that uses this
// driver already keeps its own. nil: the task runs until it is stopped.
func (c rehearsal) simulatedTaskConfig(job *fleet.Job, task *fleet.Task) map[string]any {
	switch {
	case task.Driver == sim.Name:
		return task.Config
	case endsByItself(job):
		return map[string]any{"run_for": cmp.Or(c.TaskRun, defaultTaskRun).String()}
	}
	return nil
}

// endsByItself reports whether tasks of the job end without being stopped.
func endsByItself(job *fleet.Job) bool {
	return job.Type == fleet.JobTypeBatch || job.Type == fleet.JobTypeSysBatch
}

// allJobs returns the jobs and all their updates.
func (c rehearsal) allJobs() []*fleet.Job {
	all := slices.Clone(c.Jobs)
	for _, u := range c.Updates {
		all = append(all, u.Job)
	}
	return all
}

// neededDrivers returns the drivers of the jobs' tasks, sorted, each once.
func (c rehearsal) neededDrivers() []string {
	var names []string
	for _, job := range c.allJobs() {
		for _, g := range job.TaskGroups {
			for _, task := range g.Tasks {
				if !slices.Contains(names, task.Driver) {
					names = append(names, task.Driver)
				}
			}
		}
	}
	slices.Sort(names)
	return names
}

// simulatedFleet returns the settings of the simulated cluster. Every edge has the attributes of every
// driver in the jobs, since constraints check them.
func (c rehearsal) simulatedFleet() virtual.Fleet {
	f := virtual.Fleet{
		Meta: c.Fleet.Meta, Attributes: map[string]map[string]string{}, CertValidity: rehearsalCertValidity,
		MinTTL: c.MinTTL, Grace: c.Grace, BackoffCap: c.BackoffCap,
	}
	for _, e := range c.Fleet.Topology.Edges {
		attributes := map[string]string{"cpu.arch": runtime.GOARCH, "kernel.arch": runtime.GOARCH, "os.name": "linux"}
		for _, d := range c.neededDrivers() {
			attributes["driver."+d] = "1"
		}
		for k, v := range c.Fleet.Attributes[e.Name] {
			attributes[k] = v
		}
		f.Attributes[e.Name] = attributes
	}
	return f
}
