package fleet_test

import (
	"testing"

	"skerry/fleet"
	"skerry/fleet/diff"
)

// A job's actions change without a restart of what runs; the difference is told field by
// field, by name.
func TestAnActionIsChangedInPlace(t *testing.T) {
	version := func(actions ...fleet.Action) *fleet.Job {
		return &fleet.Job{ID: "shop", Type: fleet.JobTypeService, TaskGroups: []fleet.TaskGroup{{Name: "web", Tasks: []fleet.Task{
			{Name: "serve", Driver: "sim", Actions: actions},
		}}}}
	}
	old := version(fleet.Action{Name: "flush", Command: "sh", Args: []string{"-c", "a"}}, fleet.Action{Name: "gone", Command: "x"})
	updated := version(fleet.Action{Name: "flush", Command: "sh", Args: []string{"-c", "b"}}, fleet.Action{Name: "new", Command: "y"})
	if c := diff.GroupUpdate(old, updated, "web"); c != diff.GroupInPlace {
		t.Errorf("the update is %s", c)
	}
	if c := diff.GroupUpdate(old, old, "web"); c != diff.GroupSame {
		t.Errorf("no update is %s", c)
	}
}
