package fleet_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"skerry/fleet"
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

	d := fleet.DiffJobs(job(), updated)
	if d.Type != fleet.DiffEdited || d.ID != "j" {
		t.Errorf("job %s %s", d.Type, d.ID)
	}
	wantEqual(t, "fields", d.Fields, []fleet.FieldDiff{
		{Type: fleet.DiffAdded, Name: "Meta[owner]", New: "ops"},
		{Type: fleet.DiffEdited, Name: "Priority", Old: "50", New: "80"},
	})
	wantEqual(t, "objects", d.Objects, []fleet.ObjectDiff{
		{Type: fleet.DiffAdded, Name: "Constraint", Fields: []fleet.FieldDiff{
			{Type: fleet.DiffAdded, Name: "LTarget", New: "${attr.x}"}, {Type: fleet.DiffAdded, Name: "Operand", New: "="},
			{Type: fleet.DiffAdded, Name: "RTarget", New: "1"}}},
		{Type: fleet.DiffEdited, Name: "Datacenters", Fields: []fleet.FieldDiff{
			{Type: fleet.DiffEdited, Name: "[0]", Old: "*", New: "dc1"}, {Type: fleet.DiffAdded, Name: "[1]", New: "dc2"}}},
	})
	if len(d.TaskGroups) != 3 {
		t.Fatalf("%d groups", len(d.TaskGroups))
	}
	a, b, c := d.TaskGroups[0], d.TaskGroups[1], d.TaskGroups[2]
	wantEqual(t, "count", a.Fields, []fleet.FieldDiff{{Type: fleet.DiffEdited, Name: "Count", Old: "2", New: "3", Annotations: []string{fleet.ForcesCreate}}})
	fewer := fleet.DiffJobs(updated, job()).TaskGroups[0]
	wantEqual(t, "a smaller count", fewer.Fields, []fleet.FieldDiff{{Type: fleet.DiffEdited, Name: "Count", Old: "3", New: "2", Annotations: []string{fleet.ForcesDestroy}}})
	wantEqual(t, "task of a", a.Tasks, []fleet.TaskDiff{{
		Type: fleet.DiffEdited, Name: "t", Annotations: []string{fleet.ForcesRestart},
		Objects: []fleet.ObjectDiff{{Type: fleet.DiffEdited, Name: "Config", Fields: []fleet.FieldDiff{{Type: fleet.DiffAdded, Name: "args[0]", New: "a"}}}},
	}})
	wantEqual(t, "task of b", b.Tasks, []fleet.TaskDiff{{
		Type: fleet.DiffEdited, Name: "t", Annotations: []string{fleet.ForcesInPlace},
		Fields: []fleet.FieldDiff{{Type: fleet.DiffEdited, Name: "KillSignal", Old: "SIGTERM", New: "SIGINT"}},
	}})
	if a.Change != fleet.GroupDestructive || b.Change != fleet.GroupDestructive || c.Type != fleet.DiffAdded || c.Tasks[0].Annotations[0] != fleet.ForcesCreate {
		t.Errorf("groups %+v", d.TaskGroups)
	}
}

// Actions are compared by name, field by field, and change in place.
func TestDiffJobsOfActions(t *testing.T) {
	old, updated := job(), job()
	old.TaskGroups[0].Tasks[0].Actions = []fleet.Action{{Name: "flush", Command: "sh", Args: []string{"-c", "a"}}, {Name: "gone", Command: "x"}}
	updated.TaskGroups[0].Tasks[0].Actions = []fleet.Action{{Name: "new", Command: "y"}, {Name: "flush", Command: "sh", Args: []string{"-c", "b"}}}
	d := fleet.DiffJobs(old, updated)
	wantEqual(t, "task", d.TaskGroups[0].Tasks, []fleet.TaskDiff{{
		Type: fleet.DiffEdited, Name: "t", Annotations: []string{fleet.ForcesInPlace},
		Objects: []fleet.ObjectDiff{
			{Type: fleet.DiffEdited, Name: "Action[flush]", Fields: []fleet.FieldDiff{{Type: fleet.DiffEdited, Name: "Args[1]", Old: "a", New: "b"}}},
			{Type: fleet.DiffDeleted, Name: "Action", Fields: []fleet.FieldDiff{
				{Type: fleet.DiffDeleted, Name: "Command", Old: "x"}, {Type: fleet.DiffDeleted, Name: "Name", Old: "gone"}}},
			{Type: fleet.DiffAdded, Name: "Action", Fields: []fleet.FieldDiff{
				{Type: fleet.DiffAdded, Name: "Command", New: "y"}, {Type: fleet.DiffAdded, Name: "Name", New: "new"}}},
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
	for _, o := range fleet.DiffJobs(old, updated).TaskGroups[0].Objects {
		if o.Type != fleet.DiffEdited {
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
	if d := fleet.DiffJobs(old, updated); d.Type != fleet.DiffNone || len(d.TaskGroups[0].Objects) != 0 {
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
			if d := fleet.DiffJobs(old, updated); len(d.Objects) != 2*n || len(d.TaskGroups[0].Objects) != n {
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
	if d := fleet.DiffJobs(job(), same); d.Type != fleet.DiffNone || len(d.Fields)+len(d.Objects) != 0 || len(d.TaskGroups) != 2 {
		t.Errorf("the same job: %+v", d)
	}
	if d := fleet.DiffJobs(nil, job()); d.Type != fleet.DiffAdded || d.TaskGroups[0].Type != fleet.DiffAdded || d.TaskGroups[0].Tasks[0].Type != fleet.DiffAdded {
		t.Errorf("a new job: %+v", d)
	}
	if d := fleet.DiffJobs(job(), nil); d.Type != fleet.DiffDeleted || d.TaskGroups[1].Change != fleet.GroupRemoved {
		t.Errorf("a purged job: %+v", d)
	}
	if d := fleet.DiffJobs(nil, nil); d.Type != fleet.DiffNone {
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
