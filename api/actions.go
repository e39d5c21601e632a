package api

import (
	"slices"
	"strings"

	"skerry/fleet"
)

// JobAction is an action of a job, with the task and task group that define it.
type JobAction struct {
	fleet.Action
	TaskName      string
	TaskGroupName string
}

// ActionsOf lists the actions of all tasks of a job, in the order of its file.
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

// FindAction returns the one action with a name among the actions of a job. An empty group or task matches any. Its
// errors list the actions to choose from: no action matches, or several do.
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

// describeActionScope returns " in task T of group G" for an error text, or as much of it as is named.
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

// actionPlaces lists where actions are defined, as GROUP/TASK.
func actionPlaces(actions []JobAction) string {
	var list []string
	for _, a := range actions {
		list = append(list, a.TaskGroupName+"/"+a.TaskName)
	}
	return strings.Join(list, ", ")
}

// actionNames lists the names of actions, each once.
func actionNames(actions []JobAction) string {
	var list []string
	for _, a := range actions {
		if !slices.Contains(list, a.Name) {
			list = append(list, a.Name)
		}
	}
	return strings.Join(list, ", ")
}
