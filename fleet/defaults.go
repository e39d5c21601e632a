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
	setDefault(&j.Region, DefaultRegion)
	setDefault(&j.Namespace, DefaultNamespace)
	setDefault(&j.Name, string(j.ID))
	setDefault(&j.Type, JobTypeService)
	setDefault(&j.Priority, JobPriorityDefault)
	setDefault(&j.NodePool, DefaultPool)
	if j.Datacenters == nil {
		j.Datacenters = []string{"*"}
	}
	for i := range j.TaskGroups {
		j.TaskGroups[i].defaults(j.Type)
	}
}

func (g *TaskGroup) defaults(jobType string) {
	if g.RestartPolicy == nil {
		p := DefaultRestart(jobType)
		g.RestartPolicy = &p
	}
	if g.ReschedulePolicy == nil {
		g.ReschedulePolicy = DefaultReschedule(jobType)
	}
	setDefault(&g.EphemeralDisk.SizeMB, DefaultDiskMB)
	for i := range g.Tasks {
		t := &g.Tasks[i]
		if t.RestartPolicy == nil {
			p := *g.RestartPolicy
			t.RestartPolicy = &p
		}
		setDefault(&t.Resources, Resources{CPU: DefaultCPU, MemoryMB: DefaultMemoryMB})
		setDefault(&t.KillTimeout, DefaultKillTimeout)
		setDefault(&t.KillSignal, DefaultKillSignal)
		setDefault(&t.LogConfig.MaxFiles, DefaultLogFiles)
		setDefault(&t.LogConfig.MaxFileSizeMB, DefaultLogFileSizeMB)
	}
}

func setDefault[T comparable](field *T, to T) {
	var zero T
	if *field == zero {
		*field = to
	}
}
