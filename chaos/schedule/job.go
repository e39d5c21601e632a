package schedule

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"skerry/fleet"
	"skerry/fleet/jobspec"
	"skerry/fleet/placement"
	"skerry/fleet/validate"
)

// Names of the only group and the only task of a job without HCL.
const (
	GroupName = "main"
	TaskName  = "main"
)

// The environment variable that Update changes, and the action that Touch adds.
const (
	envVersion  = "VERSION"
	actionTouch = "touched"
)

// NextSpec returns the parsed job that the first Update registers; nil if the job has no Next.
func (j Job) NextSpec() (*fleet.Job, error) {
	if j.Next == "" {
		return nil, nil
	}
	return jobspec.Parse(string(j.ID)+".next.hcl", []byte(j.Next), jobspec.Options{ForRegistration: true})
}

// Spec returns the job for its first registration, with its defaults filled in. It returns an error if the hub would
// refuse the job.
func (j Job) Spec() (*fleet.Job, error) {
	if j.HCL != "" {
		return jobspec.Parse(string(j.ID)+".hcl", []byte(j.HCL), jobspec.Options{ForRegistration: true})
	}
	job := &fleet.Job{ID: j.ID, Type: j.Type, Datacenters: slices.Clone(j.Datacenters), NodePool: j.Pool}
	group := fleet.TaskGroup{
		Name: GroupName, Count: j.Count,
		Disconnect: clone(j.Disconnect), RestartPolicy: clone(j.Restart), ReschedulePolicy: clone(j.Reschedule),
	}
	if j.Site != "" {
		group.Constraints = append(group.Constraints,
			fleet.Constraint{LTarget: "${node.site}", Operand: fleet.OpEqual, RTarget: j.Site})
	}
	if j.Distinct {
		group.Constraints = append(group.Constraints, fleet.Constraint{Operand: fleet.OpDistinctHosts, RTarget: "true"})
	}
	if u := fleet.DefaultUpdate(j.Type); j.Rollout != (Rollout{}) && u != nil {
		j.Rollout.applyToUpdate(u)
		group.Update = u
	}
	if fleet.RunsEverywhere(j.Type) {
		group.Count = 1
	}
	j.setPortsAndMaxRun(&group)
	if j.HoldUntil != "" {
		group.LocalControl = &fleet.LocalControl{Until: j.HoldUntil}
	}
	if j.Serves {
		group.Services = []fleet.Service{{Name: string(j.ID), Provider: fleet.ProviderNomad}}
	}
	if j.Every > 0 {
		spec, _ := cronOf(j.Every)
		job.Periodic = &fleet.Periodic{Enabled: true, Spec: spec, ProhibitOverlap: j.NoOverlap, RunAtEdge: j.AtEdge}
	}
	group.Tasks = []fleet.Task{{
		Name: TaskName, Driver: "sim", Config: j.Task.driverConfig(), KillTimeout: j.KillTimeout,
		Resources: j.taskResources(), Templates: j.secretTemplates(), Identity: j.taskIdentity(),
	}}
	job.TaskGroups = []fleet.TaskGroup{group}
	j.setDispatchRules(job)
	validate.FillDefaults(job)
	if problems := append(validate.Job(job), placement.Problems(job)...); len(problems) > 0 {
		return nil, problems.Err()
	}
	return job, nil
}

// setPortsAndMaxRun sets the ports and the max_run_duration of the group.
func (j Job) setPortsAndMaxRun(g *fleet.TaskGroup) {
	var n fleet.NetworkResource
	if j.Port > 0 {
		n.ReservedPorts = []fleet.Port{{Label: "static", Value: j.Port}}
	}
	for i := range j.Ports {
		n.DynamicPorts = append(n.DynamicPorts, fleet.Port{Label: "dynamic" + strconv.Itoa(i)})
	}
	if j.Port+j.Ports > 0 {
		g.Networks = []fleet.NetworkResource{n}
	}
	if j.MaxRun > 0 {
		g.MaxRunDuration = &j.MaxRun
	}
}

// taskResources returns the resources that the job's task asks for.
func (j Job) taskResources() fleet.TaskResources {
	r := fleet.TaskResources{Resources: fleet.Resources{CPU: orElse(j.CPU, DefaultTaskCPU), MemoryMB: orElse(j.MemoryMB, DefaultTaskMemoryMB)}}
	if j.Cores > 0 {
		r.CPU, r.Cores = 0, j.Cores
	}
	if j.Devices > 0 {
		r.Devices = []fleet.RequestedDevice{{Name: DeviceName, Count: j.Devices}}
	}
	return r
}

// applyToUpdate writes the fields of the rollout to an update block.
func (r Rollout) applyToUpdate(u *fleet.Update) {
	u.MaxParallel = orElse(r.MaxParallel, u.MaxParallel)
	u.MinHealthyTime = orElse(r.MinHealthy, u.MinHealthyTime)
	u.Canary, u.AutoPromote, u.AutoRevert = r.Canary, r.AutoPromote, r.AutoRevert
	u.MaxUnavailablePerSite = r.MaxPerSite
	u.WaitFor = orElse(r.WaitFor, u.WaitFor)
	if spec, ok := cronOf(r.WindowEvery); ok && r.WindowFor > 0 {
		u.Windows = []fleet.UpdateWindow{{Cron: spec, Duration: r.WindowFor}}
	}
}

// cronOf returns the cron expression of an interval. ok is false if there is none: the interval
// has to divide a minute, an hour or a day, or be a day.
func cronOf(every time.Duration) (spec string, ok bool) {
	for _, unit := range []struct {
		step, whole time.Duration
		spec        string
	}{
		{time.Second, time.Minute, "*/%d * * * * * *"}, {time.Minute, time.Hour, "*/%d * * * *"}, {time.Hour, day, "0 */%d * * *"},
	} {
		if every >= unit.step && every < unit.whole && every%unit.step == 0 && unit.whole%every == 0 {
			return fmt.Sprintf(unit.spec, every/unit.step), true
		}
	}
	return "0 0 * * *", every == day
}

// driverConfig returns the script as the configuration of a task of the driver sim, with the
// keys of a scenario.
func (s Script) driverConfig() map[string]any {
	c := map[string]any{}
	var node yaml.Node
	if err := errors.Join(node.Encode(s), node.Decode(&c)); err != nil {
		panic(fmt.Sprintf("write a script as YAML: %v", err)) // it has no type that YAML lacks
	}
	return c
}

// clone returns a pointer to a shallow copy; nil for nil.
func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}

// orElse returns v, or otherwise if v is zero.
func orElse[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// Job returns the job of that name; ok is false if there is none.
func (s Schedule) Job(id fleet.JobID) (j Job, ok bool) {
	i := slices.IndexFunc(s.Jobs, func(j Job) bool { return j.ID == id })
	if i < 0 {
		return Job{}, false
	}
	return s.Jobs[i], true
}

// DesiredJob returns the desired version of a job after all of its Steps up to and including the
// time at. It is nil before the job is registered and after it was purged; Stop is set after it
// was stopped. A Step registers the same value.
func (s Schedule) DesiredJob(id fleet.JobID, at time.Duration) (*fleet.Job, error) {
	j, ok := s.Job(id)
	if !ok {
		return nil, fmt.Errorf("find job %s: the schedule has none of that name", id)
	}
	if at < j.Start {
		return nil, nil
	}
	spec, err := j.Spec()
	if err != nil {
		return nil, fmt.Errorf("read job %s: %w", id, err)
	}
	next, err := j.NextSpec()
	if err != nil {
		return nil, fmt.Errorf("read the next version of job %s: %w", id, err)
	}
	state := jobState{job: spec, next: next, isRegistered: true}
	for _, step := range s.Steps {
		if step.Job == id && step.At <= at {
			state.applyStep(step)
		}
	}
	if !state.isRegistered {
		return nil, nil
	}
	return spec, nil
}

// jobState is a job after some of its steps.
type jobState struct {
	job          *fleet.Job
	next         *fleet.Job // the job of the next Update; nil: the same job with another environment
	isRegistered bool
	updates      int
	touches      int
}

// applyStep changes the state as the step changes the job. Promote, Dispatch and Store change nothing.
func (s *jobState) applyStep(step Step) {
	switch step.Verb {
	case Run:
		s.isRegistered, s.job.Stop = true, false
	case Stop:
		s.job.Stop = true
	case Purge:
		s.isRegistered, s.job.Stop = false, false
	case Scale:
		s.job.TaskGroups[0].Count = step.Count
	case Touch:
		s.touches++
		for g := range s.job.TaskGroups {
			for t := range s.job.TaskGroups[g].Tasks {
				s.job.TaskGroups[g].Tasks[t].Actions = []fleet.Action{{Name: actionTouch, Command: "true", Args: []string{strconv.Itoa(s.touches)}}}
			}
		}
	case Update:
		if s.next != nil {
			stopped := s.job.Stop
			*s.job, s.next = *s.next, nil
			s.job.Stop = stopped
			return
		}
		s.updates++
		for g := range s.job.TaskGroups {
			for t := range s.job.TaskGroups[g].Tasks {
				task := &s.job.TaskGroups[g].Tasks[t]
				task.Env = withEntry(task.Env, envVersion, s.updates)
			}
		}
	}
}

// withEntry returns a copy of the map in which key has the value n.
func withEntry(m map[string]string, key string, n int) map[string]string {
	m = maps.Clone(m)
	if m == nil {
		m = map[string]string{}
	}
	m[key] = strconv.Itoa(n)
	return m
}
