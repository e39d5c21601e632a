package runner_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/drivers"
	"skerry/drivers/sim"
	"skerry/fleet"
)

// withShell is a driver whose commands run until they are ended.
type withShell struct{ drivers.Driver }

type shellTask struct{ drivers.Task }

func (d withShell) Recover(ctx context.Context, cfg drivers.TaskConfig, h drivers.Handle) (drivers.Task, error) {
	t, err := d.Driver.Recover(ctx, cfg, h)
	return shellTask{t}, err
}

func (shellTask) Exec(ctx context.Context, x fleet.Exec) (int, error) {
	switch x.Command[0] {
	case "true":
		return 0, nil
	case "echo":
		_, err := fmt.Fprint(x.Stdout, strings.Join(x.Command[1:], " "))
		return 7, err
	}
	<-ctx.Done()
	return 0, ctx.Err()
}

func TestCommandsEndWithTheirTask(t *testing.T) {
	policy := &fleet.RestartPolicy{Attempts: 1, Interval: time.Hour, Delay: time.Minute, Mode: "fail"}
	inVirtualTime(t, allocOf(fleet.JobTypeService, policy, task("a", map[string]any{"run_for": "1h"})), func(m *machine) {
		f := m.newFactory()
		f.Drivers[sim.Name] = withShell{f.Drivers[sim.Name]}
		r, err := f.New(m.alloc, m.journal.lastState(), m.journal)
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
		a := m.startRunner(r)
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
	inVirtualTime(t, allocOf(fleet.JobTypeService, nil, task("a", nil)), func(m *machine) {
		r := m.mustRunner()
		m.startRunner(r)
		synctest.Wait()
		if _, err := r.Exec(m.Context(), "a", fleet.Exec{Command: []string{"true"}}); fleet.CodeOf(err) != fleet.CodeUnsupported {
			t.Errorf("got %v", err)
		}
	})
}

// An action comes from the newest version of the job, without a restart of its task, and is
// interpolated with the task's environment.
func TestActions(t *testing.T) {
	with := func(tk fleet.Task, as ...fleet.Action) fleet.Task {
		tk.Env = map[string]string{"SHOP": "7"}
		tk.Actions = as
		return tk
	}
	greet := fleet.Action{Name: "greet", Command: "echo", Args: []string{"${NOMAD_TASK_NAME}", "${SHOP}", "${node.datacenter}", "${unknown} $SHOP"}}
	inVirtualTime(t, allocOf(fleet.JobTypeService, nil, with(task("a", nil), greet), task("b", nil)), func(m *machine) {
		f := m.newFactory()
		f.Node = func() fleet.Node { return fleet.Node{Datacenter: "port"} }
		f.Drivers[sim.Name] = withShell{f.Drivers[sim.Name]}
		r, err := f.New(m.alloc, m.journal.lastState(), m.journal)
		if err != nil {
			t.Fatal(err)
		}
		a := m.startRunner(r)
		synctest.Wait()
		run := func(task, action, says string, code fleet.Code) {
			t.Helper()
			var out strings.Builder
			exit, err := r.Exec(m.Context(), task, fleet.Exec{Action: action, Stdout: &out})
			if fleet.CodeOf(err) != code || out.String() != says || err == nil && exit != 7 {
				t.Errorf("%s of %s: %d, %v, %q, want %q", action, task, exit, err, out.String(), says)
			}
		}
		run("a", "greet", "a 7 port ${unknown} $SHOP", "")
		run("a", "part", "", fleet.CodeNotFound)
		run("b", "greet", "", fleet.CodeNotFound)
		run("c", "greet", "", fleet.CodeNotFound)

		newer := m.alloc
		job := *m.alloc.Job
		job.Version, job.TaskGroups = 1, []fleet.TaskGroup{m.alloc.Job.TaskGroups[0]}
		part := fleet.Action{Name: "part", Command: "echo", Args: []string{"x"}}
		job.TaskGroups[0].Tasks = []fleet.Task{with(task("a", nil), part), task("b", nil)}
		newer.Job, newer.JobVersion = &job, 1
		r.Update(newer)
		synctest.Wait()
		run("a", "part", "x", "")
		run("a", "greet", "", fleet.CodeNotFound)
		if n := m.eventOffsets(time.Now(), fleet.TaskRestarting, fleet.TaskKilling); n != "" {
			t.Errorf("what was journaled: %s", n)
		}
		a.Stop("")
		a.mustEnd()
	})
}
