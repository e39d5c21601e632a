package allocs

import (
	"context"
	"sync"

	"skerry/edge/contract"
	"skerry/edge/journal"
	"skerry/fleet"
)

// recoveryWatch is the Recorder that runners are given. It notices when what the first
// look at the journal started is up.
type recoveryWatch struct {
	contract.Recorder
	done chan struct{}
	// recorded is told of what was recorded; set once.
	recorded func(ts []fleet.Transition)

	mu          sync.Mutex
	pending     map[fleet.AllocID]map[string]bool // tasks that are not up yet
	allExpected bool                              // all that is expected is in pending
}

func newRecoveryWatch(rec contract.Recorder) *recoveryWatch {
	return &recoveryWatch{Recorder: rec, done: make(chan struct{}), pending: map[fleet.AllocID]map[string]bool{}}
}

// expectTasks waits for all tasks of an allocation.
func (w *recoveryWatch) expectTasks(a fleet.Alloc) {
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

// stopExpecting says that nothing more will be expected.
func (w *recoveryWatch) stopExpecting() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.allExpected = true
	w.closeWhenRecovered()
}

// Record records, and looks at what it is.
func (w *recoveryWatch) Record(ctx context.Context, ts ...fleet.Transition) error {
	if err := w.Recorder.Record(ctx, ts...); err != nil {
		return err
	}
	w.observeRows(ts)
	return nil
}

// PutHandle keeps a handle, and looks at what is recorded with it.
func (w *recoveryWatch) PutHandle(ctx context.Context, alloc fleet.AllocID, key string, handle []byte, ts ...fleet.Transition) error {
	if err := w.Recorder.PutHandle(ctx, alloc, key, handle, ts...); err != nil {
		return err
	}
	if len(ts) > 0 {
		w.observeRows(ts)
	}
	return nil
}

// observeRows finds out what is up by what was recorded.
func (w *recoveryWatch) observeRows(ts []fleet.Transition) {
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
		if s := (journal.State{ClientStatus: t.ClientStatus}); s.Terminal() || len(tasks) == 0 {
			delete(w.pending, t.Alloc)
		}
	}
	w.closeWhenRecovered()
}

// downAtBoot reports a row that only says what the boot did to a task.
func downAtBoot(t fleet.Transition) bool {
	return t.Event != nil && t.Event.Type == fleet.TaskLostAtReboot
}

// dropPendingAlloc forgets an allocation whose runner returned.
func (w *recoveryWatch) dropPendingAlloc(id fleet.AllocID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pending, id)
	w.closeWhenRecovered()
}

// closeWhenRecovered closes done when nothing is pending; mu is held.
func (w *recoveryWatch) closeWhenRecovered() {
	if !w.allExpected || len(w.pending) > 0 {
		return
	}
	select {
	case <-w.done:
	default:
		close(w.done)
	}
}
