//go:build planted

package drainer_test

import (
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/drainer"
	"skerry/hub/state"
	"skerry/planted"
)

// A batch job stays on a node that is drained until the deadline, and with the bug
// beyond it.
func TestPlantedDeadlineForgotten(t *testing.T) {
	const node = fleet.NodeID("11111111-1111-4111-8111-111111111111")
	at := time.Unix(1000, 0)
	store, index := state.New(), fleet.Index(0)
	apply := func(c state.Command) {
		index++
		if res := store.Apply(index, c); res.Err != nil {
			t.Fatalf("apply %T: %v", c, res.Err)
		}
	}
	now := at.UnixNano()
	apply(state.NodeRegister{Node: fleet.Node{ID: node, Name: "n", Datacenter: "dc1", NodePool: "default"}, Now: now})
	apply(state.SessionOpen{NodeID: node, Session: 1, Instance: "i", BootID: "b", Hub: "h", EvalSeed: "s", Now: now})
	job := &fleet.Job{Namespace: "default", ID: "report", Type: fleet.JobTypeBatch, Priority: 50, TaskGroups: []fleet.TaskGroup{{
		Name: "web", Count: 1, Tasks: []fleet.Task{{Name: "t", Driver: "sim"}},
	}}}
	apply(state.JobRegister{Job: job, Now: now})
	j, _ := store.View().Job("default", "report")
	apply(state.Plan{Now: now, Result: fleet.PlanResult{NodeAllocation: map[fleet.NodeID][]fleet.Alloc{node: {{
		ID: "22222222-2222-4222-8222-222222222222", Namespace: "default", NodeID: node, JobID: j.ID, JobVersion: j.Version,
		JobHash: j.SpecHash, TaskGroup: "web", Name: "report.web[0]",
	}}}}})
	apply(state.NodeDrain{NodeID: node, Drain: fleet.NewDrain(time.Minute, false, at), EvalSeed: "s", Now: now})
	ends := func() bool {
		step, _ := drainer.Next(store.View(), at.Add(2*time.Minute))
		return len(step.Done) > 0
	}
	if !ends() {
		t.Fatal("without the bug the drain goes on after its deadline")
	}
	defer planted.Plant(planted.DeadlineOfDrainOff)()
	if ends() {
		t.Fatal("with the bug the drain ends at its deadline")
	}
}
