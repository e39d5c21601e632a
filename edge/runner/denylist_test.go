package runner_test

import (
	"testing"

	"skerry/drivers/sim"
	"skerry/edge/runner"
	"skerry/fleet"
)

// A task with a denied driver never starts, and another one does.
func TestDriverDenylist(t *testing.T) {
	for _, c := range []struct {
		denied []string
		want   []string
	}{
		{[]string{"raw_exec", sim.Name}, []string{"a Received (pending) -> pending", "a Driver Failure (pending)", "a Not Restarting (dead) failed -> failed"}},
		{[]string{"raw_exec"}, []string{"a Received (pending) -> pending", "a Started (running) -> running", "a Terminated (dead) -> complete"}},
	} {
		a := allocOf(fleet.JobTypeBatch, nil, task("a", map[string]any{"run_for": "1m"}))
		inVirtualTime(t, a, func(m *machine) {
			f := m.newFactory()
			f.Hooks = []runner.Hook{runner.DriverDenylist(c.denied)}
			r, err := f.New(m.alloc, m.journal.lastState(), m.journal)
			if err != nil {
				t.Fatal(err)
			}
			m.startRunner(r).mustEnd()
			wantRowLines(t, m.journal, c.want...)
		})
	}
}
