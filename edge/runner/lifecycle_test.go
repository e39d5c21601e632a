package runner_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
)

func hooked(t fleet.Task, hook string, sidecar bool) fleet.Task {
	t.Lifecycle = &fleet.Lifecycle{Hook: hook, Sidecar: sidecar}
	return t
}

// eventOrder returns the tasks of the events of a kind, in order.
func (m *machine) eventOrder(kinds ...string) string {
	m.journal.mu.Lock()
	defer m.journal.mu.Unlock()
	var out []string
	for _, row := range m.journal.rows {
		if slices.Contains(kinds, row.Event.Type) {
			out = append(out, row.Task)
		}
	}
	return strings.Join(out, " ")
}

// D10: which tasks restart after a success, and after a failure.
func TestLifecycleRestarts(t *testing.T) {
	policy := &fleet.RestartPolicy{Attempts: 1, Interval: time.Hour, Delay: time.Second, Mode: fleet.RestartModeFail}
	for _, tc := range []struct {
		jobType, hook string
		sidecar       bool
		exit, starts  int // within a minute
	}{
		{fleet.JobTypeService, fleet.HookPrestart, false, 0, 1},
		{fleet.JobTypeService, fleet.HookPrestart, false, 1, 2},
		{fleet.JobTypeService, fleet.HookPrestart, true, 0, 2},
		{fleet.JobTypeService, fleet.HookPrestart, true, 1, 2},
		{fleet.JobTypeBatch, fleet.HookPrestart, false, 0, 1},
		{fleet.JobTypeBatch, fleet.HookPrestart, false, 1, 2},
		{fleet.JobTypeBatch, fleet.HookPrestart, true, 0, 2},
		{fleet.JobTypeService, fleet.HookPoststart, false, 0, 1},
		{fleet.JobTypeService, fleet.HookPoststart, true, 0, 2},
	} {
		t.Run(fmt.Sprintf("D10 %s %s sidecar=%v exits %d", tc.jobType, tc.hook, tc.sidecar, tc.exit), func(t *testing.T) {
			h := hooked(task("h", map[string]any{"run_for": "10s", "exit_code": tc.exit}), tc.hook, tc.sidecar)
			inVirtualTime(t, allocOf(tc.jobType, policy, task("m", nil), h), func(m *machine) {
				m.startRunner(m.mustRunner())
				time.Sleep(time.Minute)
				synctest.Wait()
				n := 0
				for id := range m.world.Starts() {
					if strings.Contains(id, "/h/") {
						n++
					}
				}
				if n != tc.starts {
					t.Errorf("started %d times, want %d\n  %s", n, tc.starts, strings.Join(m.journal.rowLines(), "\n  "))
				}
			})
		})
	}
}

// all makes a task of every kind; the main one runs for a while.
func allHooks(jobType string, runFor string) fleet.Alloc {
	config := map[string]any{}
	if runFor != "" {
		config["run_for"] = runFor
	}
	brief := func() map[string]any { return map[string]any{"run_for": "10s"} }
	return allocOf(jobType, nil,
		hooked(task("last", brief()), fleet.HookPoststop, false),
		task("main", config),
		hooked(task("after", brief()), fleet.HookPoststart, false),
		hooked(task("before", brief()), fleet.HookPrestart, false),
		hooked(task("beside", nil), fleet.HookPrestart, true),
	)
}

// H22: tasks start and end in the order of their hooks.
func TestLifecycleOrder(t *testing.T) {
	t.Run("H22 the main task ends", func(t *testing.T) {
		inVirtualTime(t, allHooks(fleet.JobTypeBatch, "1m"), func(m *machine) {
			a := m.startRunner(m.mustRunner())
			time.Sleep(5 * time.Second)
			synctest.Wait()
			m.mustBe(fleet.ClientPending)
			m.mustStarts("before/1", "beside/1")
			time.Sleep(6 * time.Second)
			synctest.Wait()
			m.mustBe(fleet.ClientRunning)
			a.mustEnd()
			m.mustBe(fleet.ClientComplete)
			m.mustStarts("before/1", "beside/1", "main/1", "after/1", "last/1")
			if got := m.eventOrder(fleet.TaskStarted); !strings.HasSuffix(got, " main after last") {
				t.Errorf("started in the order %s", got)
			}
			if got := m.eventOrder(fleet.TaskTerminated); got != "before after main beside last" {
				t.Errorf("ended in the order %s", got)
			}
		})
	})
	t.Run("H22 it is stopped", func(t *testing.T) {
		inVirtualTime(t, allHooks(fleet.JobTypeService, ""), func(m *machine) {
			a := m.startRunner(m.mustRunner())
			time.Sleep(time.Minute)
			a.Stop("an operator")
			begin := time.Now()
			a.mustEnd()
			if took := time.Since(begin); took != 10*time.Second {
				t.Errorf("ended after %v, want the 10 s of the last task", took)
			}
			m.mustBe(fleet.ClientComplete)
			m.mustStarts("before/1", "beside/1", "main/1", "after/1", "last/1")
		})
	})
	t.Run("H22 it is stopped, and the last task fails once", func(t *testing.T) {
		alloc := allHooks(fleet.JobTypeService, "")
		last := alloc.Job.TaskGroups[0].Task("last")
		last.Config["exit_code"] = 1
		last.RestartPolicy = &fleet.RestartPolicy{Attempts: 1, Interval: time.Hour, Delay: 30 * time.Second, Mode: fleet.RestartModeFail}
		inVirtualTime(t, alloc, func(m *machine) {
			a := m.startRunner(m.mustRunner())
			time.Sleep(time.Minute)
			a.Stop("an operator")
			begin := time.Now()
			a.mustEnd()
			if took := time.Since(begin); took < 50*time.Second {
				t.Errorf("ended after %v, want two runs of 10 s and the delay of 30 s between them", took)
			}
			m.mustStarts("before/1", "beside/1", "main/1", "after/1", "last/1", "last/2")
		})
	})
	t.Run("H22 stopped while it is prepared", func(t *testing.T) {
		inVirtualTime(t, allHooks(fleet.JobTypeService, ""), func(m *machine) {
			a := m.startRunner(m.mustRunner())
			time.Sleep(5 * time.Second)
			synctest.Wait()
			a.Stop("an operator")
			a.mustEnd()
			m.mustBe(fleet.ClientComplete)
			m.mustStarts("before/1", "beside/1", "last/1")
		})
	})
	t.Run("H22 stopped before anything was started", func(t *testing.T) {
		inVirtualTime(t, allHooks(fleet.JobTypeService, ""), func(m *machine) {
			r := m.mustRunner()
			r.Stop("too late")
			m.startRunner(r).mustEnd()
			m.mustBe(fleet.ClientComplete)
			m.mustStarts()
		})
	})
	t.Run("H22 what prepares fails", func(t *testing.T) {
		alloc := allHooks(fleet.JobTypeService, "")
		alloc.Job.TaskGroups[0].RestartPolicy = &fleet.RestartPolicy{Mode: fleet.RestartModeFail}
		for i := range alloc.Job.TaskGroups[0].Tasks {
			task := &alloc.Job.TaskGroups[0].Tasks[i]
			task.RestartPolicy = nil
			if task.Name == "before" {
				task.Config["exit_code"] = 1
			}
		}
		inVirtualTime(t, alloc, func(m *machine) {
			m.startRunner(m.mustRunner()).mustEnd()
			m.mustBe(fleet.ClientFailed)
			m.mustStarts("before/1", "beside/1", "last/1")
		})
	})
	t.Run("D13 its time is over: nothing runs after it", func(t *testing.T) {
		alloc, limit := allHooks(fleet.JobTypeBatch, ""), time.Minute
		alloc.Job.TaskGroups[0].MaxRunDuration = &limit
		inVirtualTime(t, alloc, func(m *machine) {
			begin := time.Now()
			m.startRunner(m.mustRunner()).mustEnd()
			if took := time.Since(begin); took != limit {
				t.Errorf("ended after %v", took)
			}
			m.mustBe(fleet.ClientComplete)
			m.mustStarts("before/1", "beside/1", "main/1", "after/1")
		})
	})
}

// TestLifecycleAcrossLives ends the agent in each phase of an allocation: no task starts twice, and the
// next agent continues in order.
func TestLifecycleAcrossLives(t *testing.T) {
	inVirtualTime(t, allHooks(fleet.JobTypeBatch, "1m"), func(m *machine) {
		for _, phase := range []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second} {
			a := m.startRunner(m.mustRunner())
			time.Sleep(phase)
			synctest.Wait()
			a.detachAgent()
		}
		m.startRunner(m.mustRunner()).mustEnd()
		m.mustBe(fleet.ClientComplete)
		m.mustStarts("before/1", "beside/1", "main/1", "after/1", "last/1")
	})
	t.Run("a reboot", func(t *testing.T) {
		inVirtualTime(t, allHooks(fleet.JobTypeService, ""), func(m *machine) {
			a := m.startRunner(m.mustRunner())
			time.Sleep(time.Minute)
			a.detachAgent()
			m.rebootMachine()
			a = m.startRunner(m.mustRunner())
			synctest.Wait()
			m.mustBe(fleet.ClientRunning)
			m.mustStarts("before/1", "beside/1", "beside/2", "main/1", "main/2", "after/1")
			if got := m.eventOrder(fleet.TaskStarted); !strings.HasSuffix(got, " beside main") {
				t.Errorf("started in the order %s", got)
			}
			a.Stop("")
			a.mustEnd()
			m.mustStarts("before/1", "beside/1", "beside/2", "main/1", "main/2", "after/1", "last/1")
		})
	})
}
