package runner_test

import (
	"context"
	"errors"
	"slices"
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
		if len(h.released) != 1 || h.watches != 0 {
			t.Errorf("released %v, %d watchers run", h.released, h.watches)
		}
	})
}
