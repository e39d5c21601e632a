package real

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/cluster"
	"skerry/fleet"
)

// Restore puts all hubs back to an older copy of their data, from before a job
// was registered that edges run since. Edges have to keep it, and to say so.
type Restore struct{ Ground }

// keptFor is how long the restored cluster is watched for something being
// stopped by absence.
const keptFor = 5 * time.Second

// Run plays it with three hubs and two edges.
func (t Restore) Run(ctx context.Context) error {
	return t.runOnFleet(ctx, fast(3, 2), func(s *fleetRun) error {
		if err := s.runJobUntilQuiet(ctx, workload("old", 2, s.starts, nil)); err != nil {
			return err
		}
		if err := t.swapHubData(ctx, s, saveData); err != nil {
			return err
		}
		if err := s.runJobUntilQuiet(ctx, workload("new", 2, s.starts, nil)); err != nil {
			return err
		}
		before, err := s.takeSnapshot(ctx)
		if err != nil {
			return err
		}
		if err := t.swapHubData(ctx, s, restoreData); err != nil {
			return err
		}
		if err := said(ctx, s.fleet); err != nil {
			return err
		}
		if err := pause(ctx, keptFor); err != nil {
			return err
		}
		return t.checkTasksKept(ctx, s, before)
	})
}

// swapHubData stops all hubs, does something to their data, and starts them again.
func (t Restore) swapHubData(ctx context.Context, s *fleetRun, do func(dir string) error) error {
	for _, h := range s.fleet.Hubs {
		if err := h.Stop(); err != nil {
			return err
		}
	}
	for _, h := range s.fleet.Hubs {
		if err := do(h.Dir); err != nil {
			return err
		}
	}
	for _, h := range s.fleet.Hubs {
		if err := h.Start(); err != nil {
			return err
		}
	}
	for _, h := range s.fleet.Hubs {
		if err := h.AwaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

func saveData(dir string) error { return copyData(dir, dir+".saved") }

func restoreData(dir string) error {
	if err := os.Rename(dir, dir+".newer"); err != nil {
		return fmt.Errorf("restore %s: %w", filepath.Base(dir), err)
	}
	return os.Rename(dir+".saved", dir)
}

// said waits until every edge says that the cluster went back.
func said(ctx context.Context, c *cluster.Cluster) error {
	for _, e := range c.Edges {
		err := cluster.Eventually(ctx, quietBound, e.Name+" says that the cluster went back", func(ctx context.Context) string {
			st, err := e.Local().Status(ctx)
			switch {
			case err != nil:
				return err.Error()
			case st.Link.WentBack == "":
				return "its link is " + st.Link.State
			case st.Link.State != "connected":
				return "it is not connected again: " + st.Link.State + " " + st.Link.LastError
			}
			return ""
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// checkTasksKept checks that everything that ran still runs, with the same processes.
func (t Restore) checkTasksKept(ctx context.Context, s *fleetRun, before check.FleetSnapshot) error {
	var errs []error
	running := 0
	for i, e := range s.fleet.Edges {
		live, err := processes(e)
		if err != nil {
			return err
		}
		for task := range before.Edges[i].Processes {
			running++
			if live[task] != 1 {
				errs = append(errs, fmt.Errorf("%w: %s no longer runs task %s", ErrViolated, e.Name, task))
			}
		}
		rows, err := e.Local().History(ctx, "")
		if err != nil {
			return err
		}
		if k := slices.IndexFunc(rows, func(r fleet.Transition) bool { return r.Event != nil && r.Event.Type == fleet.TaskKilling }); k >= 0 {
			errs = append(errs, fmt.Errorf("%w: %s killed %s of allocation %s", ErrViolated, e.Name, rows[k].Task, fleet.Short(rows[k].Alloc)))
		}
	}
	t.printLine("all hubs restored from an older copy: %d of %d tasks still run, the edges say that the cluster went back", running-len(errs), running)
	if running == 0 {
		errs = append(errs, fmt.Errorf("%w: nothing ran before", ErrVoid))
	}
	return errors.Join(errs...)
}
