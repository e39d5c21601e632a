package validate_test

import (
	"slices"
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/fleet/validate"
)

func TestConsulWarning(t *testing.T) {
	service := func(provider string) []fleet.Service { return []fleet.Service{{Provider: provider}} }
	group := &fleet.Job{TaskGroups: []fleet.TaskGroup{{Name: "a", Services: service("nomad")}, {Name: "b", Services: service("consul")}}}
	task := &fleet.Job{TaskGroups: []fleet.TaskGroup{{Name: "b", Tasks: []fleet.Task{{Services: service("consul")}}}}}
	for _, j := range []*fleet.Job{group, task} {
		got := validate.ConsulWarning(j, func() bool { return false })
		if !strings.Contains(got, `group "b"`) || validate.ConsulWarning(j, func() bool { return true }) != "" {
			t.Errorf("%q", got)
		}
	}
	group.TaskGroups[1].Services = nil
	if got := validate.ConsulWarning(group, func() bool { return false }); got != "" {
		t.Errorf("without Consul: %q", got)
	}
}

// TestDriverWarnings: a driver is named once, with the reason why its tasks wait.
func TestDriverWarnings(t *testing.T) {
	group := func(drivers ...string) fleet.TaskGroup {
		var g fleet.TaskGroup
		for _, d := range drivers {
			g.Tasks = append(g.Tasks, fleet.Task{Driver: d})
		}
		return g
	}
	j := &fleet.Job{TaskGroups: []fleet.TaskGroup{group("docker", "dokcer", ""), group("docker", "raw_exec", "abacus")}}
	known := []string{"docker", "raw_exec"}
	wrong := []string{
		`driver "dokcer" is not known (did you mean docker?): its tasks wait for a node that has it`,
		`driver "abacus" is not known (there are docker, raw_exec): its tasks wait for a node that has it`,
	}
	if got := validate.DriverWarnings(j, known, nil); !slices.Equal(got, wrong) {
		t.Errorf("without nodes: %q", got)
	}
	nobody := `no node has a healthy driver "docker": its tasks wait for one; node status NODE shows why a node does not have it`
	got := validate.DriverWarnings(j, known, func(d string) bool { return d == "raw_exec" })
	if want := slices.Insert(slices.Clone(wrong), 0, nobody); !slices.Equal(got, want) {
		t.Errorf("with nodes: %q", got)
	}
}
