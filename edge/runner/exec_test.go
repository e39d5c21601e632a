package runner_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"skerry/drivers"
	"skerry/drivers/sim"
	"skerry/fleet"
)

// withShell is a driver beside whose tasks commands run for as long as they may.
type withShell struct{ drivers.Driver }

type shellTask struct{ drivers.Task }

func (d withShell) Recover(ctx context.Context, cfg drivers.TaskConfig, h drivers.Handle) (drivers.Task, error) {
	t, err := d.Driver.Recover(ctx, cfg, h)
	return shellTask{t}, err
}

func (shellTask) Exec(ctx context.Context, x fleet.Exec) (int, error) {
	if x.Command[0] == "true" {
		return 0, nil
	}
	<-ctx.Done()
	return 0, ctx.Err()
}

func TestCommandsEndWithTheirTask(t *testing.T) {
	policy := &fleet.RestartPolicy{Attempts: 1, Interval: time.Hour, Delay: time.Minute, Mode: "fail"}
	bubble(t, allocOf(fleet.JobTypeService, policy, task("a", map[string]any{"run_for": "1h"})), func(m *machine) {
		f := m.factory()
		f.Drivers[sim.Name] = withShell{f.Drivers[sim.Name]}
		r, err := f.New(m.alloc, m.journal.last(), m.journal)
		if err != nil {
			t.Fatal(err)
		}
		exec := func(ctx context.Context, task, command string) error {
			_, err := r.Exec(ctx, task, fleet.Exec{Command: []string{command}})
			return err
		}
		if err := exec(m.Context(), "a", "true"); fleet.CodeOf(err) != fleet.CodeConflict {
			t.Errorf("before it runs: %v", err)
		}
		a := m.start(r)
		synctest.Wait()
		if err := exec(m.Context(), "a", "true"); err != nil {
			t.Error(err)
		}
		if err := exec(m.Context(), "b", "true"); fleet.CodeOf(err) != fleet.CodeNotFound {
			t.Errorf("beside a task that there is none of: %v", err)
		}
		short, cancel := context.WithTimeout(m.Context(), time.Minute)
		defer cancel()
		if err := exec(short, "a", "forever"); err != context.DeadlineExceeded {
			t.Errorf("whoever asked is gone: %v", err)
		}
		began := time.Now()
		if err := exec(m.Context(), "a", "forever"); fleet.CodeOf(err) != fleet.CodeConflict || time.Since(began) >= time.Hour {
			t.Errorf("the task ended: %v after %v", err, time.Since(began))
		}
		if err := exec(m.Context(), "a", "true"); fleet.CodeOf(err) != fleet.CodeConflict {
			t.Errorf("while it waits for its restart: %v", err)
		}
		a.Stop("")
		a.mustEnd()
	})
}

func TestDriversWithoutCommands(t *testing.T) {
	bubble(t, allocOf(fleet.JobTypeService, nil, task("a", nil)), func(m *machine) {
		r := m.mustRunner()
		m.start(r)
		synctest.Wait()
		if _, err := r.Exec(m.Context(), "a", fleet.Exec{Command: []string{"true"}}); fleet.CodeOf(err) != fleet.CodeUnsupported {
			t.Errorf("got %v", err)
		}
	})
}
