package runner_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
)

// lingering makes an allocation of tasks that run until they are stopped, with a shutdown_delay of the
// group and of some tasks.
func lingering(group time.Duration, tasks ...fleet.Task) fleet.Alloc {
	a := allocOf(fleet.JobTypeService, &fleet.RestartPolicy{Attempts: 3, Interval: time.Hour, Delay: time.Second, Mode: fleet.RestartModeFail}, tasks...)
	a.Job.TaskGroups[0].ShutdownDelay = &group
	return a
}

func delayed(t fleet.Task, d time.Duration) fleet.Task {
	t.ShutdownDelay = d
	return t
}

func leading(t fleet.Task) fleet.Task {
	t.Leader = true
	return t
}

// eventOffsets returns the times, counted from begin, of the events of the given kinds.
func (m *machine) eventOffsets(begin time.Time, kinds ...string) string {
	m.journal.mu.Lock()
	defer m.journal.mu.Unlock()
	var out []string
	for _, row := range m.journal.rows {
		for _, kind := range kinds {
			if row.Event.Type == kind {
				out = append(out, fmt.Sprintf("%s %s %v", row.Task, strings.Fields(kind)[0], time.Unix(0, row.Event.Time).Sub(begin)))
			}
		}
	}
	return strings.Join(out, ", ")
}

// H22: between the withdrawal of its services and the stop of a task lie the group's shutdown_delay and
// the task's own.
func TestShutdownDelay(t *testing.T) {
	const group, own = 30 * time.Second, 20 * time.Second
	stop := func(a *agent) { a.Stop("an operator") }
	for _, tc := range []struct {
		name  string
		alloc fleet.Alloc
		want  string // rows of the tasks' ends, after a run of a minute
	}{
		{"the group's", lingering(group, task("a", nil)), "a Waiting 0s, a Killing 30s"},
		{"the task's", lingering(0, delayed(task("a", nil), own)), "a Waiting 0s, a Killing 20s"},
		{"both, one after the other", lingering(group, delayed(task("a", nil), own)), "a Waiting 0s, a Killing 50s"},
		{"none", lingering(0, task("a", nil)), "a Killing 0s"},
		{"the leader first", lingering(group, leading(delayed(task("a", nil), own)), delayed(task("b", nil), 10*time.Second)),
			"a Waiting 0s, a Killing 50s, b Waiting 50s, b Killing 1m0s"},
	} {
		t.Run("H22 "+tc.name, func(t *testing.T) {
			inVirtualTime(t, tc.alloc, func(m *machine) {
				a := m.startRunner(m.mustRunner())
				time.Sleep(time.Minute)
				begin := time.Now()
				stop(a)
				a.mustEnd()
				m.mustBe(fleet.ClientComplete)
				if got := m.eventOffsets(begin, fleet.TaskWaitsToStop, fleet.TaskKilling); got != tc.want {
					t.Errorf("%s, want %s", got, tc.want)
				}
			})
		})
	}
}

// H22: tasks that end because a task failed or the leader ended have their delay; tasks that end by
// themselves or have not started have none.
func TestShutdownDelayOfOthers(t *testing.T) {
	const group = 30 * time.Second
	for _, tc := range []struct {
		name  string
		alloc fleet.Alloc
		want  string
	}{
		{"a sibling fails", func() fleet.Alloc {
			a := lingering(group, task("a", map[string]any{"run_for": "1m", "exit_code": 1}), task("b", nil))
			a.Job.TaskGroups[0].Tasks[0].RestartPolicy = &fleet.RestartPolicy{Mode: fleet.RestartModeFail}
			return a
		}(), "b Waiting 1m0s, b Killing 1m30s"},
		{"the leader ends by itself", func() fleet.Alloc {
			a := lingering(group, leading(task("a", map[string]any{"run_for": "1m"})), task("b", nil))
			a.Job.Type = fleet.JobTypeBatch
			return a
		}(), "b Waiting 1m0s, b Killing 1m30s"},
		{"one ends while it waits", func() fleet.Alloc {
			a := lingering(group, leading(task("a", map[string]any{"run_for": "1m"})), task("b", map[string]any{"run_for": "70s"}))
			a.Job.Type = fleet.JobTypeBatch
			return a
		}(), "b Waiting 1m0s"},
	} {
		t.Run("H22 "+tc.name, func(t *testing.T) {
			inVirtualTime(t, tc.alloc, func(m *machine) {
				begin := time.Now()
				m.startRunner(m.mustRunner()).mustEnd()
				if got := m.eventOffsets(begin, fleet.TaskWaitsToStop, fleet.TaskKilling); got != tc.want {
					t.Errorf("%s, want %s", got, tc.want)
				}
			})
		})
	}
	t.Run("H22 one waits for its restart when it is stopped", func(t *testing.T) {
		inVirtualTime(t, lingering(group, task("a", map[string]any{"run_for": "10s"})), func(m *machine) {
			a := m.startRunner(m.mustRunner())
			time.Sleep(10*time.Second + time.Second/2)
			begin := time.Now()
			a.Stop("an operator")
			a.mustEnd()
			if took := time.Since(begin); took != 0 {
				t.Errorf("ended after %v, and nothing ran", took)
			}
			m.mustStarts("a/1")
		})
	})
	t.Run("H22 an operator's restart waits for nothing, and a stop ends it", func(t *testing.T) {
		inVirtualTime(t, lingering(group, task("a", nil)), func(m *machine) {
			a := m.startRunner(m.mustRunner())
			time.Sleep(time.Minute)
			begin := time.Now()
			if err := a.Restart(context.Background(), "a", "an operator"); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			m.mustStarts("a/1", "a/2")
			if took := time.Since(begin); took != 0 {
				t.Errorf("restarted after %v", took)
			}
			a.Stop("an operator")
			synctest.Wait()
			if err := a.Restart(context.Background(), "a", "too late"); fleet.CodeOf(err) != fleet.CodeConflict {
				t.Errorf("restarted while it waits to be stopped: %v", err)
			}
			a.mustEnd()
		})
	})
}

// TestShutdownDelayAcrossLives ends the agent again and again while a task waits to be stopped: the
// delay continues, and a boot ends it.
func TestShutdownDelayAcrossLives(t *testing.T) {
	alloc := func() fleet.Alloc {
		return lingering(time.Minute, leading(delayed(task("a", nil), time.Minute)), delayed(task("b", nil), time.Minute))
	}
	stopped := func(m *machine) *agent {
		r := m.mustRunner()
		r.Stop("an operator")
		return m.startRunner(r)
	}
	inVirtualTime(t, alloc(), func(m *machine) {
		m.startRunner(m.mustRunner())
		time.Sleep(time.Minute)
		m.stopAgents()
		begin := time.Now()
		for range 8 { // through the delays of the group, the leader and the other task
			a := stopped(m)
			time.Sleep(20 * time.Second)
			a.detachAgent()
		}
		stopped(m).mustEnd()
		m.mustBe(fleet.ClientComplete)
		want := "a Waiting 0s, a Killing 2m0s, b Waiting 2m0s, b Killing 3m0s"
		if got := m.eventOffsets(begin, fleet.TaskWaitsToStop, fleet.TaskKilling); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		m.mustStarts("a/1", "b/1")
	})
	t.Run("a boot", func(t *testing.T) {
		inVirtualTime(t, alloc(), func(m *machine) {
			m.startRunner(m.mustRunner())
			time.Sleep(time.Minute)
			m.stopAgents()
			a := stopped(m)
			time.Sleep(20 * time.Second)
			a.detachAgent()
			m.rebootMachine()
			begin := time.Now()
			stopped(m).mustEnd()
			if took := time.Since(begin); took != 0 {
				t.Errorf("ended after %v, and the boot had ended all tasks", took)
			}
			m.mustStarts("a/1", "b/1")
		})
	})
}

// A stop that skips the shutdown_delay ends tasks at once, also those that wait already, and in
// whatever run of the agent.
func TestStopsWithoutTheirDelay(t *testing.T) {
	alloc := func() fleet.Alloc {
		return lingering(time.Minute, leading(delayed(task("a", nil), time.Minute)), delayed(task("b", nil), time.Minute))
	}
	for _, tc := range []struct {
		name string
		stop func(m *machine, a *agent) *agent
		want string
	}{
		{"from the beginning", func(_ *machine, a *agent) *agent {
			a.SkipDelay()
			a.SkipDelay()
			a.Stop("an operator")
			return a
		}, "a Killing 0s, b Killing 0s"},
		{"while the leader waits", func(_ *machine, a *agent) *agent {
			a.Stop("an operator")
			time.Sleep(90 * time.Second)
			a.SkipDelay()
			return a
		}, "a Waiting 0s, a Killing 1m30s, b Killing 1m30s"},
		{"while the others wait", func(_ *machine, a *agent) *agent {
			a.Stop("an operator")
			time.Sleep(130 * time.Second)
			a.SkipDelay()
			return a
		}, "a Waiting 0s, a Killing 2m0s, b Waiting 2m0s, b Killing 2m10s"},
		{"after they have ended", func(_ *machine, a *agent) *agent {
			a.Stop("an operator")
			time.Sleep(10 * time.Minute)
			a.SkipDelay()
			return a
		}, "a Waiting 0s, a Killing 2m0s, b Waiting 2m0s, b Killing 3m0s"},
		{"in a later life", func(m *machine, a *agent) *agent {
			a.Stop("an operator")
			time.Sleep(20 * time.Second)
			a.detachAgent()
			r := m.mustRunner()
			r.SkipDelay()
			r.Stop("an operator")
			return m.startRunner(r)
		}, "a Waiting 0s, a Killing 20s, b Killing 20s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inVirtualTime(t, alloc(), func(m *machine) {
				a := m.startRunner(m.mustRunner())
				time.Sleep(time.Minute)
				begin := time.Now()
				tc.stop(m, a).mustEnd()
				m.mustBe(fleet.ClientComplete)
				if got := m.eventOffsets(begin, fleet.TaskWaitsToStop, fleet.TaskKilling); got != tc.want {
					t.Errorf("%s, want %s", got, tc.want)
				}
				if ends := m.eventOffsets(begin, fleet.TaskTerminated); strings.Count(ends, fleet.TaskTerminated) != 2 {
					t.Errorf("the exits that were seen: %s; want those of both tasks", ends)
				}
				m.mustStarts("a/1", "b/1")
			})
		})
	}
}
