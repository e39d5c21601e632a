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
			g.Tasks[k].applyTaskDefaults(g)
		}
	}
	j.completeJob()
}

func (t *Task) applyTaskDefaults(g *TaskGroup) {
	if t.RestartPolicy == nil {
		p := *g.RestartPolicy
		t.RestartPolicy = &p
	}
	setDefault(&t.Resources.Resources, Resources{CPU: DefaultCPU, MemoryMB: DefaultMemoryMB})
	setDefault(&t.KillTimeout, DefaultKillTimeout)
	setDefault(&t.LogConfig.MaxFiles, DefaultLogFiles)
	setDefault(&t.LogConfig.MaxFileSizeMB, DefaultLogFileSizeMB)
}

// completeJob fills in what cannot be meant to be nothing: names, modes, and what follows
// from where a thing stands.
func (j *Job) completeJob() {
	setDefault(&j.Region, DefaultRegion)
	setDefault(&j.Namespace, DefaultNamespace)
	setDefault(&j.Name, string(j.ID))
	setDefault(&j.NodePool, DefaultPool)
	if len(j.Datacenters) == 0 {
		j.Datacenters = []string{"*"}
	}
	if j.Periodic != nil {
		j.Periodic.completePeriodic()
	}
	if j.ParameterizedJob != nil {
		j.ParameterizedJob.completeParameterized()
	}
	forEachElement(j.Constraints, (*Constraint).completeConstraint)
	forEachElement(j.Affinities, (*Affinity).completeAffinity)
	for i := range j.TaskGroups {
		j.TaskGroups[i].completeGroup(j)
	}
}

func (g *TaskGroup) completeGroup(j *Job) {
	if g.Scaling != nil {
		g.Scaling.completeScalingPolicy(g.Count)
	}
	if g.Consul != nil {
		g.Consul.completeConsul()
	}
	forEachElement(g.Constraints, (*Constraint).completeConstraint)
	forEachElement(g.Affinities, (*Affinity).completeAffinity)
	forEachElement(g.Networks, (*NetworkResource).completeNetwork)
	forEachElement(g.Services, func(s *Service) { s.completeService(j.Name, g.Name, "") })
	for name, v := range g.Volumes {
		v.Name = name
		g.Volumes[name] = v
	}
	for i := range g.Tasks {
		g.Tasks[i].completeTask(j, g)
	}
}

func (t *Task) completeTask(j *Job, g *TaskGroup) {
	setDefault(&t.KillSignal, DefaultKillSignal)
	forEachElement(t.Constraints, (*Constraint).completeConstraint)
	forEachElement(t.Affinities, (*Affinity).completeAffinity)
	forEachElement(t.Resources.Networks, (*NetworkResource).completeNetwork)
	for i := range t.Resources.Devices {
		d := &t.Resources.Devices[i]
		forEachElement(d.Constraints, (*Constraint).completeConstraint)
		forEachElement(d.Affinities, (*Affinity).completeAffinity)
	}
	forEachElement(t.Services, func(s *Service) { setDefault(&s.TaskName, t.Name); s.completeService(j.Name, g.Name, t.Name) })
	forEachElement(t.Artifacts, (*TaskArtifact).completeArtifact)
	forEachElement(t.Templates, (*Template).completeTemplate)
	forEachElement(t.VolumeMounts, (*VolumeMount).completeVolumeMount)
	forEachElement(t.Identities, (*WorkloadIdentity).completeIdentity)
	if t.Identity != nil {
		setDefault(&t.Identity.Name, DefaultIdentity)
		t.Identity.completeIdentity()
	}
	if t.Vault != nil {
		t.Vault.completeVault()
	}
	if t.Consul != nil {
		t.Consul.completeConsul()
	}
	if t.CSIPluginConfig != nil {
		t.CSIPluginConfig.completeCSIPlugin()
	}
}

func forEachElement[T any](list []T, f func(*T)) {
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
