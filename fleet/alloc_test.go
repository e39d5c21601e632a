package fleet_test

import (
	"testing"

	"skerry/fleet"
)

// TestDoneAfterAll: the work of a batch job that a hub gave up is done if its edge says so, and nobody had killed its main task
// or its leader.
func TestDoneAfterAll(t *testing.T) {
	events := func(types ...string) fleet.TaskState {
		var s fleet.TaskState
		for _, one := range types {
			s.Events = append(s.Events, fleet.TaskEvent{Type: one})
		}
		return s
	}
	byItself := events(fleet.TaskStarted, fleet.TaskTerminated)
	killed := events(fleet.TaskStarted, fleet.TaskKilling, fleet.TaskTerminated, fleet.TaskKilled)
	sidecar := fleet.Task{Name: "log", Lifecycle: &fleet.Lifecycle{Hook: fleet.HookPrestart, Sidecar: true}}
	for name, tc := range map[string]struct {
		change func(*fleet.Alloc)
		want   bool
	}{
		"ended by itself":                {func(*fleet.Alloc) {}, true},
		"still lost":                     {func(a *fleet.Alloc) { a.ClientStatus = fleet.ClientLost }, false},
		"failed":                         {func(a *fleet.Alloc) { a.ClientStatus = fleet.ClientFailed }, false},
		"a service":                      {func(a *fleet.Alloc) { a.Job.Type = fleet.JobTypeService }, false},
		"replaced":                       {func(a *fleet.Alloc) { a.NextAllocation = "b" }, false},
		"stopped by a hub, not given up": {func(a *fleet.Alloc) { a.AllocStates = nil }, false},
		"stopped by its edge":            {func(a *fleet.Alloc) { a.StoppedOnEdge = true }, false},
		"killed":                         {func(a *fleet.Alloc) { a.TaskStates["t"] = killed }, false},
		"killed before a restart": {func(a *fleet.Alloc) {
			a.TaskStates["t"] = events(fleet.TaskKilled, fleet.TaskStarted, fleet.TaskTerminated)
		}, true},
		"its sidecar was killed": {func(a *fleet.Alloc) { a.TaskStates["log"] = killed }, true},
		"ended with its leader":  {func(a *fleet.Alloc) { a.Job.TaskGroups[0].Tasks[2].Leader, a.TaskStates["t"] = true, killed }, true},
		"its leader was killed":  {func(a *fleet.Alloc) { a.Job.TaskGroups[0].Tasks[2].Leader, a.TaskStates["main"] = true, killed }, false},
	} {
		a := fleet.Alloc{
			TaskGroup: "g", DesiredStatus: fleet.DesiredStop, ClientStatus: fleet.ClientComplete,
			AllocStates: []fleet.AllocState{{Field: fleet.AllocStateClientStatus, Value: fleet.ClientLost}},
			TaskStates:  map[string]fleet.TaskState{"t": byItself, "main": byItself},
			Job:         &fleet.Job{Type: fleet.JobTypeBatch, TaskGroups: []fleet.TaskGroup{{Name: "g", Tasks: []fleet.Task{{Name: "t"}, sidecar, {Name: "main"}}}}},
		}
		tc.change(&a)
		if got := a.DoneAfterAll(); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
