package rpc_test

import (
	"fmt"
	"testing"

	"skerry/fleet"
	"skerry/hub/rpc"
)

// A plan of 50,000 allocations travels from the hub whose worker made it to the leader,
// on one node and on 5,000; a tenth of that with -short.
func TestLargePlansTravel(t *testing.T) {
	many := 50_000
	if testing.Short() { // the race detector makes it ten times as slow
		many /= 10
	}
	for _, nodes := range []int{1, 5_000} {
		plan := fleet.Plan{EvalID: "e", NodeAllocation: map[fleet.NodeID][]fleet.Alloc{}}
		for i := range many {
			node := fleet.NodeID(fleet.DeriveUUID("node", fmt.Sprint(i%nodes)))
			plan.NodeAllocation[node] = append(plan.NodeAllocation[node], fleet.Alloc{
				ID: fleet.AllocID(fleet.DeriveUUID("alloc", fmt.Sprint(i))), Namespace: "default", EvalID: "5a5b5c5d-0000-4000-8000-000000000000",
				Name: fmt.Sprintf("a-job-with-a-name.a-group[%d]", i), NodeID: node, NodeName: fmt.Sprint("edge", i%nodes),
				JobID: "a-job-with-a-name", JobHash: "00112233445566778899aabbccddeeff", TaskGroup: "a-group",
				AllocatedResources: fleet.Resources{CPU: 10, MemoryMB: 10, DiskMB: 10}, Score: 0.75,
				Metrics: &fleet.AllocMetric{
					NodesEvaluated: nodes, NodesInPool: nodes, NodesAvailable: map[string]int{"dc1": nodes}, AllocationTime: 12345,
					ScoreMetaData: []fleet.NodeScore{{NodeID: node, Scores: map[string]float64{"binpack": 0.5, "job-anti-affinity": 0.25}, NormScore: 0.4}},
				},
				Allotment:     &fleet.AssignedResources{Ports: []fleet.AssignedPort{{Label: "http", Value: 20_000 + i%10_000, HostIP: "192.0.2.1"}}},
				DesiredStatus: fleet.DesiredRun, DesiredDescription: "group a-group wants 50000", ClientStatus: fleet.ClientPending,
				CreateTime: 1e18, ModifyTime: 1e18, DeploymentID: "5a5b5c5d-0000-4000-8000-000000000001", DeploymentStatus: &fleet.AllocDeployment{},
			})
		}
		b, err := rpc.Encode(plan)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > rpc.MaxBody {
			t.Errorf("on %d nodes: %d bytes, at most %d travel", nodes, len(b), rpc.MaxBody)
		}
		got, err := rpc.Decode[fleet.Plan](b)
		if err != nil {
			t.Fatalf("on %d nodes: %v", nodes, err)
		}
		total := 0
		for _, list := range got.NodeAllocation {
			total += len(list)
		}
		if total != many || len(got.NodeAllocation) != nodes {
			t.Errorf("%d allocations on %d nodes came out of %d on %d", total, len(got.NodeAllocation), many, nodes)
		}
		t.Logf("%d allocations on %d nodes: %d bytes", many, nodes, len(b))
	}
}
