// Package cores keeps tasks off the cores that other tasks have reserved with cores in their resources: a Hook of
// edge/runner, put together in cmd/edged. Drivers give a task its own cores; the hook moves the tasks that reserve none,
// whenever a task with reserved cores starts or ends.
//
// It starts no goroutine and stores nothing: a restarted agent watches the same tasks again.
package cores

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"skerry/drivers"
	"skerry/edge/runner"
	"skerry/fleet"
)

// Hook knows which cores are reserved by running tasks. It implements runner.Hook and runner.Watcher.
type Hook struct {
	drivers map[string]drivers.Driver
	log     *slog.Logger

	mu       sync.Mutex
	reserved map[int]int   // guarded by mu: number of running tasks, by core
	changed  chan struct{} // guarded by mu: closed when reserved changes
}

var _ runner.Watcher = (*Hook)(nil)

// New makes the hook. It needs the drivers, by name, to move their tasks.
func New(known map[string]drivers.Driver, log *slog.Logger) *Hook {
	return &Hook{drivers: known, log: log.With("component", "cores"), reserved: map[int]int{}, changed: make(chan struct{})}
}

// Name returns "cores".
func (h *Hook) Name() string { return "cores" }

// Prepare does nothing: the cores that a task has reserved are among its variables.
func (h *Hook) Prepare(context.Context, *runner.Preparation) error { return nil }

// Release does nothing: cores are free again when their task has ended.
func (h *Hook) Release(context.Context, fleet.Alloc) error { return nil }

// Watch reserves the cores of a task while it runs, or keeps a task without such cores off those of others.
func (h *Hook) Watch(ctx context.Context, p *runner.Preparation, _ runner.TaskControl) {
	if own := reservedCores(p); len(own) > 0 {
		h.changeReserved(own, 1)
		<-ctx.Done()
		h.changeReserved(own, -1)
		return
	}
	sharer, ok := h.drivers[p.Task.Driver].(drivers.CoreSharer)
	if !ok {
		return
	}
	for failed := false; ; {
		reserved, changed := h.listReserved()
		err := sharer.KeepOffCores(ctx, *p.Config, reserved)
		if err != nil && !failed && ctx.Err() == nil {
			h.log.Warn("task shares the cores that others have reserved", "alloc_id", string(p.Alloc.ID), "task", p.Task.Name, "error", err)
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// reservedCores returns the cores that a task has for itself.
func reservedCores(p *runner.Preparation) []int {
	if p.Alloc.Allotment == nil {
		return nil
	}
	return p.Alloc.Allotment.Tasks[p.Task.Name].Cores
}

// changeReserved counts a task that reserves cores, or no longer does.
func (h *Hook) changeReserved(cores []int, by int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range cores {
		if h.reserved[id] += by; h.reserved[id] <= 0 {
			delete(h.reserved, id)
		}
	}
	close(h.changed)
	h.changed = make(chan struct{})
}

// listReserved returns the reserved cores in order, and a channel that is closed when they change.
func (h *Hook) listReserved() ([]int, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.reserved)), h.changed
}
