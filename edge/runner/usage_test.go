package runner_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"skerry/drivers"
	"skerry/drivers/sim"
	"skerry/fleet"
)

// withMeter is a driver whose tasks use half of a processor. The second of two measurements fails with ends, if it is set.
type withMeter struct {
	drivers.Driver
	ends *error
}

type meteredTask struct {
	drivers.Task
	began  time.Time
	ends   *error
	looked *int
}

func (d withMeter) Recover(ctx context.Context, cfg drivers.TaskConfig, h drivers.Handle) (drivers.Task, error) {
	t, err := d.Driver.Recover(ctx, cfg, h)
	return meteredTask{t, time.Now(), d.ends, new(int)}, err
}

func (t meteredTask) Consumed(context.Context) ([]fleet.Consumed, error) {
	*t.looked++
	if *t.looked%2 == 0 && *t.ends != nil {
		return nil, *t.ends
	}
	return []fleet.Consumed{{PID: 7, Start: 1, User: time.Since(t.began) / 2, RSS: 1 << 20}}, nil
}

func TestUsageIsMeasured(t *testing.T) {
	inVirtualTime(t, allocOf(fleet.JobTypeService, nil, task("a", map[string]any{"run_for": "1h"})), func(m *machine) {
		f := m.newFactory()
		var ends error
		f.Drivers[sim.Name] = withMeter{f.Drivers[sim.Name], &ends}
		r, err := f.New(m.alloc, m.journal.lastState(), m.journal)
		if err != nil {
			t.Fatal(err)
		}
		a := m.startRunner(r)
		synctest.Wait()
		for _, name := range []string{"", "a"} {
			used, err := r.Usage(m.Context(), name, 2000)
			if err != nil || used["a"] == nil {
				t.Fatalf("of %q: %v, %v", name, used, err)
			}
			if u := used["a"].ResourceUsage; u.CpuStats.Percent != 50 || u.CpuStats.TotalTicks != 1000 || u.MemoryStats.RSS != 1<<20 {
				t.Errorf("of %q: %+v %+v", name, u.CpuStats, u.MemoryStats)
			}
		}
		ends = fleet.Errorf(fleet.CodeConflict, "it has ended")
		if used, err := r.Usage(m.Context(), "", 2000); err != nil || len(used) != 0 {
			t.Errorf("of a task that ends meanwhile: %v, %v", used, err)
		}
		ends = errors.New("no files in /proc")
		if _, err := r.Usage(m.Context(), "", 2000); !errors.Is(err, ends) {
			t.Errorf("of a task that cannot be measured: %v", err)
		}
		a.Stop("")
		a.mustEnd()
	})
}
