package fleet_test

import (
	"encoding/json"
	"strings"
	"testing"

	"skerry/fleet"
)

// TestSecretsAreCounted adds the secrets folder, which is in memory, to the memory of its task, also where that is
// shown, and to the most that the task may take.
func TestSecretsAreCounted(t *testing.T) {
	task := func(name string, r fleet.TaskResources) fleet.Task { return fleet.Task{Name: name, Resources: r} }
	g := fleet.TaskGroup{Name: "g", Tasks: []fleet.Task{
		task("a", fleet.TaskResources{Resources: fleet.Resources{CPU: 10, MemoryMB: 100, MemoryMaxMB: 150}, SecretsMB: 7}),
		task("b", fleet.TaskResources{Resources: fleet.Resources{CPU: 10, MemoryMB: 50}, SecretsMB: 3}),
	}}
	want := fleet.Resources{CPU: 20, MemoryMB: 160, MemoryMaxMB: 210}
	if got := g.Resources(); got != want {
		t.Errorf("the group takes %+v, want %+v", got, want)
	}
	job := &fleet.Job{ID: "j", TaskGroups: []fleet.TaskGroup{g}}
	text, err := json.Marshal(&fleet.Alloc{ID: "x", TaskGroup: "g", Job: job, AllocatedResources: want})
	if err != nil || !strings.Contains(string(text), `"MemoryMB":107`) || !strings.Contains(string(text), `"MemoryMaxMB":157`) {
		t.Errorf("the allocation is shown as %s, %v", text, err)
	}
	plain := fleet.TaskResources{Resources: fleet.Resources{CPU: 10, MemoryMB: 100}}
	if got := plain.WithSecrets(); got != plain.Resources {
		t.Errorf("without secrets it is %+v", got)
	}
}
