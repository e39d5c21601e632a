package api

import (
	"slices"
	"strings"

	"skerry/fleet"
)

// JobAction is an action of a job, and where in it it stands.
type JobAction struct {
	fleet.Action
	TaskName      string
	TaskGroupName string
}

// ActionsOf lists the actions of a job in the order of its file.
func ActionsOf(j *fleet.Job) []JobAction {
	list := []JobAction{}
	for _, g := range j.TaskGroups {
		for _, t := range g.Tasks {
			for _, a := range t.Actions {
				list = append(list, JobAction{Action: a, TaskName: t.Name, TaskGroupName: g.Name})
			}
		}
	}
	return list
}

// FindAction finds an action of a job by its name; group and task may be "" where that leaves one.
func FindAction(job fleet.JobID, actions []JobAction, group, task, name string) (JobAction, error) {
	var found, others []JobAction
	for _, a := range actions {
		switch {
		case group != "" && a.TaskGroupName != group, task != "" && a.TaskName != task:
		case a.Name == name:
			found = append(found, a)
		default:
			others = append(others, a)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return JobAction{}, fleet.Errorf(fleet.CodeInvalid, "job %s has action %q in %d tasks", job, name, len(found)).
			WithHint("name the group and the task of one of: %s", actionPlaces(found))
	case len(others) > 0:
		return JobAction{}, fleet.Errorf(fleet.CodeNotFound, "job %s has no action %q%s", job, name, describeActionScope(group, task)).
			WithHint("it has: %s", actionNames(others))
	}
	return JobAction{}, fleet.Errorf(fleet.CodeNotFound, "job %s has no actions%s", job, describeActionScope(group, task)).
		WithHint("an action block of a task is one")
}

func describeActionScope(group, task string) string {
	switch {
	case group != "" && task != "":
		return " in task " + task + " of group " + group
	case group != "":
		return " in group " + group
	case task != "":
		return " in task " + task
	}
	return ""
}

func actionPlaces(actions []JobAction) string {
	var list []string
	for _, a := range actions {
		list = append(list, a.TaskGroupName+"/"+a.TaskName)
	}
	return strings.Join(list, ", ")
}

func actionNames(actions []JobAction) string {
	var list []string
	for _, a := range actions {
		if !slices.Contains(list, a.Name) {
			list = append(list, a.Name)
		}
	}
	return strings.Join(list, ", ")
}
