package validate

import (
	"errors"
	"fmt"

	"skerry/fleet"
)

// ConfigChecks read the config blocks of tasks by their driver, and say what is wrong with
// them. A driver that has none finds out where the task is started.
type ConfigChecks map[string]func(config map[string]any) error

// KnownDrivers is what a hub knows of the task drivers of its release, none of which it runs.
type KnownDrivers struct {
	Names    []string // that a job may name
	Isolated []string // those of Names whose tasks always have a file system of their own
	Configs  ConfigChecks
}

// Problems returns what is wrong with the config blocks of a job.
func (c ConfigChecks) Problems(j *fleet.Job) fleet.Problems {
	var ps fleet.Problems
	for i := range j.TaskGroups {
		for k := range j.TaskGroups[i].Tasks {
			t := &j.TaskGroups[i].Tasks[k]
			check, ok := c[t.Driver]
			if !ok {
				continue
			}
			if err := check(t.Config); err != nil {
				p := fleet.Problem{Path: fmt.Sprintf("TaskGroups[%d].Tasks[%d].Config", i, k), Message: err.Error()}
				if e := (*fleet.Error)(nil); errors.As(err, &e) {
					p.Message, p.Hint = e.Message, e.Hint
				}
				ps = append(ps, p)
			}
		}
	}
	return ps
}
