package cores_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"skerry/drivers"
	"skerry/edge/cores"
	"skerry/edge/runner"
	"skerry/fleet"
)

// fakeDriver records which tasks it keeps off which cores.
type fakeDriver struct {
	drivers.Driver
	mu    sync.Mutex
	fails bool
	said  []string
}

func (d *fakeDriver) KeepOffCores(_ context.Context, cfg drivers.TaskConfig, reserved []int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.said = append(d.said, fmt.Sprint(cfg.Task, " ", reserved))
	if d.fails {
		return errors.New("the daemon hangs")
	}
	return nil
}

// mustHear checks what the driver was told since the last call, in any order.
func (d *fakeDriver) mustHear(tb testing.TB, want ...string) {
	tb.Helper()
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	slices.Sort(d.said)
	if !slices.Equal(d.said, want) {
		tb.Errorf("the driver was told %q, want %q", d.said, want)
	}
	d.said = nil
}

// watch watches a task that has reserved some cores, until end is called.
func watch(h *cores.Hook, driver, task string, own ...int) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	p := &runner.Preparation{
		Alloc: fleet.Alloc{ID: "a", Allotment: &fleet.AssignedResources{Tasks: map[string]fleet.AssignedTaskResources{task: {Cores: own}}}},
		Task:  &fleet.Task{Name: task, Driver: driver}, Config: &drivers.TaskConfig{Task: task},
	}
	if len(own) == 0 {
		p.Alloc.Allotment = nil
	}
	var wg sync.WaitGroup
	wg.Go(func() { h.Watch(ctx, p, nil) })
	return func() { cancel(); wg.Wait() }
}

// TestTasksLeaveReservedCores: tasks without cores of their own leave those of others, and get them back.
func TestTasksLeaveReservedCores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDriver{}
		h := cores.New(map[string]drivers.Driver{"fake": d, "other": nil}, slog.New(slog.DiscardHandler))
		endA := watch(h, "fake", "a")
		d.mustHear(t, "a []")
		endX := watch(h, "fake", "x", 1, 3)
		d.mustHear(t, "a [1 3]")
		endB := watch(h, "fake", "b")
		d.mustHear(t, "b [1 3]")
		endY := watch(h, "other", "y", 0)
		d.mustHear(t, "a [0 1 3]", "b [0 1 3]")
		watch(h, "other", "z")() // a driver that moves no tasks
		endA()
		endX()
		d.mustHear(t, "b [0]")
		endY()
		d.mustHear(t, "b []")
		endB()
		d.mustHear(t)
	})
}

// TestTaskThatCannotBeMoved: a failure is logged once, and tried again when the reserved cores change.
func TestTaskThatCannotBeMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, log := &fakeDriver{fails: true}, &strings.Builder{}
		h := cores.New(map[string]drivers.Driver{"fake": d}, slog.New(slog.NewTextHandler(log, nil)))
		endA := watch(h, "fake", "a")
		d.mustHear(t, "a []")
		endX := watch(h, "fake", "x", 1)
		d.mustHear(t, "a [1]")
		endA()
		endX()
		if n := strings.Count(log.String(), "the daemon hangs"); n != 1 {
			t.Errorf("%d messages: %s", n, log)
		}
	})
}
