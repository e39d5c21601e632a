package scheduler_test

import (
	"fmt"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/scheduler"
)

// BenchmarkPlacement is what one placement costs, by how many nodes there are:
// jobs of one allocation, and one job of many.
func BenchmarkPlacement(b *testing.B) {
	for _, nodes := range []int{100, 500, 10_000} {
		c := newCluster(b)
		c.addReadyNodes(nodes, func(n *fleet.Node) {
			for i := range 40 {
				n.Attributes[fmt.Sprintf("attr.%d", i)] = "value"
			}
			n.Resources.CPU, n.Resources.MemoryMB, n.Resources.DiskMB = 140_000, 819_200, 10<<20
		})
		view := c.store.View()
		for _, count := range []int{1, 10, 1000, 10_000} {
			if count > nodes*100 {
				continue
			}
			j := job(count, func(j *fleet.Job) {
				j.Constraints = []fleet.Constraint{{LTarget: "${attr.kernel.name}", Operand: "=", RTarget: "linux"}}
			})
			b.Run(fmt.Sprintf("nodes=%d/count=%d", nodes, count), func(b *testing.B) {
				placed := 0
				for b.Loop() {
					out, err := scheduler.DryRun(view, j, time.Unix(0, 0))
					if err != nil {
						b.Fatal(err)
					}
					if placed += len(out.Placements); len(out.Placements) != count {
						b.Fatalf("%d of %d placed: %v", len(out.Placements), count, out.Failed["web"])
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(placed), "ns/placement")
			})
		}
	}
}

// BenchmarkJob is a whole evaluation, from delivery to acknowledgement, with the
// plan applied to the state.
func BenchmarkJob(b *testing.B) {
	for range b.N {
		b.StopTimer()
		c := newCluster(b)
		c.addReadyNodes(500, func(n *fleet.Node) { n.Resources = fleet.Resources{CPU: 140_000, MemoryMB: 819_200, DiskMB: 10 << 20} })
		b.StartTimer()
		c.registerAndSchedule(job(10_000))
		b.StopTimer()
		if n := len(c.nonTerminalAllocs()); n != 10_000 {
			b.Fatalf("%d placed", n)
		}
	}
}
