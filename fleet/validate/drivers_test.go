package validate_test

import (
	"slices"
	"testing"

	"skerry/fleet"
	"skerry/fleet/validate"
)

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
