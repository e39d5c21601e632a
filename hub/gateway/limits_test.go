package gateway_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/hub/gateway"
	"skerry/hub/state"
	"skerry/syncproto"
)

// The Desired frames for an edge of 50,000 allocations fit the bound of a frame, also where each allocation has a long
// name, many ports, and a large job; a tenth of that with -short.
func TestDesiredFramesOfALargeNode(t *testing.T) {
	name := strings.Repeat("n", 128)
	ports, windows := make([]fleet.AssignedPort, 60), make([]fleet.UpdateWindow, 20)
	for i := range ports {
		ports[i] = fleet.AssignedPort{Label: fmt.Sprint("port", i), Value: 20_000 + i, To: 30_000 + i, HostIP: "2001:db8:1234:5678:9abc:def0:1234:5678", Shared: true}
	}
	for i := range windows {
		windows[i] = fleet.UpdateWindow{Cron: "15,30,45 1-5 * * MON-FRI", Duration: 1 << 40, TimeZone: "America/Argentina/ComodRivadavia"}
	}
	held := &fleet.AssignedResources{Ports: ports, Tasks: map[string]fleet.AssignedTaskResources{
		"main": {Cores: []int{100, 101, 102}, Devices: []fleet.AssignedDevice{{Vendor: "v", Type: "gpu", Name: "x", DeviceIDs: []string{"id-1", "id-2"}}}},
	}}
	for _, tt := range []struct {
		name   string
		many   int
		held   *fleet.AssignedResources
		stop   bool
		config int // bytes
	}{
		{"plain", 50_000, nil, false, 10},
		{"with ports", 5_000, held, false, 10},
		{"with a large job", 3_000, held, false, 700 << 10},
		{"to stop, in windows", 5_000, held, true, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if testing.Short() { // the race detector makes it ten times as slow
				tt.many /= 10
			}
			store, index := state.New(), fleet.Index(0)
			apply := func(c state.Command) {
				t.Helper()
				index++
				if res := store.Apply(index, c); res.Err != nil {
					t.Fatal(res.Err)
				}
			}
			node := fleet.NodeID(fleet.DeriveUUID("node"))
			apply(state.SessionOpen{NodeID: node, Session: 1, Now: 1, Node: &fleet.Node{ID: node, Name: name}})
			apply(state.JobRegister{Job: &fleet.Job{
				Namespace: "default", ID: fleet.JobID(name), Type: fleet.JobTypeService,
				TaskGroups: []fleet.TaskGroup{{Name: name, Count: tt.many, Tasks: []fleet.Task{{Name: "main", Config: map[string]any{"text": strings.Repeat("x", tt.config)}}}}},
			}})
			j, _ := store.View().Job("default", fleet.JobID(name))
			var allocs []fleet.Alloc
			for i := range tt.many {
				allocs = append(allocs, fleet.Alloc{
					ID: fleet.AllocID(fleet.DeriveUUID("alloc", fmt.Sprint(i))), Namespace: "default", JobID: j.ID, JobHash: j.SpecHash,
					TaskGroup: name, NodeID: node, Name: fmt.Sprintf("%s.%s[%d]", name, name, i), Allotment: tt.held,
					PreviousAllocation: fleet.AllocID(fleet.DeriveUUID("before", fmt.Sprint(i))), DeploymentID: "5a5b5c5d-0000-4000-8000-000000000001",
					AllocatedResources: fleet.Resources{CPU: 1 << 40, MemoryMB: 1 << 40, DiskMB: 1 << 40, Cores: 1 << 30, MemoryMaxMB: 1 << 40},
				})
			}
			apply(state.Plan{EvalID: "e", Now: 1, Result: fleet.PlanResult{NodeAllocation: map[fleet.NodeID][]fleet.Alloc{node: allocs}}})
			if tt.stop {
				for i := range allocs {
					allocs[i].DesiredStatus, allocs[i].StopWindows = fleet.DesiredStop, windows
				}
				apply(state.Plan{EvalID: "e", Now: 1, Result: fleet.PlanResult{NodeUpdate: map[fleet.NodeID][]fleet.Alloc{node: allocs}}})
			}
			told, largest := 0, 0
			for _, f := range gateway.DesiredFrames(store.View(), node, slog.New(slog.DiscardHandler)) {
				b, err := syncproto.EncodeMessage(f)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := syncproto.DecodeMessage(syncproto.FrameDesired, b); err != nil {
					t.Fatal(err)
				}
				told, largest = told+max(len(f.Run), len(f.Stop)), max(largest, len(b))
			}
			if told != tt.many {
				t.Errorf("%d allocations told, want %d", told, tt.many)
			}
			t.Logf("the largest frame has %d bytes", largest)
		})
	}
}
