package supervised_test

import (
	"testing"
	"time"

	"skerry/drivers"
	"skerry/fleet"
)

// TestConsumed measures a task whose child computes while its main process waits: the child counts,
// until it has ended.
func TestConsumed(t *testing.T) {
	d := mustDriver(t, "boot")
	_, task := mustStart(t, d, newTaskConfig(t, "sh -c 'while :; do :; done' & wait"))
	meter, ok := task.(drivers.Meter)
	if !ok {
		t.Fatal("a task cannot be measured")
	}
	busy := time.NewTicker(20 * time.Millisecond)
	defer busy.Stop()
	late := time.After(30 * time.Second)
	for {
		used, err := meter.Consumed(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var cpu time.Duration
		var memory uint64
		for _, c := range used {
			cpu += c.User + c.System
			memory += c.RSS
			if c.PID == 0 || c.Start == 0 {
				t.Fatalf("a process %+v", c)
			}
		}
		if len(used) == 2 && cpu >= 100*time.Millisecond && memory > 100<<10 {
			break
		}
		select {
		case <-busy.C:
		case <-late:
			t.Fatalf("after 30 s: %+v", used)
		}
	}
	if err := task.Stop(t.Context(), "SIGKILL", time.Second); err != nil {
		t.Fatal(err)
	}
	if used, err := meter.Consumed(t.Context()); fleet.CodeOf(err) != fleet.CodeConflict {
		t.Errorf("when it has ended: %+v, %v", used, err)
	}
}
