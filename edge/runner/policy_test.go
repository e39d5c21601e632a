package runner_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
)

// restartDelays returns the delays of the restarts in the journal.
func (m *machine) restartDelays() []time.Duration {
	m.journal.mu.Lock()
	defer m.journal.mu.Unlock()
	var out []time.Duration
	var since int64
	for _, row := range m.journal.rows {
		switch row.Event.Type {
		case fleet.TaskRestarting:
			since = row.Event.Time
		case fleet.TaskStarted:
			if since > 0 {
				out = append(out, time.Duration(row.Event.Time-since))
			}
		}
	}
	return out
}

// D1, D2: three restarts after the delay and at most a quarter of it; the next one when the interval is over.
func TestDelayMode(t *testing.T) {
	const (
		delay    = time.Minute
		interval = 10 * time.Minute
	)
	policy := &fleet.RestartPolicy{Attempts: 3, Interval: interval, Delay: delay, Mode: fleet.RestartModeDelay}
	for _, jitter := range []float64{0, 0.5, 0.999} {
		t.Run(fmt.Sprintf("D1, D2: jitter %v", jitter), func(t *testing.T) {
			inVirtualTime(t, allocOf(fleet.JobTypeService, policy, task("a", map[string]any{"run_for": "1s", "exit_code": 1})), func(m *machine) {
				m.jitter = jitter
				m.startRunner(m.mustRunner())
				time.Sleep(interval + 2*time.Second)
				synctest.Wait()
				m.mustStarts("a/1", "a/2", "a/3", "a/4", "a/5")
				m.mustBe(fleet.ClientRunning)
				waits := m.restartDelays()
				if len(waits) != 4 {
					t.Fatalf("%d restarts: %v", len(waits), waits)
				}
				want := delay + time.Duration(jitter*float64(delay)/4)
				for _, w := range waits[:3] {
					if w != want {
						t.Errorf("waited for %v, want %v", w, want)
					}
				}
				// It failed four times, each a second after its start; the interval began with the first run.
				if left := interval - 4*time.Second - 3*want; waits[3] != left || waits[3] <= delay {
					t.Errorf("the wait after the last attempt is %v, want %v", waits[3], left)
				}
			})
		})
	}
}

// The consequence of a task's end, by the type of its job and its policy.
func TestEnds(t *testing.T) {
	none := &fleet.RestartPolicy{Mode: fleet.RestartModeFail, Interval: 30 * time.Minute, Delay: 15 * time.Second}
	for _, tc := range []struct {
		row, jobType string
		policy       *fleet.RestartPolicy // nil: the default of the type
		exit         int
		starts       int
		status, last string
	}{
		{"D4", fleet.JobTypeBatch, nil, 0, 1, fleet.ClientComplete, fleet.TaskTerminated},
		{"D4", fleet.JobTypeBatch, nil, 1, 4, fleet.ClientFailed, fleet.TaskNotRestarting},
		{"D4", fleet.JobTypeSysBatch, nil, 0, 1, fleet.ClientComplete, fleet.TaskTerminated},
		{"D5, I15", fleet.JobTypeService, none, 0, 1, fleet.ClientFailed, fleet.TaskNotRestarting},
		{"D5", fleet.JobTypeService, none, 1, 1, fleet.ClientFailed, fleet.TaskNotRestarting},
		{"D5", fleet.JobTypeBatch, none, 0, 1, fleet.ClientComplete, fleet.TaskTerminated},
		{"D5", fleet.JobTypeBatch, none, 1, 1, fleet.ClientFailed, fleet.TaskNotRestarting},
	} {
		t.Run(fmt.Sprintf("%s %s exits %d", tc.row, tc.jobType, tc.exit), func(t *testing.T) {
			config := map[string]any{"run_for": "1s", "exit_code": tc.exit}
			inVirtualTime(t, allocOf(tc.jobType, tc.policy, task("a", config)), func(m *machine) {
				m.startRunner(m.mustRunner()).mustEnd()
				m.mustBe(tc.status)
				if n := len(m.world.Starts()); n != tc.starts {
					t.Errorf("started %d times, want %d", n, tc.starts)
				}
				if last := m.journal.rows[len(m.journal.rows)-1].Event.Type; last != tc.last {
					t.Errorf("the last event is %s, want %s", last, tc.last)
				}
			})
		})
	}
}

// D7: a task that was told to stop is not started again, however it ends, whatever its policy allows,
// and also while it waits for its next attempt.
func TestStoppedIsNotRestarted(t *testing.T) {
	policy := &fleet.RestartPolicy{Attempts: 5, Interval: 10 * time.Minute, Delay: time.Minute, Mode: fleet.RestartModeDelay}
	for _, tc := range []struct {
		name    string
		jobType string
		after   time.Duration
	}{
		{"D7 a service that runs", fleet.JobTypeService, 10 * time.Second},
		{"D7 a batch that runs", fleet.JobTypeBatch, 10 * time.Second},
		{"D7 one that waits for its restart", fleet.JobTypeService, 40 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inVirtualTime(t, allocOf(tc.jobType, policy, task("a", map[string]any{"run_for": "30s", "exit_code": 1})), func(m *machine) {
				a := m.startRunner(m.mustRunner())
				time.Sleep(tc.after)
				a.Stop("an operator")
				a.mustEnd()
				m.mustStarts("a/1")
				m.mustBe(fleet.ClientComplete)
			})
		})
	}
}

// D8: requested restarts happen at once, also if no attempt is left, and do not count as failures; a
// failure after them does.
func TestAskedRestartsDoNotCount(t *testing.T) {
	policy := &fleet.RestartPolicy{Attempts: 1, Interval: time.Hour, Delay: time.Minute, Mode: fleet.RestartModeFail}
	inVirtualTime(t, allocOf(fleet.JobTypeService, policy, task("a", map[string]any{"run_for": "5m", "exit_code": 1})), func(m *machine) {
		a := m.startRunner(m.mustRunner())
		synctest.Wait()
		restart := func() {
			begin := time.Now()
			if err := a.Restart(m.Context(), "a", "asked for"); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if m.journal.taskState("a").State != fleet.TaskRunning || time.Since(begin) != 0 {
				t.Errorf("%s after %v, want running at once", m.journal.taskState("a").State, time.Since(begin))
			}
		}
		restart()
		restart()
		m.mustStarts("a/1", "a/2", "a/3")
		time.Sleep(6*time.Minute + time.Second) // the only attempt is used up
		synctest.Wait()
		m.mustStarts("a/1", "a/2", "a/3", "a/4")
		restart()
		m.mustStarts("a/1", "a/2", "a/3", "a/4", "a/5")
		a.mustEnd() // the next failure ends it
		m.mustBe(fleet.ClientFailed)
		m.mustStarts("a/1", "a/2", "a/3", "a/4", "a/5")
	})
}

// D11: used-up attempts end the allocation with its other tasks; its files stay until it is collected.
func TestUsedUpAttemptsFailTheAllocation(t *testing.T) {
	policy := &fleet.RestartPolicy{Attempts: 1, Interval: time.Hour, Delay: 15 * time.Second, Mode: fleet.RestartModeFail}
	main, beside := task("a", map[string]any{"run_for": "10s", "exit_code": 1}), task("b", nil)
	inVirtualTime(t, allocOf(fleet.JobTypeService, policy, main, beside), func(m *machine) {
		begin := time.Now()
		m.startRunner(m.mustRunner()).mustEnd()
		if took := time.Since(begin); took != 35*time.Second {
			t.Errorf("ended after %v, want two runs of 10 s and a delay of 15 s", took)
		}
		m.mustBe(fleet.ClientFailed)
		m.mustStarts("a/1", "a/2", "b/1")
		if s := m.journal.taskState("b"); s.State != fleet.TaskDead || s.Failed {
			t.Errorf("the task beside it: %+v, want that it was killed and has not failed", s)
		}
		if _, err := os.Stat(filepath.Join(m.dir, "allocs", string(m.alloc.ID), "a")); err != nil {
			t.Errorf("what it wrote is gone: %v", err)
		}
	})
}

// D13, I24, G15: an allocation that has run for max_run_duration is stopped and complete, although it would go
// on, also if the agent or the machine restarted meanwhile. A newer version may change the time.
func TestMaxRunDuration(t *testing.T) {
	const limit = time.Hour
	limited := func(d time.Duration) fleet.Alloc {
		a := allocOf(fleet.JobTypeBatch, nil, task("a", nil), task("b", map[string]any{"kill_after": "2s"}))
		a.Job.TaskGroups[0].MaxRunDuration = &d
		return a
	}
	expired := func(m *machine, why string) {
		m.Helper()
		m.mustBe(fleet.ClientComplete)
		last := m.journal.rows[len(m.journal.rows)-1]
		if !strings.Contains(last.ClientDescription, "max_run_duration, "+why) {
			m.Errorf("described as %q, want its max_run_duration %s", last.ClientDescription, why)
		}
		for _, name := range []string{"a", "b"} {
			if s := m.journal.taskState(name); s.State != fleet.TaskDead || s.Failed {
				m.Errorf("task %s: %+v", name, s)
			}
		}
		m.mustStarts("a/1", "b/1")
	}
	for _, tc := range []struct {
		name string
		do   func(m *machine, a *agent) *agent // an hour after the start
		want string
	}{
		{"D13, I24: its time is over", func(m *machine, a *agent) *agent {
			time.Sleep(limit - time.Second)
			synctest.Wait()
			m.mustBe(fleet.ClientRunning)
			time.Sleep(time.Second)
			return a
		}, "1h0m0s"},
		{"D13 the agent starts anew in the middle", func(m *machine, a *agent) *agent {
			time.Sleep(30 * time.Minute)
			a.detachAgent()
			time.Sleep(10 * time.Minute)
			a = m.startRunner(m.mustRunner())
			time.Sleep(20*time.Minute - time.Second)
			synctest.Wait()
			m.mustBe(fleet.ClientRunning)
			time.Sleep(time.Second)
			return a
		}, "1h0m0s"},
		{"D13 it is over while the agent is away", func(m *machine, a *agent) *agent {
			time.Sleep(30 * time.Minute)
			a.detachAgent()
			time.Sleep(time.Hour)
			return m.startRunner(m.mustRunner())
		}, "1h0m0s"},
		{"D13 given more time", func(m *machine, a *agent) *agent {
			time.Sleep(30 * time.Minute)
			a.Update(limited(2 * limit))
			time.Sleep(90*time.Minute - time.Second)
			synctest.Wait()
			m.mustBe(fleet.ClientRunning)
			time.Sleep(time.Second)
			return a
		}, "2h0m0s"},
		{"D13 given less", func(m *machine, a *agent) *agent {
			time.Sleep(30 * time.Minute)
			a.Update(limited(10 * time.Minute))
			return a
		}, "10m0s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inVirtualTime(t, limited(limit), func(m *machine) {
				a := m.startRunner(m.mustRunner())
				synctest.Wait()
				a = tc.do(m, a)
				begin := time.Now()
				a.mustEnd()
				if took := time.Since(begin); took != 2*time.Second {
					t.Errorf("ended %v after its time was over, want the 2 s that task b takes", took)
				}
				expired(m, tc.want)
			})
		})
	}
	t.Run("D13 a reboot gives it a tenth of its time at most", func(t *testing.T) {
		inVirtualTime(t, limited(limit), func(m *machine) {
			a := m.startRunner(m.mustRunner())
			time.Sleep(35 * time.Minute)
			a.detachAgent()
			m.rebootMachine()
			time.Sleep(5 * time.Hour) // off
			m.booted = time.Now()
			a = m.startRunner(m.mustRunner())
			time.Sleep(25*time.Minute - time.Second)
			synctest.Wait()
			m.mustBe(fleet.ClientRunning)
			begin := time.Now()
			a.mustEnd()
			if late := time.Since(begin); late > limit/10+3*time.Second {
				t.Errorf("ended %v late", late)
			}
			m.mustBe(fleet.ClientComplete)
			m.mustStarts("a/1", "b/1", "a/2", "b/2")
		})
	})
	t.Run("D13 over, and the agent died before it was stopped: a boot starts nothing again", func(t *testing.T) {
		inVirtualTime(t, limited(limit), func(m *machine) {
			a := m.startRunner(m.mustRunner())
			time.Sleep(55 * time.Minute)
			a.detachAgent()
			m.rebootMachine()
			m.alloc = limited(30 * time.Minute)
			m.startRunner(m.mustRunner()).mustEnd()
			m.mustBe(fleet.ClientComplete)
			m.mustStarts("a/1", "b/1")
		})
	})
	t.Run("D13 a slow disk gives it no time", func(t *testing.T) {
		alloc := limited(limit)
		alloc.Job.TaskGroups[0].Tasks = alloc.Job.TaskGroups[0].Tasks[:1]
		inVirtualTime(t, alloc, func(m *machine) {
			m.journal.slow = 2 * time.Second
			m.startRunner(m.mustRunner()).mustEnd()
			if ran := m.journal.taskState("a").RunningFor; ran != limit+2*m.journal.slow {
				t.Errorf("it ran for %v, want %v and the two writes before it is stopped", ran, limit)
			}
		})
	})
	t.Run("D13 the agent died before it wrote when the time began", func(t *testing.T) {
		inVirtualTime(t, limited(limit), func(m *machine) {
			a := m.startRunner(m.mustRunner())
			time.Sleep(20 * time.Minute)
			a.detachAgent()
			delete(m.journal.handles, "/run")
			a = m.startRunner(m.mustRunner())
			begin := time.Now()
			a.mustEnd()
			if took := time.Since(begin); took != 40*time.Minute+2*time.Second {
				t.Errorf("ended after %v, want the 40 minutes that were left, and 2 s", took)
			}
		})
	})
	t.Run("a damaged journal lost all records: the time begins anew", func(t *testing.T) {
		inVirtualTime(t, limited(limit), func(m *machine) {
			time.Sleep(10 * time.Minute) // the machine has been up for longer than its tasks
			a := m.startRunner(m.mustRunner())
			time.Sleep(20 * time.Minute)
			a.detachAgent()
			clear(m.journal.handles)
			a = m.startRunner(m.mustRunner())
			synctest.Wait()
			if ran := m.journal.taskState("a").RunningFor; ran != 0 {
				t.Errorf("it is said to have run for %v, want 0", ran)
			}
			begin := time.Now()
			a.mustEnd()
			if took := time.Since(begin); took != limit+2*time.Second {
				t.Errorf("ended after %v, want that its time began anew", took)
			}
		})
	})
	t.Run("a record of another release", func(t *testing.T) {
		inVirtualTime(t, limited(limit), func(m *machine) {
			a := m.startRunner(m.mustRunner())
			synctest.Wait()
			a.detachAgent()
			m.journal.handles["/run"] = []byte(`{"version":9}`)
			a = m.startRunner(m.mustRunner())
			begin := time.Now()
			a.mustEnd()
			if took := time.Since(begin); took != limit+2*time.Second {
				t.Errorf("ended after %v, want that its time began anew", took)
			}
		})
	})
	t.Run("D13 who is done before that is not touched", func(t *testing.T) {
		alloc := limited(limit)
		alloc.Job.TaskGroups[0].Tasks = alloc.Job.TaskGroups[0].Tasks[:1]
		alloc.Job.TaskGroups[0].Tasks[0].Config = map[string]any{"run_for": "10s"}
		inVirtualTime(t, alloc, func(m *machine) {
			m.startRunner(m.mustRunner()).mustEnd()
			m.mustBe(fleet.ClientComplete)
			if last := m.journal.rows[len(m.journal.rows)-1]; strings.Contains(last.ClientDescription, "max_run") {
				t.Errorf("described as %q", last.ClientDescription)
			}
		})
	})
}
