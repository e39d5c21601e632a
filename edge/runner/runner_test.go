package runner_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/drivers"
	"skerry/drivers/sim"
	"skerry/drivers/supervised"
	"skerry/edge/runner"
	"skerry/fleet"
	"skerry/fleet/validate"
)

func TestMain(m *testing.M) {
	supervised.Supervise()
	agentMain()
	os.Exit(m.Run())
}

// machine is what survives an agent: its disk, its tasks, its clock.
type machine struct {
	testing.TB
	world   *sim.SimMachine
	journal *fakeJournal
	dir     string
	booted  time.Time
	jitter  float64
	alloc   fleet.Alloc
	cancels []context.CancelFunc // of the agents
}

func newMachine(tb testing.TB, alloc fleet.Alloc) *machine {
	return &machine{
		TB: tb, world: sim.NewSimMachine(), journal: newFakeJournal(), dir: tb.TempDir(), booted: time.Now(), alloc: alloc,
	}
}

func (m *machine) rebootMachine() {
	m.world.Reboot()
	m.journal.boot = "boot-2"
	m.booted = time.Now()
}

// agent is one run of the agent.
type agent struct {
	*machine
	*runner.Runner
	cancel context.CancelFunc
	done   chan error
}

func (m *machine) newFactory() *runner.Factory {
	return &runner.Factory{
		Drivers: map[string]drivers.Driver{sim.Name: sim.New(m.world)},
		Node:    func() fleet.Node { return fleet.Node{Datacenter: "dc1"} },
		Dirs:    runner.Dirs{Allocs: filepath.Join(m.dir, "allocs"), State: filepath.Join(m.dir, "tasks")},
		BootID:  fleet.BootID(m.journal.boot),
		Mono:    func() time.Duration { return time.Since(m.booted) },
		Now:     time.Now,
		Jitter:  func() float64 { return m.jitter },
		Log:     slog.New(slog.DiscardHandler),
	}
}

func (m *machine) mustRunner() *runner.Runner {
	m.Helper()
	r, err := m.newFactory().New(m.alloc, m.journal.lastState(), m.journal)
	if err != nil {
		m.Fatal(err)
	}
	return r
}

// startRunner starts an agent. stopAgents ends it at the latest.
func (m *machine) startRunner(r *runner.Runner) *agent {
	ctx, cancel := context.WithCancel(context.Background())
	a := &agent{machine: m, Runner: r, cancel: cancel, done: make(chan error, 1)}
	go func() { a.done <- r.Run(ctx) }()
	m.cancels = append(m.cancels, cancel)
	return a
}

// stopAgents ends all agents, so that virtual time stops.
func (m *machine) stopAgents() {
	for _, cancel := range m.cancels {
		cancel()
	}
}

// detachAgent ends the agent and leaves its tasks.
func (a *agent) detachAgent() {
	a.Helper()
	a.cancel()
	if err := <-a.done; !errors.Is(err, context.Canceled) {
		a.Fatalf("Run: %v, want that it was canceled", err)
	}
}

// mustEnd waits until the allocation has ended.
func (a *agent) mustEnd() {
	a.Helper()
	if err := <-a.done; err != nil {
		a.Fatalf("Run: %v", err)
	}
}

func (m *machine) mustBe(status string) {
	m.Helper()
	if got := m.journal.clientStatus(); got != status {
		m.Errorf("client status %q, want %q\n  %s", got, status, strings.Join(m.journal.rowLines(), "\n  "))
	}
}

// mustStarts checks how often each attempt was started, as "TASK/ATTEMPT".
func (m *machine) mustStarts(want ...string) {
	m.Helper()
	got := m.world.Starts()
	wanted := map[string]int{}
	for _, w := range want {
		wanted[string(m.alloc.ID)+"/"+w] = 1
	}
	if !maps.Equal(got, wanted) {
		m.Errorf("starts: %v, want %v", got, wanted)
	}
}

// task makes a simulated task.
func task(name string, config map[string]any) fleet.Task {
	return fleet.Task{Name: name, Driver: sim.Name, Config: config, KillTimeout: 5 * time.Second}
}

// allocOf makes an allocation of a job of one group.
func allocOf(jobType string, policy *fleet.RestartPolicy, tasks ...fleet.Task) fleet.Alloc {
	job := &fleet.Job{
		ID: "shop", Type: jobType, Region: fleet.DefaultRegion,
		TaskGroups: []fleet.TaskGroup{{Name: "web", Count: 1, Tasks: tasks, RestartPolicy: policy}},
	}
	validate.FillDefaults(job)
	return fleet.Alloc{
		ID: "11111111-2222-3333-4444-555555555555", Name: "shop.web[0]", JobID: job.ID, Job: job, TaskGroup: "web",
		Namespace: fleet.DefaultNamespace,
	}
}

func inVirtualTime(t *testing.T, alloc fleet.Alloc, f func(m *machine)) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, alloc)
		defer m.stopAgents()
		f(m)
	})
}

func TestServiceLife(t *testing.T) {
	inVirtualTime(t, allocOf(fleet.JobTypeService, nil, task("a", nil)), func(m *machine) {
		a := m.startRunner(m.mustRunner())
		synctest.Wait()
		m.mustBe(fleet.ClientRunning)
		time.Sleep(time.Hour)
		a.Stop("because")
		a.mustEnd()
		wantRowLines(t, m.journal,
			"a Received (pending) -> pending",
			"a Started (running) -> running",
			"a Killing (running)",
			"a Terminated (running)",
			"a Killed (dead) -> complete",
		)
		if s := m.journal.taskState("a"); s.RunningFor != time.Hour || s.Restarts != 0 || s.FinishedAt == nil {
			t.Errorf("state %+v, want that it ran for an hour", s)
		}
		if e := m.journal.rows[2].Event; !strings.Contains(e.DisplayMessage, "because") {
			t.Errorf("Killing: %q does not say why", e.DisplayMessage)
		}
		if entries, err := os.ReadDir(filepath.Join(m.dir, "tasks")); len(entries) > 0 {
			t.Errorf("drivers' state is left: %v, %v", entries, err)
		}
	})
}

func TestRestartsThenFails(t *testing.T) {
	inVirtualTime(t, allocOf(fleet.JobTypeService, nil, task("a", map[string]any{"run_for": "10s", "exit_code": 3})), func(m *machine) {
		m.jitter = 0.999
		begin := time.Now()
		m.startRunner(m.mustRunner()).mustEnd()
		if took := time.Since(begin); took < 60*time.Second || took > 67500*time.Millisecond {
			t.Errorf("took %v, want 3 runs of 10 s and 2 delays of 15 s to 18.75 s", took)
		}
		wantRowLines(t, m.journal,
			"a Received (pending) -> pending",
			"a Started (running) -> running",
			"a Terminated (running)", "a Restarting (pending)", "a Started (running)",
			"a Terminated (running)", "a Restarting (pending)", "a Started (running)",
			"a Terminated (running)", "a Not Restarting (dead) failed -> failed",
		)
		m.mustStarts("a/1", "a/2", "a/3")
		if s := m.journal.taskState("a"); s.Restarts != 2 || s.LastRestart == nil {
			t.Errorf("state %+v, want 2 restarts", s)
		}
	})
}

func TestDelayModeGoesOn(t *testing.T) {
	policy := &fleet.RestartPolicy{Attempts: 1, Interval: 10 * time.Minute, Delay: time.Second, Mode: fleet.RestartModeDelay}
	inVirtualTime(t, allocOf(fleet.JobTypeService, policy, task("a", map[string]any{"run_for": "0s"})), func(m *machine) {
		m.startRunner(m.mustRunner())
		time.Sleep(10*time.Minute - time.Second)
		synctest.Wait()
		m.mustStarts("a/1", "a/2")
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		m.mustStarts("a/1", "a/2", "a/3")
		m.mustBe(fleet.ClientRunning)
	})
}

func TestBatch(t *testing.T) {
	inVirtualTime(t, allocOf(fleet.JobTypeBatch, nil, task("a", map[string]any{"run_for": "10s"})), func(m *machine) {
		m.startRunner(m.mustRunner()).mustEnd()
		wantRowLines(t, m.journal,
			"a Received (pending) -> pending",
			"a Started (running) -> running",
			"a Terminated (dead) -> complete",
		)
		// An ended allocation does not run again.
		m.startRunner(m.mustRunner()).mustEnd()
		m.mustStarts("a/1")
	})
}

func TestSiblings(t *testing.T) {
	t.Run("one fails", func(t *testing.T) {
		policy := &fleet.RestartPolicy{Mode: fleet.RestartModeFail}
		a, b := task("a", map[string]any{"run_for": "10s", "exit_code": 1}), task("b", map[string]any{"kill_after": "2s"})
		inVirtualTime(t, allocOf(fleet.JobTypeService, policy, a, b), func(m *machine) {
			m.startRunner(m.mustRunner()).mustEnd()
			wantRowLines(t, m.journal,
				"a Received (pending) -> pending", "b Received (pending)",
				m.journal.rowLines()[2], m.journal.rowLines()[3], // two starts, in any order
				"a Terminated (running)", "a Not Restarting (dead) failed",
				"b Killing (running)", "b Terminated (running)", "b Killed (dead) -> failed",
			)
		})
	})
	t.Run("the leader completes", func(t *testing.T) {
		a, b := task("a", map[string]any{"run_for": "10s"}), task("b", nil)
		a.Leader = true
		inVirtualTime(t, allocOf(fleet.JobTypeBatch, nil, a, b), func(m *machine) {
			m.startRunner(m.mustRunner()).mustEnd()
			wantRowLines(t, m.journal,
				"a Received (pending) -> pending", "b Received (pending)",
				m.journal.rowLines()[2], m.journal.rowLines()[3],
				"a Terminated (dead)",
				"b Killing (running)", "b Terminated (running)", "b Killed (dead) -> complete",
			)
		})
	})
	t.Run("stop ends the leader first", func(t *testing.T) {
		a, b := task("a", nil), task("b", map[string]any{"kill_after": "3s"})
		b.Leader = true
		inVirtualTime(t, allocOf(fleet.JobTypeService, nil, a, b), func(m *machine) {
			r := m.startRunner(m.mustRunner())
			synctest.Wait()
			r.Stop("enough")
			r.mustEnd()
			wantRowLines(t, m.journal,
				"a Received (pending) -> pending", "b Received (pending)",
				m.journal.rowLines()[2], m.journal.rowLines()[3],
				"b Killing (running)", "b Terminated (running)", "b Killed (dead)",
				"a Killing (running)", "a Terminated (running)", "a Killed (dead) -> complete",
			)
		})
	})
}

func TestAgentRestarts(t *testing.T) {
	inVirtualTime(t, allocOf(fleet.JobTypeService, nil, task("a", map[string]any{"run_for": "1h", "exit_code": 1})), func(m *machine) {
		a := m.startRunner(m.mustRunner())
		time.Sleep(20 * time.Minute)
		a.detachAgent()
		a = m.startRunner(m.mustRunner())
		synctest.Wait()
		m.mustBe(fleet.ClientRunning)
		if s := m.journal.taskState("a"); s.RunningFor != 20*time.Minute {
			t.Errorf("it ran for %v, want 20m", s.RunningFor)
		}
		a.detachAgent()
		time.Sleep(time.Hour) // it ends while no agent runs
		a = m.startRunner(m.mustRunner())
		synctest.Wait()
		a.detachAgent()
		time.Sleep(time.Minute) // the delay has passed too
		a = m.startRunner(m.mustRunner())
		synctest.Wait()
		a.detachAgent()
		wantRowLines(t, m.journal,
			"a Received (pending) -> pending",
			"a Started (running) -> running",
			"a Restored (running)",
			"a Terminated (running)", "a Restarting (pending)",
			"a Started (running)",
		)
		m.mustStarts("a/1", "a/2")
	})
}

func TestRestartWindowSurvives(t *testing.T) {
	inVirtualTime(t, allocOf(fleet.JobTypeService, nil, task("a", map[string]any{"run_for": "1m", "exit_code": 1})), func(m *machine) {
		for range 7 { // each agent sees at most one failure
			a := m.startRunner(m.mustRunner())
			time.Sleep(40 * time.Second)
			if m.journal.clientStatus() == fleet.ClientFailed {
				a.mustEnd()
				break
			}
			a.detachAgent()
		}
		m.mustBe(fleet.ClientFailed)
		m.mustStarts("a/1", "a/2", "a/3")
	})
}

func TestReboot(t *testing.T) {
	for _, jobType := range []string{fleet.JobTypeService, fleet.JobTypeBatch} {
		t.Run(jobType, func(t *testing.T) {
			inVirtualTime(t, allocOf(jobType, nil, task("a", map[string]any{"run_for": "1h"})), func(m *machine) {
				a := m.startRunner(m.mustRunner())
				time.Sleep(20 * time.Minute)
				a.detachAgent()
				for range 3 { // more often than the restart policy allows
					a := m.startRunner(m.mustRunner())
					synctest.Wait()
					a.detachAgent()
				}
				m.rebootMachine()
				begin := time.Now()
				a = m.startRunner(m.mustRunner())
				synctest.Wait()
				if time.Since(begin) != 0 {
					t.Errorf("started %v after the boot, want at once", time.Since(begin))
				}
				m.mustBe(fleet.ClientRunning)
				a.Stop("")
				a.mustEnd()
				wantRowLines(t, m.journal,
					"a Received (pending) -> pending",
					"a Started (running) -> running",
					"a Restored (running)", "a Restored (running)", "a Restored (running)",
					"a Lost At Boot (pending) -> pending",
					"a Started (running) -> running",
					"a Killing (running)", "a Terminated (running)", "a Killed (dead) -> complete",
				)
				if s := m.journal.taskState("a"); s.Restarts != 0 {
					t.Errorf("%d restarts were counted", s.Restarts)
				}
			})
		})
	}
	t.Run("batch that had completed", func(t *testing.T) {
		inVirtualTime(t, allocOf(fleet.JobTypeBatch, nil, task("a", map[string]any{"run_for": "1m"})), func(m *machine) {
			a := m.startRunner(m.mustRunner())
			synctest.Wait()
			a.detachAgent()
			time.Sleep(time.Hour)
			m.rebootMachine()
			m.startRunner(m.mustRunner()).mustEnd()
			m.mustBe(fleet.ClientComplete)
			m.mustStarts("a/1")
		})
	})
	t.Run("in a restart's delay", func(t *testing.T) {
		inVirtualTime(t, allocOf(fleet.JobTypeService, nil, task("a", map[string]any{"run_for": "1m"})), func(m *machine) {
			a := m.startRunner(m.mustRunner())
			time.Sleep(65 * time.Second)
			a.detachAgent()
			m.rebootMachine()
			m.startRunner(m.mustRunner())
			synctest.Wait()
			m.mustStarts("a/1", "a/2")
		})
	})
}

// TestTheJournalWentBack loses the rows since an attempt: the next attempt is found all the same and
// ends with the allocation.
func TestTheJournalWentBack(t *testing.T) {
	inVirtualTime(t, allocOf(fleet.JobTypeService, nil, task("a", nil)), func(m *machine) {
		a := m.startRunner(m.mustRunner())
		synctest.Wait()
		a.detachAgent()
		states, handles, status := maps.Clone(m.journal.states), maps.Clone(m.journal.handles), m.journal.status
		m.rebootMachine()
		a = m.startRunner(m.mustRunner())
		synctest.Wait()
		a.detachAgent()
		m.mustStarts("a/1", "a/2")
		folder := filepath.Join(m.dir, "tasks", string(m.alloc.ID), "a", "2") // the driver's folder
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		m.journal.states, m.journal.handles, m.journal.status, m.journal.bootID = states, handles, status, "boot-1"
		r := m.mustRunner()
		r.Stop("its time is over") // before Run
		m.startRunner(r).mustEnd()
		m.mustStarts("a/1", "a/2")
		if left := m.world.Running(); len(left) > 0 {
			t.Errorf("after the stop there still run %v", left)
		}
	})
}

// TestTheJournalWentBackToBeforeABoot loses the start of an attempt that was made after a reboot: the
// attempt goes on, and ends with the allocation.
func TestTheJournalWentBackToBeforeABoot(t *testing.T) {
	inVirtualTime(t, allocOf(fleet.JobTypeService, nil, task("a", map[string]any{"start_delay": "8s"})), func(m *machine) {
		a := m.startRunner(m.mustRunner())
		time.Sleep(time.Second)
		a.detachAgent()
		states, handles, status := maps.Clone(m.journal.states), maps.Clone(m.journal.handles), m.journal.status
		m.rebootMachine()
		a = m.startRunner(m.mustRunner())
		time.Sleep(10 * time.Second)
		a.detachAgent()
		m.mustBe(fleet.ClientRunning)
		m.journal.states, m.journal.handles, m.journal.status, m.journal.bootID = states, handles, status, "boot-1"
		a = m.startRunner(m.mustRunner())
		synctest.Wait()
		m.mustBe(fleet.ClientRunning)
		m.mustStarts("a/1")
		a.detachAgent()
		a = m.startRunner(m.mustRunner()) // from the repaired record
		a.Stop("its time is over")
		a.mustEnd()
		m.mustStarts("a/1")
		if left := m.world.Running(); len(left) > 0 {
			t.Errorf("after the stop there still run %v", left)
		}
	})
}

func TestOperatorRestarts(t *testing.T) {
	inVirtualTime(t, allocOf(fleet.JobTypeBatch, nil, task("a", map[string]any{"run_for": "1h", "exit_code": 1})), func(m *machine) {
		a := m.startRunner(m.mustRunner())
		synctest.Wait()
		for range 5 { // more often than the restart policy allows
			if err := a.Restart(m.Context(), "", "new configuration"); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			m.mustBe(fleet.ClientRunning)
		}
		if err := a.Restart(m.Context(), "b", ""); fleet.CodeOf(err) != fleet.CodeNotFound {
			t.Errorf("Restart of an unknown task: %v", err)
		}
		wantRowLines(t, m.journal, append([]string{
			"a Received (pending) -> pending", "a Started (running) -> running",
		}, repeat(5, "a Restart Signaled (running)", "a Terminated (running)", "a Restarting (pending)", "a Started (running)")...)...)
		time.Sleep(time.Hour + time.Second) // a failure: it waits 15 s
		begin := time.Now()
		if err := a.Restart(m.Context(), "a", "at once"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if s := m.journal.taskState("a"); s.State != fleet.TaskRunning || time.Since(begin) != 0 {
			t.Errorf("%s after %v, want running at once", s.State, time.Since(begin))
		}
		a.Stop("")
		a.mustEnd()
		if err := a.Restart(m.Context(), "a", ""); fleet.CodeOf(err) != fleet.CodeConflict {
			t.Errorf("Restart of what has ended: %v", err)
		}
	})
}

// A task with failing checks is restarted by its policy, and fails when that is used up.
func TestUnhealthyRestartsCount(t *testing.T) {
	policy := &fleet.RestartPolicy{Attempts: 1, Interval: time.Hour, Delay: 10 * time.Second, Mode: fleet.RestartModeFail}
	for _, jobType := range []string{fleet.JobTypeService, fleet.JobTypeBatch} {
		t.Run(jobType, func(t *testing.T) {
			inVirtualTime(t, allocOf(jobType, policy, task("a", nil)), func(m *machine) {
				a := m.startRunner(m.mustRunner())
				synctest.Wait()
				m.mustBe(fleet.ClientRunning)
				unhealthy := func() {
					t.Helper()
					if err := a.RestartUnhealthy(m.Context(), "a", "check c is unhealthy"); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
				}
				unhealthy()
				m.mustStarts("a/1")
				unhealthy() // while it waits for its restart: the same failure
				time.Sleep(15 * time.Second)
				synctest.Wait()
				m.mustStarts("a/1", "a/2")
				unhealthy()
				a.mustEnd()
				m.mustBe(fleet.ClientFailed)
				says := func(row fleet.Transition) bool {
					return row.Event != nil && row.Event.Type == fleet.TaskNotRestarting && strings.Contains(row.Event.DisplayMessage, "check c is unhealthy")
				}
				if told := m.journal.recordedRows(); !slices.ContainsFunc(told, says) {
					t.Errorf("no event says why it is not restarted: %+v", told)
				}
			})
		})
	}
}

// TestOperatorSignals sends signals to a running task, to one that waits for its restart, and to one
// that has ended.
func TestOperatorSignals(t *testing.T) {
	inVirtualTime(t, allocOf(fleet.JobTypeBatch, nil, task("a", map[string]any{"run_for": "1h", "exit_code": 1})), func(m *machine) {
		a := m.startRunner(m.mustRunner())
		synctest.Wait()
		for _, tc := range []struct {
			task, signal string
			want         fleet.Code
		}{
			{"b", "SIGHUP", fleet.CodeNotFound},
			{"a", "SIGSOLDIER", fleet.CodeInvalid},
		} {
			if err := a.Signal(m.Context(), tc.task, tc.signal, "asked"); fleet.CodeOf(err) != tc.want {
				t.Errorf("signal %q to task %q: %v, want %s", tc.signal, tc.task, err, tc.want)
			}
		}
		if err := a.Signal(m.Context(), "", "SIGINT", "signalled by an operator"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		wantRowLines(t, m.journal, "a Received (pending) -> pending", "a Started (running) -> running",
			"a Signaling (running)", "a Terminated (running)", "a Restarting (pending)")
		if err := a.Signal(m.Context(), "a", "SIGINT", ""); fleet.CodeOf(err) != fleet.CodeConflict {
			t.Errorf("signal to a task that waits for its restart: %v", err)
		}
		a.Stop("")
		a.mustEnd()
		if err := a.Signal(m.Context(), "a", "SIGINT", ""); fleet.CodeOf(err) != fleet.CodeConflict {
			t.Errorf("signal to what has ended: %v", err)
		}
	})
}

// TestUnknownKillSignal: a task whose driver does not know its kill signal is stopped at once all the same.
func TestUnknownKillSignal(t *testing.T) {
	soldier := task("a", nil)
	soldier.KillSignal = "SIGSOLDIER"
	inVirtualTime(t, allocOf(fleet.JobTypeService, nil, soldier), func(m *machine) {
		a := m.startRunner(m.mustRunner())
		synctest.Wait()
		began := time.Now()
		a.Stop("")
		select {
		case err := <-a.done:
			if took := time.Since(began); err != nil || took >= time.Second {
				t.Errorf("it ended after %s: %v", took, err)
			}
		case <-time.After(time.Minute):
			t.Error("it runs on")
		}
	})
}

// busyStop is a driver whose first stop fails. It notes the signals.
type busyStop struct {
	drivers.Driver
	signals []string
}

type busyStopTask struct {
	drivers.Task
	d *busyStop
}

func (d *busyStop) Recover(ctx context.Context, cfg drivers.TaskConfig, h drivers.Handle) (drivers.Task, error) {
	t, err := d.Driver.Recover(ctx, cfg, h)
	return busyStopTask{t, d}, err
}

func (t busyStopTask) Stop(ctx context.Context, signal string, timeout time.Duration) error {
	if t.d.signals = append(t.d.signals, signal); len(t.d.signals) == 1 {
		return errors.New("the daemon is busy")
	}
	return t.Task.Stop(ctx, signal, timeout)
}

// TestStopThatFails: a driver that cannot stop a task is asked again, a second later and with the same signal.
func TestStopThatFails(t *testing.T) {
	interrupted := task("a", nil)
	interrupted.KillSignal = "SIGINT"
	inVirtualTime(t, allocOf(fleet.JobTypeService, nil, interrupted), func(m *machine) {
		f := m.newFactory()
		d := &busyStop{Driver: f.Drivers[sim.Name]}
		f.Drivers[sim.Name] = d
		r, err := f.New(m.alloc, m.journal.lastState(), m.journal)
		if err != nil {
			t.Fatal(err)
		}
		a := m.startRunner(r)
		synctest.Wait()
		began := time.Now()
		a.Stop("")
		a.mustEnd()
		if took := time.Since(began); took != time.Second || !slices.Equal(d.signals, []string{"SIGINT", "SIGINT"}) {
			t.Errorf("%v within %s", d.signals, took)
		}
	})
}

func repeat(n int, lines ...string) []string {
	var out []string
	for range n {
		out = append(out, lines...)
	}
	return out
}

func TestCannotStart(t *testing.T) {
	unknown := task("a", nil)
	unknown.Driver = "abacus"
	for _, tc := range []struct {
		name   string
		task   fleet.Task
		want   string // in the event
		starts int
		tries  int
	}{
		{"unknown driver", unknown, `no driver "abacus"`, 0, 1},
		{"bad config", task("a", map[string]any{"runfor": "1s"}), `unknown key "runfor"`, 0, 1},
		{"start fails for good", task("a", map[string]any{"start_error": "no image"}), "no image", 0, 1},
		{"start may work later", task("a", map[string]any{"start_error": "no room", "start_error_recoverable": true}), "no room", 0, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inVirtualTime(t, allocOf(fleet.JobTypeService, nil, tc.task), func(m *machine) {
				m.startRunner(m.mustRunner()).mustEnd()
				want := []string{"a Received (pending) -> pending"}
				want = append(want, repeat(tc.tries-1, "a Driver Failure (pending)", "a Restarting (pending)")...)
				want = append(want, "a Driver Failure (pending)", "a Not Restarting (dead) failed -> failed")
				wantRowLines(t, m.journal, want...)
				if e := m.journal.rows[1].Event; !strings.Contains(e.DisplayMessage, tc.want) {
					t.Errorf("event says %q, want %q", e.DisplayMessage, tc.want)
				}
			})
		})
	}
	t.Run("no such group", func(t *testing.T) {
		alloc := allocOf(fleet.JobTypeService, nil, task("a", nil))
		alloc.TaskGroup = "db"
		inVirtualTime(t, alloc, func(m *machine) {
			m.startRunner(m.mustRunner()).mustEnd()
			wantRowLines(t, m.journal, "-> failed")
		})
	})
}

func TestStopBeforeRun(t *testing.T) {
	t.Run("new", func(t *testing.T) {
		inVirtualTime(t, allocOf(fleet.JobTypeService, nil, task("a", nil)), func(m *machine) {
			r := m.mustRunner()
			r.Stop("too late")
			m.startRunner(r).mustEnd()
			wantRowLines(t, m.journal, "a Received (pending) -> pending", "a Killed (dead) -> complete")
			m.mustStarts()
		})
	})
	t.Run("running", func(t *testing.T) {
		inVirtualTime(t, allocOf(fleet.JobTypeService, nil, task("a", nil), task("b", nil)), func(m *machine) {
			a := m.startRunner(m.mustRunner())
			synctest.Wait()
			a.detachAgent()
			r := m.mustRunner()
			r.Stop("while it was away")
			m.startRunner(r).mustEnd()
			m.mustBe(fleet.ClientComplete)
			m.mustStarts("a/1", "b/1")
			if running := m.world.Running(); len(running) > 0 {
				t.Errorf("still running: %v", running)
			}
		})
	})
	t.Run("in a start that was not journaled", func(t *testing.T) {
		inVirtualTime(t, allocOf(fleet.JobTypeService, nil, task("a", nil)), func(m *machine) {
			m.journal.dieAt = 3 // received, intent; the handle is lost
			a := m.startRunner(m.mustRunner())
			<-m.journal.dead
			a.detachAgent()
			m.journal.reviveJournal()
			m.mustStarts("a/1")
			r := m.mustRunner()
			r.Stop("while it was away")
			m.startRunner(r).mustEnd()
			m.mustBe(fleet.ClientComplete)
			if running := m.world.Running(); len(running) > 0 {
				t.Errorf("still running: %v", running)
			}
		})
	})
}

// failingRecover is a driver that cannot look up tasks for a while, for example without memory.
type failingRecover struct {
	drivers.Driver
	fails int
	why   error
}

func (d *failingRecover) Recover(ctx context.Context, cfg drivers.TaskConfig, h drivers.Handle) (drivers.Task, error) {
	if d.fails > 0 {
		d.fails--
		return nil, d.why
	}
	return d.Driver.Recover(ctx, cfg, h)
}

// A driver that may find a task later is asked again: a second attempt beside a running one would run it twice.
func TestDriverThatCannotLook(t *testing.T) {
	for _, tc := range []struct {
		why    error
		starts []string
	}{
		{drivers.Recoverable(errors.New("out of memory")), []string{"a/1"}},
		{errors.New("not a handle of mine"), []string{"a/1", "a/2"}},
	} {
		t.Run(tc.why.Error(), func(t *testing.T) {
			inVirtualTime(t, allocOf(fleet.JobTypeService, nil, task("a", nil)), func(m *machine) {
				a := m.startRunner(m.mustRunner())
				synctest.Wait()
				a.detachAgent()
				f := m.newFactory()
				f.Drivers[sim.Name] = &failingRecover{Driver: f.Drivers[sim.Name], fails: 40, why: tc.why}
				r, err := f.New(m.alloc, m.journal.lastState(), m.journal)
				if err != nil {
					t.Fatal(err)
				}
				m.startRunner(r)
				time.Sleep(10 * time.Minute)
				m.mustStarts(tc.starts...)
				m.mustBe(fleet.ClientRunning)
			})
		})
	}
}

func TestUpdate(t *testing.T) {
	inVirtualTime(t, allocOf(fleet.JobTypeService, nil, task("a", map[string]any{"run_for": "1m", "exit_code": 1})), func(m *machine) {
		a := m.startRunner(m.mustRunner())
		synctest.Wait()
		a.Update(allocOf(fleet.JobTypeService, &fleet.RestartPolicy{Mode: fleet.RestartModeFail}, task("a", nil)))
		a.mustEnd()
		m.mustBe(fleet.ClientFailed)
		m.mustStarts("a/1")
	})
}

func TestJournalFailsAndHeals(t *testing.T) {
	inVirtualTime(t, allocOf(fleet.JobTypeBatch, nil, task("a", map[string]any{"run_for": "1s"})), func(m *machine) {
		m.journal.failing = 7
		var log bytes.Buffer
		f := m.newFactory()
		f.Log = slog.New(slog.NewTextHandler(&log, nil))
		r, err := f.New(m.alloc, m.journal.lastState(), m.journal)
		if err != nil {
			t.Fatal(err)
		}
		m.startRunner(r).mustEnd()
		if n := strings.Count(log.String(), "journal write failed"); n != 1 {
			t.Errorf("7 failures of a write are logged %d times", n)
		}
		wantRowLines(t, m.journal,
			"a Received (pending) -> pending", "a Started (running) -> running", "a Terminated (dead) -> complete",
		)
		m.mustStarts("a/1")
	})
}

// TestDiesAtEveryWrite ends the agent at each write to the journal, once before and once after the
// write is on disk, and starts the next.
func TestDiesAtEveryWrite(t *testing.T) {
	alloc := allocOf(fleet.JobTypeService, nil, task("a", map[string]any{"run_for": "10s", "exit_code": 3}))
	writes := 0
	inVirtualTime(t, alloc, func(m *machine) {
		m.startRunner(m.mustRunner()).mustEnd()
		writes = m.journal.writes
	})
	for n := 1; n <= writes; n++ {
		for _, applied := range []bool{false, true} {
			inVirtualTime(t, alloc, func(m *machine) { dieAtWrite(m, n, applied) })
		}
	}
	if writes < 12 {
		t.Errorf("only %d writes were tried", writes)
	}
}

func dieAtWrite(m *machine, n int, applied bool) {
	m.journal.dieAt, m.journal.applied = n, applied
	a := m.startRunner(m.mustRunner())
	select {
	case <-m.journal.dead:
		a.cancel()
		<-a.done // ctx's error, or nil if the write was the last one
		m.journal.reviveJournal()
		m.startRunner(m.mustRunner()).mustEnd()
	case err := <-a.done:
		m.Fatalf("the journal did not die at write %d: %v", n, err)
	}
	m.mustBe(fleet.ClientFailed)
	m.mustStarts("a/1", "a/2", "a/3")
	counts := map[string]int{}
	for _, row := range m.journal.rows {
		counts[row.Event.Type]++
		if row.Event.Type == fleet.TaskStarted && row.TaskState.RunningFor != 0 {
			m.Errorf("died at write %d (on disk: %v): it has just started, and runs for %s", n, applied, row.TaskState.RunningFor)
		}
	}
	delete(counts, fleet.TaskRestored)
	want := map[string]int{
		fleet.TaskReceived: 1, fleet.TaskStarted: 3, fleet.TaskTerminated: 3, fleet.TaskRestarting: 2, fleet.TaskNotRestarting: 1,
	}
	if !maps.Equal(counts, want) {
		m.Errorf("died at write %d (on disk: %v): events %v, want %v\n  %s",
			n, applied, counts, want, strings.Join(m.journal.rowLines(), "\n  "))
	}
}
