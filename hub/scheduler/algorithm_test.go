package scheduler_test

import (
	"testing"

	"skerry/fleet"
	"skerry/hub/state"
)

// What docs/jobs.md says of a job of many small allocations on large nodes: binpack puts
// most of it on one of them, spread (of the cluster, or of the pool alone) as much on each.
func TestManySmallAllocationsOnLargeNodes(t *testing.T) {
	const nodes, many = 100, 3_000
	for _, tt := range []struct {
		name, cluster, pool string
		least, most         int // on the fullest node
	}{
		{"binpack", "binpack", "", 2_000, many},
		{"spread", "spread", "", many / nodes, many / nodes},
		{"spread of the pool", "binpack", "spread", many / nodes, many / nodes},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t)
			c.addReadyNodes(nodes, func(n *fleet.Node) { n.Resources = fleet.Resources{CPU: 40_000, MemoryMB: 40_000, DiskMB: 1 << 20} })
			c.setSchedulerConfig(func(conf *fleet.SchedulerConfiguration) { conf.SchedulerAlgorithm = tt.cluster })
			if tt.pool != "" {
				c.mustApplyCommand(state.Pool{Pool: fleet.Pool{Name: fleet.DefaultPool, SchedulerConfiguration: &fleet.PoolScheduling{SchedulerAlgorithm: tt.pool}}})
			}
			c.registerAndSchedule(job(many, func(j *fleet.Job) {
				j.TaskGroups[0].Tasks[0].Resources.Resources = fleet.Resources{CPU: 10, MemoryMB: 10}
			}))
			on := map[fleet.NodeID]int{}
			fullest := 0
			for _, a := range c.nonTerminalAllocs() {
				on[a.NodeID]++
				fullest = max(fullest, on[a.NodeID])
			}
			if len(c.nonTerminalAllocs()) != many || fullest < tt.least || fullest > tt.most {
				t.Errorf("%d placed, %d on the fullest node, want %d to %d", len(c.nonTerminalAllocs()), fullest, tt.least, tt.most)
			}
			t.Logf("the fullest node has %d", fullest)
		})
	}
}
