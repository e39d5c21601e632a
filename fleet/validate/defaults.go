package validate

import (
	"time"

	"skerry/fleet"
)

// FillDefaults fills in the zero fields of a job that was built in Go, except Count, for which 0
// is a value. DecodeJob distinguishes an absent key from 0.
func FillDefaults(j *fleet.Job) {
	setDefault(&j.Priority, fleet.JobPriorityDefault)
	setDefault(&j.Type, fleet.JobTypeService)
	for i := range j.TaskGroups {
		g := &j.TaskGroups[i]
		if g.RestartPolicy == nil {
			p := fleet.DefaultRestart(j.Type)
			g.RestartPolicy = &p
		}
		if g.ReschedulePolicy == nil {
			g.ReschedulePolicy = fleet.DefaultReschedule(j.Type)
		}
		if g.Update == nil {
			g.Update = fleet.DefaultUpdate(j.Type)
		}
		if g.Migrate == nil {
			g.Migrate = fleet.DefaultMigrate(j.Type)
		}
		setDefault(&g.EphemeralDisk.SizeMB, fleet.DefaultDiskMB)
		for k := range g.Tasks {
			applyTaskDefaults(&g.Tasks[k], g)
		}
	}
	completeJob(j)
}

func applyTaskDefaults(t *fleet.Task, g *fleet.TaskGroup) {
	if t.RestartPolicy == nil {
		p := *g.RestartPolicy
		t.RestartPolicy = &p
	}
	setDefault(&t.Resources.Resources, fleet.Resources{CPU: fleet.DefaultCPU, MemoryMB: fleet.DefaultMemoryMB})
	setDefault(&t.KillTimeout, fleet.DefaultKillTimeout)
	setDefault(&t.LogConfig.MaxFiles, fleet.DefaultLogFiles)
	setDefault(&t.LogConfig.MaxFileSizeMB, fleet.DefaultLogFileSizeMB)
}

// presetDefaults sets the defaults of a noun that are not zero. They are set before the noun
// is read, so that an explicit 0 stays 0.
func presetDefaults(noun any) {
	switch v := noun.(type) {
	case *fleet.Affinity:
		v.Operand, v.Weight = fleet.OpEqual, fleet.DefaultWeight
	case *fleet.CheckRestart:
		v.Grace = time.Second
	case *fleet.Migrate:
		*v = *fleet.DefaultMigrate(fleet.JobTypeService)
	case *fleet.MultiregionRegion:
		v.Count = 1
	case *fleet.Periodic:
		v.Enabled = true
	case *fleet.RequestedDevice:
		v.Count = 1
	case *fleet.ScalingPolicy:
		v.Enabled = true
	case *fleet.Spread:
		v.Weight = fleet.DefaultWeight
	case *fleet.Template:
		v.Splay = 5 * time.Second
	case *fleet.TemplateScript:
		v.Timeout = 5 * time.Second
	case *fleet.Update:
		*v = *fleet.DefaultUpdate(fleet.JobTypeService)
	case *fleet.Vault:
		v.Env = true
	}
}
