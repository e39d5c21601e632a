package diff_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"skerry/fleet"
	"skerry/fleet/diff"
)

func TestDiffJobs(t *testing.T) {
	updated := job()
	updated.Version, updated.ModifyIndex = 7, 99
	updated.Priority = 80
	updated.Datacenters = []string{"dc1", "dc2"}
	updated.Meta = map[string]string{"owner": "ops"}
	updated.Constraints = []fleet.Constraint{{LTarget: "${attr.x}", Operand: "=", RTarget: "1"}}
	updated.TaskGroups[0].Count = 3
	updated.TaskGroups[0].Tasks[0].Config["args"] = []any{"a"}
	updated.TaskGroups[1].Tasks[0].KillSignal = "SIGINT"
	updated.TaskGroups = append(updated.TaskGroups, fleet.TaskGroup{Name: "c", Tasks: []fleet.Task{{Name: "n", Driver: "sim"}}})

	d := diff.Jobs(job(), updated)
	if d.Type != diff.Edited || d.ID != "j" {
		t.Errorf("job %s %s", d.Type, d.ID)
	}
	wantEqual(t, "fields", d.Fields, []diff.Field{
		{Type: diff.Added, Name: "Meta[owner]", New: "ops"},
		{Type: diff.Edited, Name: "Priority", Old: "50", New: "80"},
	})
	wantEqual(t, "objects", d.Objects, []diff.Object{
		{Type: diff.Added, Name: "Constraint", Fields: []diff.Field{
			{Type: diff.Added, Name: "LTarget", New: "${attr.x}"}, {Type: diff.Added, Name: "Operand", New: "="},
			{Type: diff.Added, Name: "RTarget", New: "1"}}},
		{Type: diff.Edited, Name: "Datacenters", Fields: []diff.Field{
			{Type: diff.Edited, Name: "[0]", Old: "*", New: "dc1"}, {Type: diff.Added, Name: "[1]", New: "dc2"}}},
	})
	if len(d.TaskGroups) != 3 {
		t.Fatalf("%d groups", len(d.TaskGroups))
	}
	a, b, c := d.TaskGroups[0], d.TaskGroups[1], d.TaskGroups[2]
	wantEqual(t, "count", a.Fields, []diff.Field{{Type: diff.Edited, Name: "Count", Old: "2", New: "3", Annotations: []string{diff.ForcesCreate}}})
	fewer := diff.Jobs(updated, job()).TaskGroups[0]
	wantEqual(t, "a smaller count", fewer.Fields, []diff.Field{{Type: diff.Edited, Name: "Count", Old: "3", New: "2", Annotations: []string{diff.ForcesDestroy}}})
	wantEqual(t, "task of a", a.Tasks, []diff.Task{{
		Type: diff.Edited, Name: "t", Annotations: []string{diff.ForcesRestart},
		Objects: []diff.Object{{Type: diff.Edited, Name: "Config", Fields: []diff.Field{{Type: diff.Added, Name: "args[0]", New: "a"}}}},
	}})
	wantEqual(t, "task of b", b.Tasks, []diff.Task{{
		Type: diff.Edited, Name: "t", Annotations: []string{diff.ForcesInPlace},
		Fields: []diff.Field{{Type: diff.Edited, Name: "KillSignal", Old: "SIGTERM", New: "SIGINT"}},
	}})
	if a.Change != diff.GroupDestructive || b.Change != diff.GroupDestructive || c.Type != diff.Added || c.Tasks[0].Annotations[0] != diff.ForcesCreate {
		t.Errorf("groups %+v", d.TaskGroups)
	}
}

// Actions are compared by name, field by field, and change in place.
func TestDiffJobsOfActions(t *testing.T) {
	old, updated := job(), job()
	old.TaskGroups[0].Tasks[0].Actions = []fleet.Action{{Name: "flush", Command: "sh", Args: []string{"-c", "a"}}, {Name: "gone", Command: "x"}}
	updated.TaskGroups[0].Tasks[0].Actions = []fleet.Action{{Name: "new", Command: "y"}, {Name: "flush", Command: "sh", Args: []string{"-c", "b"}}}
	d := diff.Jobs(old, updated)
	wantEqual(t, "task", d.TaskGroups[0].Tasks, []diff.Task{{
		Type: diff.Edited, Name: "t", Annotations: []string{diff.ForcesInPlace},
		Objects: []diff.Object{
			{Type: diff.Edited, Name: "Action[flush]", Fields: []diff.Field{{Type: diff.Edited, Name: "Args[1]", Old: "a", New: "b"}}},
			{Type: diff.Deleted, Name: "Action", Fields: []diff.Field{
				{Type: diff.Deleted, Name: "Command", Old: "x"}, {Type: diff.Deleted, Name: "Name", Old: "gone"}}},
			{Type: diff.Added, Name: "Action", Fields: []diff.Field{
				{Type: diff.Added, Name: "Command", New: "y"}, {Type: diff.Added, Name: "Name", New: "new"}}},
		},
	}})
}

// Services are compared by name, of which there may be several, and networks by their order.
func TestDiffJobsOfServicesAndNetworks(t *testing.T) {
	old, updated := job(), job()
	service := func(port string, tags ...string) fleet.Service {
		return fleet.Service{Name: "web", PortLabel: port, Provider: "nomad", Tags: tags}
	}
	was, is := &old.TaskGroups[0], &updated.TaskGroups[0]
	was.Services = []fleet.Service{service("http", "a", "b"), service("admin"), {Name: "gone"}}
	is.Services = []fleet.Service{service("admin"), service("http", "a", "c"), {Name: "new"}}
	was.Networks = []fleet.NetworkResource{{Mode: "host", DynamicPorts: []fleet.Port{{Label: "http"}}}}
	is.Networks = []fleet.NetworkResource{{Mode: "host", DynamicPorts: []fleet.Port{{Label: "http", To: 80}}}}
	var got []string
	for _, o := range diff.Jobs(old, updated).TaskGroups[0].Objects {
		if o.Type != diff.Edited {
			got = append(got, fmt.Sprintf("%s %s", o.Type, o.Name))
			continue
		}
		for _, f := range o.Fields {
			got = append(got, fmt.Sprintf("%s %s %s %q %q", o.Type, o.Name, f.Name, f.Old, f.New))
		}
	}
	wantEqual(t, "group", got, []string{`Edited Network DynamicPorts[0].To "0" "80"`, `Edited Service[web] Tags[1] "b" "c"`, "Deleted Service", "Added Service"})
}

// What is written as an empty list is the same as what is left out.
func TestDiffJobsOfEmptyLists(t *testing.T) {
	old, updated := job(), job()
	old.TaskGroups[0].Services = []fleet.Service{{Name: "web", Provider: "nomad"}}
	updated.TaskGroups[0].Services = []fleet.Service{{Name: "web", Provider: "nomad", Tags: []string{}}}
	if d := diff.Jobs(old, updated); d.Type != diff.None || len(d.TaskGroups[0].Objects) != 0 {
		t.Errorf("%s: %+v", d.Type, d.TaskGroups[0])
	}
}

// The work of a comparison grows as the lists do, and not as their squares: a request's body has
// room for tens of thousands of services and constraints.
func TestDiffJobsOfLongLists(t *testing.T) {
	work := func(n int) float64 {
		old, updated := job(), job()
		for i := range n {
			service := fleet.Service{Name: fmt.Sprint("s", i), Provider: "nomad"}
			old.TaskGroups[0].Services = append(old.TaskGroups[0].Services, service)
			service.PortLabel = "http"
			updated.TaskGroups[0].Services = append(updated.TaskGroups[0].Services, service)
			old.Constraints = append(old.Constraints, fleet.Constraint{LTarget: "a", Operand: "=", RTarget: fmt.Sprint(i)})
			updated.Constraints = append(updated.Constraints, fleet.Constraint{LTarget: "b", Operand: "=", RTarget: fmt.Sprint(i)})
		}
		return testing.AllocsPerRun(1, func() {
			if d := diff.Jobs(old, updated); len(d.Objects) != 2*n || len(d.TaskGroups[0].Objects) != n {
				t.Fatalf("of %d: %d constraints and %d services differ", n, len(d.Objects), len(d.TaskGroups[0].Objects))
			}
		})
	}
	if short, long := work(50), work(200); long > 5*short {
		t.Errorf("%.0f allocations for 50 of a kind, %.0f for 200", short, long)
	}
}

func TestDiffJobsEnds(t *testing.T) {
	same := job()
	same.Version, same.Stable = 4, true
	same.VersionTag = &fleet.JobVersionTag{Name: "golden"} // of the version, and not of what it says
	if d := diff.Jobs(job(), same); d.Type != diff.None || len(d.Fields)+len(d.Objects) != 0 || len(d.TaskGroups) != 2 {
		t.Errorf("the same job: %+v", d)
	}
	if d := diff.Jobs(nil, job()); d.Type != diff.Added || d.TaskGroups[0].Type != diff.Added || d.TaskGroups[0].Tasks[0].Type != diff.Added {
		t.Errorf("a new job: %+v", d)
	}
	if d := diff.Jobs(job(), nil); d.Type != diff.Deleted || d.TaskGroups[1].Change != diff.GroupRemoved {
		t.Errorf("a purged job: %+v", d)
	}
	if d := diff.Jobs(nil, nil); d.Type != diff.None {
		t.Errorf("nothing: %+v", d)
	}
}

func wantEqual[T any](tb testing.TB, what string, got, want T) {
	tb.Helper()
	if !reflect.DeepEqual(got, want) {
		g, _ := json.MarshalIndent(got, "", " ")
		w, _ := json.MarshalIndent(want, "", " ")
		tb.Errorf("%s: got %s\nwant %s", what, g, w)
	}
}
