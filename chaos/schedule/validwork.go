package schedule

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"time"

	"skerry/fleet"
	"skerry/fleet/jobspec"
)

// checkJobs adds a problem for each mistake in a job.
func (s Schedule) checkJobs(ps *Problems) {
	seen := map[fleet.JobID]bool{}
	for i, j := range s.Jobs {
		if err := checkLabel(string(j.ID)); err != nil {
			ps.add(PartJob, i, "the name of a job %s", err)
			continue
		}
		if seen[j.ID] {
			ps.add(PartJob, i, "job %s is there twice", j.ID)
			continue
		}
		seen[j.ID] = true
		if j.Start < 0 || j.Start > s.Length {
			ps.add(PartJob, i, "job %s starts at %s, which is not within the run", j.ID, formatDuration(j.Start))
		}
		switch plain := (Job{ID: j.ID, Start: j.Start, HCL: j.HCL, Next: j.Next}); {
		case j.HCL == "" && j.Next != "":
			ps.add(PartJob, i, "job %s has a next file and no job file", j.ID)
		case j.HCL == "":
			j.checkAttributes(ps, i)
		case !reflect.DeepEqual(j, plain):
			ps.add(PartJob, i, "job %s has a job file: it takes start and next, and nothing else", j.ID)
		}
		j.checkSpec(ps, i)
	}
}

// checkAttributes adds problems of the fields of job i without HCL that the validation of package
// fleet does not find.
func (j Job) checkAttributes(ps *Problems, i int) {
	if !slices.Contains([]string{fleet.JobTypeService, fleet.JobTypeBatch, fleet.JobTypeSystem}, j.Type) {
		ps.addWithHint(PartJob, i, "type: service", "a job is service, batch or system, not %q", j.Type)
	}
	j.checkRollout(ps, i)
	j.checkPayload(ps, i)
	ps.checkLabels(PartJob, i, label{"pool", j.Pool}, label{"site", j.Site}, label{"start_error", j.Task.StartError})
	for _, dc := range j.Datacenters {
		if err := checkLabel(strings.ReplaceAll(dc, "*", "x")); err != nil {
			ps.add(PartJob, i, "datacenter %q %s", dc, err)
		}
	}
	if j.Datacenters != nil && len(j.Datacenters) == 0 {
		ps.add(PartJob, i, "an empty list of datacenters: leave it out for all")
	}
	if min(j.Count, j.CPU, j.MemoryMB, j.Ports, j.Cores, j.Devices) < 0 || j.Count > fleet.JobCountMax || j.CPU > mostCPU || j.MemoryMB > mostMemory {
		ps.add(PartJob, i, "count is 0 to %d, cpu 0 to %d MHz, memory 0 to %d MB", fleet.JobCountMax, mostCPU, mostMemory)
	}
	if max(j.Ports, j.Cores, j.Devices) > mostClaims {
		ps.add(PartJob, i, "ports, cores and devices are 0 to %d each", mostClaims)
	}
	if !slices.Contains([]string{"", "docker", "podman"}, j.Driver) {
		ps.addWithHint(PartJob, i, "driver: docker", "a driver is docker or podman, or left out, not %q", j.Driver)
	}
	t := j.Task
	if t.ExitCode < 0 || t.ExitCode > 255 {
		ps.add(PartJob, i, "exit_code is 0 to 255, not %d", t.ExitCode)
	}
	if min(t.RunFor, t.StartDelay, t.KillAfter, j.KillTimeout) < 0 || max(t.RunFor, t.StartDelay, t.KillAfter) > longest {
		ps.add(PartJob, i, "a task's times are 0 to %s", formatDuration(longest))
	}
}

// checkRollout adds problems of the update block of job i, and of its periodic launches.
func (j Job) checkRollout(ps *Problems, i int) {
	r := j.Rollout
	if j.Type == fleet.JobTypeSystem && j.Count > 1 {
		ps.add(PartJob, i, "a system job has one on each edge, and no count of %d", j.Count)
	}
	if r != (Rollout{}) && fleet.DefaultUpdate(j.Type) == nil {
		ps.add(PartJob, i, "a %s job has no rollouts: max_parallel and its like are for service and system jobs", j.Type)
	}
	if min(r.MaxParallel, r.Canary, r.MaxPerSite) < 0 || r.MinHealthy < 0 || r.MinHealthy > longest {
		ps.add(PartJob, i, "max_parallel, canary, max_unavailable_per_site and min_healthy_time are not negative")
	}
	if _, _, ok := (fleet.Update{WaitFor: r.WaitFor}).WaitShare(); !ok {
		ps.add(PartJob, i, "wait_for is reachable, all or a percentage, not %q", r.WaitFor)
	}
	if _, opens := cronOf(r.WindowEvery); (r.WindowEvery != 0 || r.WindowFor != 0) && (!opens || r.WindowFor <= 0 || r.WindowFor >= r.WindowEvery) {
		ps.addWithHint(PartJob, i, "window_every: 10m, window_for: 2m", "a window of updates opens so many times in a minute, an hour or a day, and closes before the next one")
	}
	_, regular := cronOf(j.Every)
	switch {
	case j.Every == 0 && (j.NoOverlap || j.AtEdge):
		ps.addWithHint(PartJob, i, "every: 5m, prohibit_overlap: true", "prohibit_overlap and run_at_edge are of a job that is launched by the clock")
	case j.Every == 0:
	case !regular:
		ps.addWithHint(PartJob, i, "every: 10s, every: 5m, every: 2h", "no cron expression comes every %s: a minute, an hour or a day has to be so many times as long",
			formatDuration(j.Every))
	case j.Type != fleet.JobTypeBatch:
		ps.add(PartJob, i, "only a batch job is launched by the clock, not a %s job", j.Type)
	}
}

// checkSpec adds a problem of job i for each error with which the hub would refuse the job or its
// next version.
func (j Job) checkSpec(ps *Problems, i int) {
	for _, read := range []func() (*fleet.Job, error){j.Spec, j.NextSpec} {
		spec, err := read()
		var diags jobspec.Diagnostics
		switch {
		case errors.As(err, &diags):
			for _, d := range diags {
				*ps = append(*ps, Problem{Part: PartJob, Index: i, Message: d.Message, Hint: d.Hint, Line: d.Line, Column: d.Column})
			}
		case err != nil:
			for line := range strings.SplitSeq(err.Error(), "\n") {
				ps.add(PartJob, i, "%s", line)
			}
		case spec != nil && spec.ID != j.ID:
			ps.add(PartJob, i, "the job file says job %q, not %q", spec.ID, j.ID)
		}
	}
}

// States of a job between its steps.
const (
	jobRuns   = "registered"
	jobIsDead = "stopped"
	jobIsGone = "purged"
)

// checkSteps adds a problem for each step that is out of order or that its job's state does not allow.
func (s Schedule) checkSteps(ps *Problems) {
	stands := map[fleet.JobID]string{}
	starts := map[fleet.JobID]time.Duration{}
	jobs := map[fleet.JobID]Job{}
	for _, j := range s.Jobs {
		stands[j.ID], starts[j.ID], jobs[j.ID] = jobRuns, j.Start, j
	}
	var before time.Duration
	for i, step := range s.Steps {
		if step.At < 0 || step.At > s.Length {
			ps.add(PartStep, i, "%s is not within the run", formatDuration(step.At))
		}
		if step.At < before {
			ps.add(PartStep, i, "steps are in order of time, and %s is before %s", formatDuration(step.At), formatDuration(before))
		}
		before = max(before, step.At)
		stand, known := stands[step.Job]
		switch {
		case !known:
			ps.add(PartStep, i, "there is no job %q", step.Job)
			continue
		case step.At <= starts[step.Job]:
			ps.add(PartStep, i, "job %s is registered at %s, and a step comes later", step.Job, formatDuration(starts[step.Job]))
			continue
		}
		step.checkFlaw(ps, i, jobs[step.Job])
		switch j := jobs[step.Job]; {
		case step.Verb == Store && !j.Secret:
			ps.addWithHint(PartStep, i, "secret: true", "store %s: its task reads no variable", j.ID)
		case step.Verb == Dispatch && slices.ContainsFunc(s.Steps[:i], step.isDispatchedTogether):
			ps.add(PartStep, i, "dispatch %s: another step dispatches it at %s", j.ID, formatDuration(step.At))
		case j.HCL != "":
		case step.Verb == Dispatch && j.Payload == "":
			ps.addWithHint(PartStep, i, "payload: optional", "dispatch %s: it is not parameterized", j.ID)
		case step.Verb == Promote && j.Rollout.Canary == 0:
			ps.addWithHint(PartStep, i, "canary: 1", "promote %s: it has no canaries", j.ID)
		case step.Verb == Scale && j.Type == fleet.JobTypeSystem:
			ps.add(PartStep, i, "scale %s: a system job has one on each edge", j.ID)
		}
		stands[step.Job] = step.checkTransition(ps, i, stand)
	}
}

// isDispatchedTogether reports whether another step dispatches the same job at the same time: both would have the same token.
func (step Step) isDispatchedTogether(other Step) bool {
	return other.Verb == Dispatch && other.Job == step.Job && other.At == step.At
}

// checkTransition returns the job's state after step i, from its state before (stand). It adds a
// problem if the step is not allowed in that state.
func (step Step) checkTransition(ps *Problems, i int, stand string) string {
	if step.Verb == Scale && (step.Count < 0 || step.Count > fleet.JobCountMax) {
		ps.add(PartStep, i, "a count is 0 to %d, not %d", fleet.JobCountMax, step.Count)
	}
	if step.Verb != Scale && step.Count != 0 {
		ps.add(PartStep, i, "%s takes no count", step.Verb)
	}
	var needs []string
	after := stand
	switch step.Verb {
	case Run:
		needs, after = []string{jobIsDead, jobIsGone}, jobRuns
	case Scale, Update, Touch, Promote, Dispatch, Store:
		needs = []string{jobRuns}
	case Stop:
		needs, after = []string{jobRuns}, jobIsDead
	case Purge:
		needs, after = []string{jobRuns, jobIsDead}, jobIsGone
	default:
		ps.add(PartStep, i, "unknown step %q", step.Verb)
		return stand
	}
	if !slices.Contains(needs, stand) {
		ps.add(PartStep, i, "%s %s: the job is %s by then", step.Verb, step.Job, stand)
	}
	return after
}
