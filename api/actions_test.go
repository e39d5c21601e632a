package api_test

import (
	"strings"
	"testing"

	"skerry/api"
	"skerry/fleet"
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
		a, err := api.FindAction(job.ID, api.ActionsOf(job), tc.group, tc.task, tc.name)
		got := ""
		if err == nil {
			got = a.TaskGroupName + "/" + a.TaskName + " " + a.Command
		}
		if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s/%s %s: %q, %v; want %q, %s", tc.group, tc.task, tc.name, got, err, tc.want, tc.err)
		}
	}
	if list := api.ActionsOf(job); len(list) != 4 || list[3].TaskGroupName != "db" {
		t.Errorf("listed %+v", list)
	}
	if list := api.ActionsOf(new(fleet.Job)); list == nil || len(list) != 0 {
		t.Errorf("of a job without: %#v", list)
	}
}
