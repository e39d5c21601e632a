package fleet_test

import (
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/fleet/diff"
)

func TestActionsOfAJob(t *testing.T) {
	of := func(name string, actions ...string) fleet.Task {
		t := fleet.Task{Name: name}
		for _, a := range actions {
			t.Actions = append(t.Actions, fleet.Action{Name: a, Command: "/bin/" + a, Args: []string{name}})
		}
		return t
	}
	job := &fleet.Job{ID: "shop", TaskGroups: []fleet.TaskGroup{
		{Name: "web", Tasks: []fleet.Task{of("serve", "flush", "count"), of("log", "flush")}},
		{Name: "db", Tasks: []fleet.Task{of("serve", "vacuum")}},
	}}
	for _, tc := range []struct{ group, task, name, want, err string }{
		{"", "", "vacuum", "db/serve /bin/vacuum", ""},
		{"web", "", "count", "web/serve /bin/count", ""},
		{"", "log", "flush", "web/log /bin/flush", ""},
		{"web", "serve", "flush", "web/serve /bin/flush", ""},
		{"", "", "flush", "", `job shop has action "flush" in 2 tasks (name the group and the task of one of: web/serve, web/log)`},
		{"db", "", "flush", "", `job shop has no action "flush" in group db (it has: vacuum)`},
		{"", "", "nope", "", `job shop has no action "nope" (it has: flush, count, vacuum)`},
		{"web", "nobody", "flush", "", "job shop has no actions in task nobody of group web"},
	} {
		a, err := job.Action(tc.group, tc.task, tc.name)
		got := ""
		if err == nil {
			got = a.TaskGroupName + "/" + a.TaskName + " " + a.Command
		}
		if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s/%s %s: %q, %v; want %q, %s", tc.group, tc.task, tc.name, got, err, tc.want, tc.err)
		}
	}
	if list := job.Actions(); len(list) != 4 || list[3].TaskGroupName != "db" {
		t.Errorf("listed %+v", list)
	}
	if list := new(fleet.Job).Actions(); list == nil || len(list) != 0 {
		t.Errorf("of a job without: %#v", list)
	}
}

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
