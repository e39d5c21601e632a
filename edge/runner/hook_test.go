package runner_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/drivers"
	"skerry/edge/runner"
	"skerry/fleet"
)

// fakeHook sets a variable, fails as often as it is told to, and asks for one restart an hour after each start.
type fakeHook struct {
	failures int
	prepared []string // value of each Replace
	released []fleet.AllocID
	watches  int // that run now
	watched  []string
}

func (h *fakeHook) Name() string { return "answer" }

func (h *fakeHook) Prepare(_ context.Context, p *runner.Preparation) error {
	p.Config.Env["PAUSE"] = "90m"
	h.prepared = append(h.prepared, p.Replace("${NOMAD_TASK_NAME} ${PAUSE}"))
	if h.failures > 0 {
		h.failures--
		return drivers.Recoverable(errors.New("the source is away"))
	}
	return p.Event(fleet.TaskSetup, "prepared")
}

func (h *fakeHook) Release(_ context.Context, a fleet.Alloc) error {
	h.released = append(h.released, a.ID)
	return nil
}

func (h *fakeHook) Watch(ctx context.Context, p *runner.Preparation, control runner.TaskControl) {
	h.watches++
	h.watched = append(h.watched, p.Replace("${PAUSE}"))
	defer func() { h.watches-- }()
	select {
	case <-ctx.Done():
	case <-time.After(time.Hour):
		if err := control.Event(ctx, fleet.TaskSetup, "changed"); err == nil {
			_ = control.Restart(ctx, "the source has changed")
		}
	}
}

// TestHooks: a hook that fails is tried again by the restart policy, its variables reach the configuration, its
// watcher restarts the task and ends with each attempt, and it releases once.
func TestHooks(t *testing.T) {
	a := allocOf(fleet.JobTypeService, nil, task("a", map[string]any{"run_for": "${PAUSE}"}))
	inVirtualTime(t, a, func(m *machine) {
		h := &fakeHook{failures: 1}
		f := m.newFactory()
		f.Hooks = []runner.Hook{h}
		r, err := f.New(m.alloc, m.journal.lastState(), m.journal)
		if err != nil {
			t.Fatal(err)
		}
		agent := m.startRunner(r)
		time.Sleep(time.Hour + 30*time.Minute)
		synctest.Wait()
		m.mustBe(fleet.ClientRunning)
		if h.watches != 1 {
			t.Errorf("%d watchers run, want 1", h.watches)
		}
		agent.Stop("because")
		agent.mustEnd()
		wantRowLines(t, m.journal,
			"a Received (pending) -> pending",
			"a Driver Failure (pending)", "a Restarting (pending)",
			"a Task Setup (pending)", "a Started (running) -> running",
			"a Task Setup (running)", "a Restart Signaled (running)", "a Terminated (running)", "a Restarting (pending)",
			"a Task Setup (pending)", "a Started (running)",
			"a Killing (running)", "a Terminated (running)", "a Killed (dead) -> complete",
		)
		if want := []string{"a 90m", "a 90m", "a 90m"}; !slices.Equal(h.prepared, want) {
			t.Errorf("prepared %q, want %q", h.prepared, want)
		}
		if want := []string{"90m", "90m"}; !slices.Equal(h.watched, want) {
			t.Errorf("watched with %q, want %q", h.watched, want)
		}
		if len(h.released) != 1 || h.watches != 0 {
			t.Errorf("released %v, %d watchers run", h.released, h.watches)
		}
	})
}

// networkHook reports the next address of the allocation at each attempt.
type networkHook struct{ addresses []string }

func (h *networkHook) Name() string { return "network" }

func (h *networkHook) Prepare(_ context.Context, p *runner.Preparation) error {
	at := h.addresses[0]
	h.addresses = h.addresses[1:]
	return p.Network(fleet.NetworkStatus{InterfaceName: "eth0", Address: at})
}

func (h *networkHook) Release(context.Context, fleet.Alloc) error { return nil }

// TestNetworkIsRecordedOnce: the network status is journaled before the task starts, and again only when it is another one.
func TestNetworkIsRecordedOnce(t *testing.T) {
	a := allocOf(fleet.JobTypeService, nil, task("a", map[string]any{"run_for": "1h"}))
	inVirtualTime(t, a, func(m *machine) {
		h := &networkHook{addresses: []string{"172.26.64.2", "172.26.64.2", "172.26.64.9"}}
		f := m.newFactory()
		f.Hooks = []runner.Hook{h}
		r, err := f.New(m.alloc, m.journal.lastState(), m.journal)
		if err != nil {
			t.Fatal(err)
		}
		agent := m.startRunner(r)
		time.Sleep(150 * time.Minute) // it ended twice, and was started again
		synctest.Wait()
		agent.Stop("because")
		agent.mustEnd()
		started, got := 0, []string{}
		for _, row := range m.journal.rows {
			if row.Event != nil && row.Event.Type == fleet.TaskStarted {
				started++
			}
			if row.Network != nil {
				got = append(got, fmt.Sprint(started, " ", row.Network.Address, " ", row.Message))
			}
		}
		want := []string{"0 172.26.64.2 address 172.26.64.2 on eth0", "2 172.26.64.9 address 172.26.64.9 on eth0"}
		if started != 3 || !slices.Equal(got, want) {
			t.Errorf("%d starts, networks %q, want %q", started, got, want)
		}
	})
}

// secretHook sets the items of a secret, and keeps the variable with one of them.
type secretHook struct{ got []string }

func (h *secretHook) Name() string { return "secrets" }

func (h *secretHook) Prepare(_ context.Context, p *runner.Preparation) error {
	err := p.SetSecrets(map[string]string{"secret.a.key": "value of ${secret.a.key}", "secret.a.pause": "90m"})
	h.got = append(h.got, p.Config.Env["ENV"], p.Config.Env["NOMAD_META_x"], p.Config.MemoryDir, p.Replace("${secret.a.pause}"))
	return err
}

func (h *secretHook) Release(context.Context, fleet.Alloc) error { return nil }

// TestSecretsAreReplacedOnce: secrets are in the env and config blocks of the job alone. Neither a meta of a dispatch nor a value of a secret
// that looks like a reference gets one, and no other hook.
func TestSecretsAreReplacedOnce(t *testing.T) {
	asked := task("a", map[string]any{"run_for": "${secret.a.pause}"})
	asked.Env = map[string]string{"ENV": "${secret.a.key} and ${NOMAD_META_x}"}
	asked.Meta = map[string]string{"x": "${secret.a.key}"}
	inVirtualTime(t, allocOf(fleet.JobTypeBatch, nil, asked), func(m *machine) {
		h, memory := &secretHook{}, t.TempDir()
		f := m.newFactory()
		f.Hooks = []runner.Hook{h}
		f.MemoryDir = func(fleet.AllocID, string, int) (string, error) { return memory, nil }
		r, err := f.New(m.alloc, m.journal.lastState(), m.journal)
		if err != nil {
			t.Fatal(err)
		}
		agent := m.startRunner(r)
		time.Sleep(89 * time.Minute)
		synctest.Wait()
		m.mustBe(fleet.ClientRunning)
		time.Sleep(2 * time.Minute)
		agent.mustEnd()
		m.mustBe(fleet.ClientComplete)
		want := []string{"value of ${secret.a.key} and ${secret.a.key}", "${secret.a.key}", memory, "${secret.a.pause}"}
		if !slices.Equal(h.got, want) {
			t.Errorf("%q, want %q", h.got, want)
		}
	})
}

// tellingHook sets secrets, and tells them in an event, in its error and, while the task runs, in another event.
type tellingHook struct{ fails bool }

const told = "mArKeD\nsecret/1"

func (h *tellingHook) Name() string { return "telling" }

func (h *tellingHook) Prepare(_ context.Context, p *runner.Preparation) error {
	h.RestoreVars(p)
	if err := p.Event(fleet.TaskSetup, "has "+told); err != nil {
		return err
	}
	if h.fails {
		return fmt.Errorf("use %q", told)
	}
	return nil
}

// RestoreVars implements runner.VarRestorer.
func (h *tellingHook) RestoreVars(p *runner.Preparation) {
	_ = p.SetSecrets(map[string]string{"secret.a.key": told})
	_ = p.SetSecretVars(map[string]string{"TOLD": told}) // refused where the environment is on the disk: the value is a secret all the same
}

func (h *tellingHook) Watch(ctx context.Context, p *runner.Preparation, control runner.TaskControl) {
	_ = control.Event(ctx, fleet.TaskSetup, "watches "+p.Replace("${TOLD}")+" and secret%2F1")
}

func (h *tellingHook) Release(context.Context, fleet.Alloc) error { return nil }

// TestEventsHaveNoSecrets: no event of a task has the value of a secret, whoever makes it: a hook, also of the next agent, the driver that
// checks the configuration, or the driver that starts the task.
func TestEventsHaveNoSecrets(t *testing.T) {
	for what, tc := range map[string]struct {
		config   map[string]any
		fails    bool
		inMemory bool
		kinds    string
	}{
		"the configuration": {map[string]any{"run_for": "x ${TOLD}"}, false, true, "Driver Failure Not Restarting Received Task Setup"},
		"a start":           {map[string]any{"start_error": "no ${TOLD}"}, false, true, "Driver Failure Not Restarting Received Task Setup"},
		"a hook":            {map[string]any{"run_for": "1h"}, true, true, "Driver Failure Not Restarting Received Task Setup"},
		"a task":            {map[string]any{"run_for": "1h"}, false, true, "Received Restored Started Task Setup"},
		"a disk":            {map[string]any{"run_for": "1h"}, false, false, "Received Restored Started Task Setup"},
	} {
		t.Run(what, func(t *testing.T) {
			inVirtualTime(t, allocOf(fleet.JobTypeBatch, nil, task("a", tc.config)), func(m *machine) {
				memory := t.TempDir()
				start := func() *agent {
					f := m.newFactory()
					f.Hooks = []runner.Hook{&tellingHook{fails: tc.fails}}
					if tc.inMemory {
						f.MemoryDir = func(fleet.AllocID, string, int) (string, error) { return memory, nil }
					}
					r, err := f.New(m.alloc, m.journal.lastState(), m.journal)
					if err != nil {
						t.Fatal(err)
					}
					agent := m.startRunner(r)
					time.Sleep(time.Minute)
					synctest.Wait()
					return agent
				}
				agent := start()
				if !tc.fails && strings.Contains(tc.kinds, "Restored") {
					agent.detachAgent()
					start()
				}
				var kinds []string
				for _, row := range m.journal.rows {
					if row.Event == nil {
						continue
					}
					kinds = append(kinds, row.Event.Type)
					if text := row.Event.DisplayMessage; strings.Contains(text, "mArKeD") || strings.Contains(text, "secret/1") || strings.Contains(text, "secret%2F1") {
						t.Errorf("%s: %s", row.Event.Type, text)
					}
				}
				slices.Sort(kinds)
				if got := strings.Join(slices.Compact(kinds), " "); got != tc.kinds {
					t.Errorf("events %s, want %s", got, tc.kinds)
				}
			})
		})
	}
}
