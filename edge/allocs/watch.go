package allocs

import (
	"context"
	"sync"

	"skerry/fleet"
)

// watch is the Recorder that runners are given. It notices when what the first
// look at the journal started is up.
type watch struct {
	Recorder
	done chan struct{}
	// recorded is told of what was recorded; set once.
	recorded func(ts []fleet.Transition)

	mu      sync.Mutex
	pending map[fleet.AllocID]map[string]bool // tasks that are not up yet
	armed   bool                              // all that is expected is in pending
}

func newWatch(rec Recorder) *watch {
	return &watch{Recorder: rec, done: make(chan struct{}), pending: map[fleet.AllocID]map[string]bool{}}
}

// expect waits for all tasks of an allocation.
func (w *watch) expect(a fleet.Alloc) {
	tasks := map[string]bool{}
	if g := a.Group(); g != nil {
		for _, t := range g.Tasks {
			tasks[t.Name] = true
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(tasks) > 0 {
		w.pending[a.ID] = tasks
	}
}

// begun says that nothing more will be expected.
func (w *watch) begun() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = true
	w.settle()
}

// Record records, and looks at what it is.
func (w *watch) Record(ctx context.Context, ts ...fleet.Transition) error {
	if err := w.Recorder.Record(ctx, ts...); err != nil {
		return err
	}
	w.look(ts)
	return nil
}

// PutHandle keeps a handle, and looks at what is recorded with it.
func (w *watch) PutHandle(ctx context.Context, alloc fleet.AllocID, key string, handle []byte, ts ...fleet.Transition) error {
	if err := w.Recorder.PutHandle(ctx, alloc, key, handle, ts...); err != nil {
		return err
	}
	if len(ts) > 0 {
		w.look(ts)
	}
	return nil
}

// look finds out what is up by what was recorded.
func (w *watch) look(ts []fleet.Transition) {
	if w.recorded != nil {
		w.recorded(ts)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range ts {
		tasks := w.pending[t.Alloc]
		if tasks == nil {
			continue
		}
		if s := t.TaskState; s != nil && (s.State == fleet.TaskRunning || s.State == fleet.TaskDead) && !downAtBoot(t) {
			delete(tasks, t.Task)
		}
		if s := (State{ClientStatus: t.ClientStatus}); s.Ended() || len(tasks) == 0 {
			delete(w.pending, t.Alloc)
		}
	}
	w.settle()
}

// downAtBoot reports a row that only says what the boot did to a task.
func downAtBoot(t fleet.Transition) bool {
	return t.Event != nil && t.Event.Type == fleet.TaskLostAtReboot
}

// ended forgets an allocation whose runner returned.
func (w *watch) ended(id fleet.AllocID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pending, id)
	w.settle()
}

// settle closes done when nothing is pending; mu is held.
func (w *watch) settle() {
	if !w.armed || len(w.pending) > 0 {
		return
	}
	select {
	case <-w.done:
	default:
		close(w.done)
	}
}
