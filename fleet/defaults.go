package fleet

import "time"

// Defaults of a task.
const (
	DefaultKillTimeout   = 5 * time.Second
	DefaultKillSignal    = "SIGTERM"
	DefaultLogFiles      = 10
	DefaultLogFileSizeMB = 10
)

// DefaultRestart returns how tasks of a job type are restarted where a job file
// says nothing.
func DefaultRestart(jobType string) RestartPolicy {
	switch jobType {
	case JobTypeBatch, JobTypeSysBatch:
		return RestartPolicy{Attempts: 3, Interval: 24 * time.Hour, Delay: 15 * time.Second, Mode: RestartModeFail}
	}
	return RestartPolicy{Attempts: 2, Interval: 30 * time.Minute, Delay: 15 * time.Second, Mode: RestartModeFail}
}

// DefaultReschedule returns how failed allocations of a job type are replaced where
// a job file says nothing; nil for types that are never rescheduled.
func DefaultReschedule(jobType string) *ReschedulePolicy {
	switch jobType {
	case JobTypeService:
		return &ReschedulePolicy{
			Delay: 30 * time.Second, DelayFunction: DelayExponential, MaxDelay: time.Hour, Unlimited: true,
		}
	case JobTypeBatch:
		return &ReschedulePolicy{
			Attempts: 1, Interval: 24 * time.Hour, Delay: 5 * time.Second, DelayFunction: DelayConstant,
		}
	}
	return nil
}

// Defaults fills in what a job built in Go left out: empty strings, nil policies,
// nil lists, a priority of 0, a kill timeout of 0, resources of nothing. It leaves
// Count alone, for 0 is a count. DecodeJob does this and more, for it can tell what
// is absent from what is 0.
func (j *Job) Defaults() {
	setDefault(&j.Priority, JobPriorityDefault)
	setDefault(&j.Type, JobTypeService)
	for i := range j.TaskGroups {
		g := &j.TaskGroups[i]
		if g.RestartPolicy == nil {
			p := DefaultRestart(j.Type)
			g.RestartPolicy = &p
		}
		if g.ReschedulePolicy == nil {
			g.ReschedulePolicy = DefaultReschedule(j.Type)
		}
		if g.Update == nil {
			g.Update = DefaultUpdate(j.Type)
		}
		if g.Migrate == nil {
			g.Migrate = DefaultMigrate(j.Type)
		}
		setDefault(&g.EphemeralDisk.SizeMB, DefaultDiskMB)
		for k := range g.Tasks {
			g.Tasks[k].defaults(g)
		}
	}
	j.complete()
}

func (t *Task) defaults(g *TaskGroup) {
	if t.RestartPolicy == nil {
		p := *g.RestartPolicy
		t.RestartPolicy = &p
	}
	setDefault(&t.Resources.Resources, Resources{CPU: DefaultCPU, MemoryMB: DefaultMemoryMB})
	setDefault(&t.KillTimeout, DefaultKillTimeout)
	setDefault(&t.LogConfig.MaxFiles, DefaultLogFiles)
	setDefault(&t.LogConfig.MaxFileSizeMB, DefaultLogFileSizeMB)
}

// complete fills in what cannot be meant to be nothing: names, modes, and what follows
// from where a thing stands.
func (j *Job) complete() {
	setDefault(&j.Region, DefaultRegion)
	setDefault(&j.Namespace, DefaultNamespace)
	setDefault(&j.Name, string(j.ID))
	setDefault(&j.NodePool, DefaultPool)
	if len(j.Datacenters) == 0 {
		j.Datacenters = []string{"*"}
	}
	if j.Periodic != nil {
		j.Periodic.complete()
	}
	if j.ParameterizedJob != nil {
		j.ParameterizedJob.complete()
	}
	each(j.Constraints, (*Constraint).complete)
	each(j.Affinities, (*Affinity).complete)
	for i := range j.TaskGroups {
		j.TaskGroups[i].complete(j)
	}
}

func (g *TaskGroup) complete(j *Job) {
	if g.Scaling != nil {
		g.Scaling.complete(g.Count)
	}
	if g.Consul != nil {
		g.Consul.complete()
	}
	each(g.Constraints, (*Constraint).complete)
	each(g.Affinities, (*Affinity).complete)
	each(g.Networks, (*NetworkResource).complete)
	each(g.Services, func(s *Service) { s.complete(j.Name, g.Name, "") })
	for name, v := range g.Volumes {
		v.Name = name
		g.Volumes[name] = v
	}
	for i := range g.Tasks {
		g.Tasks[i].complete(j, g)
	}
}

func (t *Task) complete(j *Job, g *TaskGroup) {
	setDefault(&t.KillSignal, DefaultKillSignal)
	each(t.Constraints, (*Constraint).complete)
	each(t.Affinities, (*Affinity).complete)
	each(t.Resources.Networks, (*NetworkResource).complete)
	for i := range t.Resources.Devices {
		d := &t.Resources.Devices[i]
		each(d.Constraints, (*Constraint).complete)
		each(d.Affinities, (*Affinity).complete)
	}
	each(t.Services, func(s *Service) { setDefault(&s.TaskName, t.Name); s.complete(j.Name, g.Name, t.Name) })
	each(t.Artifacts, (*TaskArtifact).complete)
	each(t.Templates, (*Template).complete)
	each(t.VolumeMounts, (*VolumeMount).complete)
	each(t.Identities, (*WorkloadIdentity).complete)
	if t.Identity != nil {
		setDefault(&t.Identity.Name, DefaultIdentity)
		t.Identity.complete()
	}
	if t.Vault != nil {
		t.Vault.complete()
	}
	if t.Consul != nil {
		t.Consul.complete()
	}
	if t.CSIPluginConfig != nil {
		t.CSIPluginConfig.complete()
	}
}

func each[T any](list []T, f func(*T)) {
	for i := range list {
		f(&list[i])
	}
}

func setDefault[T comparable](field *T, to T) {
	var zero T
	if *field == zero {
		*field = to
	}
}
