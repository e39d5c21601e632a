package real

import (
	"context"
	"fmt"
	"slices"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/cluster"
)

// Reboot measures the time from an agent's start until its tasks run again, after a reboot of the
// machine without a link to the hubs.
type Reboot struct {
	Ground
	Rounds int
	Tasks  int
}

// rebootLimit is the limit of the 99th percentile.
const rebootLimit = 2 * time.Second

// rebootBound is the maximum time of one reboot, on a machine that runs the whole fleet.
const rebootBound = 10 * time.Second

// Run reboots one edge behind a cut link b.Rounds times, and prints the times. The error is
// ErrViolated if the 99th percentile exceeds rebootLimit.
func (b Reboot) Run(ctx context.Context) error {
	return b.measureTasks(ctx, fast(1, 1), b.Tasks, func(s *fleetRun) error {
		e := s.fleet.Edges[0]
		before, err := processes(e)
		if err != nil {
			return err
		}
		cut, err := e.Cut()
		if err != nil {
			return err
		}
		var took []time.Duration
		for range b.Rounds {
			d, err := rebootOnce(ctx, e, before)
			if err != nil {
				return err
			}
			took = append(took, d)
		}
		slices.Sort(took)
		p99 := took[(len(took)*99+99)/100-1]
		b.printLine("reboot without a link, %d tasks, %d times: from agent start to tasks running: median %s, p99 %s, longest %s",
			b.Tasks, b.Rounds, median(took), p99.Round(time.Millisecond), longest(took))
		cut.Lift()
		if p99 > rebootLimit {
			return fmt.Errorf("%w: tasks ran again after %s at the 99th percentile, %s is allowed", ErrViolated, p99, rebootLimit)
		}
		return nil
	})
}

// rebootOnce reboots an edge and returns the time from its agent's start until each task of before
// has one process again.
func rebootOnce(ctx context.Context, e *cluster.Edge, before map[check.TaskKey]int) (time.Duration, error) {
	if err := e.Reboot(); err != nil {
		return 0, err
	}
	began := time.Now()
	err := cluster.Eventually(ctx, rebootBound, "tasks of "+e.Name+" run again after a reboot without a link", func(context.Context) string {
		live, err := processes(e)
		if err != nil {
			return err.Error()
		}
		for task := range before {
			if live[task] != 1 {
				return fmt.Sprintf("task %s has %d processes", task, live[task])
			}
		}
		return ""
	})
	return time.Since(began), err
}
