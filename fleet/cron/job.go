package cron

import (
	"errors"
	"fmt"
	"time"

	"skerry/fleet"
)

// Bounds of what is parsed for one job: reading an expression takes up to a millisecond,
// and it is read again at each launch, or at each look at a rollout.
const (
	maxCrons   = 100 // of a periodic block
	maxWindows = 100 // different ones, of all groups
)

// Problems returns what is wrong with the times that a job names: those of its launches
// and those of the windows of its updates.
func Problems(j *fleet.Job, now time.Time) fleet.Problems {
	var ps fleet.Problems
	if p := j.Periodic; p != nil && len(specsOf(*p)) > maxCrons {
		ps = append(ps, fleet.Problem{
			Path: "Periodic.Specs", Message: fmt.Sprintf("%d cron expressions, at most %d are taken", len(specsOf(*p)), maxCrons),
			Hint: "an expression may name several times: \"0 6,12,18 * * *\"",
		})
	} else if p != nil && len(specsOf(*p)) > 0 && p.SpecType == fleet.PeriodicCron {
		ps = append(ps, periodicProblems("Periodic", *p, now)...)
	}
	steps, checked := alwaysSteps, map[fleet.UpdateWindow]fleet.Problems{}
	for i, g := range j.TaskGroups {
		if g.Update == nil {
			continue
		}
		for k, w := range g.Update.Windows {
			path := fmt.Sprintf("TaskGroups[%d].Update.Windows[%d]", i, k)
			found, known := checked[w]
			if !known && len(checked) == maxWindows {
				return append(ps, fleet.Problem{
					Path: path, Message: fmt.Sprintf("the job has more than %d different windows", maxWindows),
					Hint: "give groups the same windows, or split the job",
				})
			}
			if !known {
				found = windowProblems("", w, now, &steps)
				checked[w] = found
			}
			for _, problem := range found {
				problem.Path = path + problem.Path
				ps = append(ps, problem)
			}
		}
	}
	return ps
}

// periodicProblems checks each expression by itself, for all that is wrong to be said at once.
func periodicProblems(path string, p fleet.Periodic, now time.Time) fleet.Problems {
	var ps fleet.Problems
	if err := CheckZone(p.TimeZone); err != nil {
		ps = append(ps, problemFromError(path+".TimeZone", err))
		p.TimeZone = ""
	}
	right := len(ps) == 0
	for i, spec := range specsOf(p) {
		if err := Check(fleet.Periodic{Spec: spec, TimeZone: p.TimeZone}, now); err != nil {
			at := path + ".Spec"
			if p.Spec == "" {
				at = fmt.Sprintf("%s.Specs[%d]", path, i)
			}
			ps, right = append(ps, problemFromError(at, err)), false
		}
	}
	if right && len(specsOf(p)) > 1 {
		if err := Check(p, now); err != nil { // together they may follow each other too fast
			ps = append(ps, problemFromError(path+".Specs", err))
		}
	}
	return ps
}

// problemFromError is an error of a field.
func problemFromError(path string, err error) fleet.Problem {
	var e *fleet.Error
	if errors.As(err, &e) {
		return fleet.Problem{Path: path, Message: e.Message, Hint: e.Hint}
	}
	return fleet.Problem{Path: path, Message: err.Error()}
}
