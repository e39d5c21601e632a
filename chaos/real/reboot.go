package real

import (
	"context"
	"fmt"
	"slices"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/cluster"
)

// Reboot measures how long after its agent starts an edge has its tasks running
// again, where the machine rebooted and no hub is in reach.
type Reboot struct {
	Ground
	Rounds int
	Tasks  int
}

// rebootLimit is what the 99th percentile has to stay within.
const rebootLimit = 2 * time.Second

// rebootBound is how long tasks may take to run again after a reboot without a link, on a
// machine that runs the whole fleet at once.
const rebootBound = 10 * time.Second

// Run reboots one edge behind a cut link, again and again.
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

// rebootOnce reboots an edge and waits until exactly the tasks of before run
// again.
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
