package drainer_test

import (
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/drainer"
	"skerry/hub/state"
	"skerry/syncproto"
)

// TestADrainWaitsForMinHealthyTime: of a group of two, whose edges were not asked for health,
// the one on a draining node goes when the other has been running for as long as the migrate
// block says.
func TestADrainWaitsForMinHealthyTime(t *testing.T) {
	const leaving, staying = fleet.NodeID("11111111-1111-4111-8111-111111111111"), fleet.NodeID("22222222-2222-4222-8222-222222222222")
	store, index, at := state.New(), fleet.Index(0), time.Unix(1000, 0)
	apply := func(c state.Command) {
		t.Helper()
		index++
		if res := store.Apply(index, c); res.Err != nil {
			t.Fatalf("apply %T: %v", c, res.Err)
		}
	}
	now := at.UnixNano()
	group := fleet.TaskGroup{Name: "web", Count: 2, Tasks: []fleet.Task{{Name: "t", Driver: "sim"}}, Migrate: &fleet.Migrate{MaxParallel: 1, MinHealthyTime: 20 * time.Second}}
	apply(state.JobRegister{Job: &fleet.Job{Namespace: "default", ID: "shop", Type: fleet.JobTypeService, Priority: 50, TaskGroups: []fleet.TaskGroup{group}}, Now: now})
	j, _ := store.View().Job("default", "shop")
	for id, node := range map[fleet.AllocID]fleet.NodeID{"a": leaving, "b": staying} {
		apply(state.NodeRegister{Node: fleet.Node{ID: node, Name: string(id), Datacenter: "dc1", NodePool: "default"}, Now: now})
		apply(state.SessionOpen{NodeID: node, Session: 1, Instance: "i", BootID: "b", Hub: "h", EvalSeed: "s", Now: now})
		apply(state.Plan{Now: now, Jobs: []*fleet.Job{j}, Result: fleet.PlanResult{NodeAllocation: map[fleet.NodeID][]fleet.Alloc{node: {{
			ID: id, Namespace: "default", NodeID: node, JobID: j.ID, JobVersion: j.Version, JobHash: j.SpecHash, TaskGroup: "web", Name: "shop.web[0]",
		}}}}})
		n, _ := store.View().Node(node)
		row, err := syncproto.EncodeRow(fleet.Transition{Seq: 1, BootID: "b", Kind: fleet.TransitionAlloc, Alloc: id, ClientStatus: fleet.ClientRunning})
		if err != nil {
			t.Fatal(err)
		}
		apply(state.AllocUpdates{EvalSeed: "s", Now: now, Batches: []state.NodeRows{{NodeID: node, Epoch: n.Epoch, First: 1, Prev: n.ChainHash, Rows: [][]byte{row}}}})
	}
	apply(state.NodeDrain{NodeID: leaving, Drain: fleet.NewDrain(time.Hour, false, at), EvalSeed: "s", Now: now})
	if step, again := drainer.Next(store.View(), at.Add(19*time.Second)); len(step.Migrate) > 0 || !again.Equal(at.Add(20*time.Second)) {
		t.Errorf("after 19 s it moves %v, and looks again at %s", step.Migrate, again)
	}
	if step, _ := drainer.Next(store.View(), at.Add(20*time.Second)); len(step.Migrate) != 1 || step.Migrate[0] != "a" {
		t.Errorf("after 20 s it moves %v", step.Migrate)
	}
}

// A batch job stays on a node that is drained until the drain's deadline.
func TestADrainEndsAtItsDeadline(t *testing.T) {
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
	if step, _ := drainer.Next(store.View(), at.Add(2*time.Minute)); len(step.Done) == 0 {
		t.Error("the drain goes on after its deadline")
	}
}
