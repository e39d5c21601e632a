package cron

import (
	"errors"
	"fmt"
	"time"

	"skerry/fleet"
)

// Problems returns what is wrong with the times that a job names: those of its launches
// and those of the windows of its updates.
func Problems(j *fleet.Job, now time.Time) fleet.Problems {
	var ps fleet.Problems
	if p := j.Periodic; p != nil && len(p.Crons()) > 0 && p.SpecType == fleet.PeriodicCron {
		ps = append(ps, problems("Periodic", *p, now)...)
	}
	for i, g := range j.TaskGroups {
		if g.Update == nil {
			continue
		}
		for k, w := range g.Update.Windows {
			if w.Cron != "" {
				path := fmt.Sprintf("TaskGroups[%d].Update.Windows[%d]", i, k)
				ps = append(ps, problems(path, fleet.Periodic{Spec: w.Cron, TimeZone: w.TimeZone}, now)...)
			}
		}
	}
	return ps
}

// problems checks each expression by itself, for all that is wrong to be said at once.
func problems(path string, p fleet.Periodic, now time.Time) fleet.Problems {
	var ps fleet.Problems
	for _, spec := range p.Crons() {
		err := Check(fleet.Periodic{Spec: spec, TimeZone: p.TimeZone}, now)
		var e *fleet.Error
		switch {
		case err == nil:
		case errors.As(err, &e):
			ps = append(ps, fleet.Problem{Path: path, Message: e.Message, Hint: e.Hint})
		default:
			ps = append(ps, fleet.Problem{Path: path, Message: err.Error()})
		}
	}
	return ps
}
