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
	steps := alwaysSteps
	for i, g := range j.TaskGroups {
		if g.Update == nil {
			continue
		}
		for k, w := range g.Update.Windows {
			ps = append(ps, windowProblems(fmt.Sprintf("TaskGroups[%d].Update.Windows[%d]", i, k), w, now, &steps)...)
		}
	}
	return ps
}

// problems checks each expression by itself, for all that is wrong to be said at once.
func problems(path string, p fleet.Periodic, now time.Time) fleet.Problems {
	var ps fleet.Problems
	if err := CheckZone(p.TimeZone); err != nil {
		ps = append(ps, problem(path+".TimeZone", err))
		p.TimeZone = ""
	}
	for i, spec := range p.Crons() {
		if err := Check(fleet.Periodic{Spec: spec, TimeZone: p.TimeZone}, now); err != nil {
			at := path + ".Spec"
			if p.Spec == "" {
				at = fmt.Sprintf("%s.Specs[%d]", path, i)
			}
			ps = append(ps, problem(at, err))
		}
	}
	return ps
}

// problem is an error of a field.
func problem(path string, err error) fleet.Problem {
	var e *fleet.Error
	if errors.As(err, &e) {
		return fleet.Problem{Path: path, Message: e.Message, Hint: e.Hint}
	}
	return fleet.Problem{Path: path, Message: err.Error()}
}
