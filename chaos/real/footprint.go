package real

import (
	"context"
	"fmt"
	"os"
	"time"

	"skerry/chaos/cluster"
	"skerry/chaos/engine"
	"skerry/chaos/proc"
)

// Footprint measures the memory of an idle hub and of an edge with ten tasks and their
// supervisors, and the size of the edge's program.
type Footprint struct{ Ground }

// footprintTasks is the number of tasks on the measured edge.
const footprintTasks = 10

// footprintRest is the idle time before each measurement.
const footprintRest = 10 * time.Second

// Run starts one hub and one edge, measures them after an idle time, and prints the results beside
// their limits. Exceeding a limit is no error.
func (f Footprint) Run(ctx context.Context) error {
	return f.runOnFleet(ctx, cluster.Config{Hubs: 1, Edges: 1}, func(s *fleetRun) error {
		if !engine.Pause(ctx, footprintRest) {
			return ctx.Err()
		}
		hub, err := proc.Resident(s.fleet.Hubs[0].Pid())
		if err != nil {
			return err
		}
		if err := s.runJobUntilQuiet(ctx, workload("ten", footprintTasks, s.starts)); err != nil {
			return err
		}
		if !engine.Pause(ctx, footprintRest) {
			return ctx.Err()
		}
		return f.printFootprint(hub, s.fleet.Edges[0])
	})
}

// printFootprint measures the edge and prints all results. hub is the hub's resident memory in bytes.
func (f Footprint) printFootprint(hub int64, e *cluster.Edge) error {
	agent, err := proc.Resident(e.Pid())
	if err != nil {
		return err
	}
	together, err := supervised(e)
	if err != nil {
		return err
	}
	binary, err := os.Stat(f.EdgeBinary)
	if err != nil {
		return fmt.Errorf("measure skerry-edge: %w", err)
	}
	for _, figure := range []struct {
		what  string
		bytes int64
		limit int64
	}{
		{"hub, idle, resident", hub, 60},
		{fmt.Sprintf("edge agent with %d tasks, resident", footprintTasks), agent, 25},
		{"agent and all supervisors, proportional", together, 70},
		{"skerry-edge, file", binary.Size(), 20},
	} {
		fmt.Fprintf(f.Out, "%-42s %6.1f MiB   (at most %d)\n", figure.what, float64(figure.bytes)/(1<<20), figure.limit)
	}
	return nil
}

// supervised returns the sum of the proportional set sizes, in bytes, of the agent and its
// supervisors: all processes of the edge that run the edge's own program.
func supervised(e *cluster.Edge) (int64, error) {
	pids, err := proc.Below(e.Dir)
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, pid := range pids {
		if program, err := proc.Program(pid); err != nil || program != e.Binary() {
			continue
		}
		pss, err := proc.Proportional(pid)
		if err != nil {
			return 0, err
		}
		sum += pss
	}
	return sum, nil
}
