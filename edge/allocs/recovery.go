package allocs

import (
	"context"
	"sync"

	"skerry/edge/contract"
	"skerry/edge/journal"
	"skerry/fleet"
)

// recoveryWatch is the Recorder that runners get. It passes rows on to the journal, and closes done when all
// tasks of the first reconciliation run or have ended.
type recoveryWatch struct {
	contract.Recorder
	done chan struct{}
	// recorded is called with the recorded rows; set once.
	recorded func(ts []fleet.Transition)

	mu          sync.Mutex
	pending     map[fleet.AllocID]map[string]bool // tasks that are not up yet
	allExpected bool                              // pending is complete
}

func newRecoveryWatch(rec contract.Recorder) *recoveryWatch {
	return &recoveryWatch{Recorder: rec, done: make(chan struct{}), pending: map[fleet.AllocID]map[string]bool{}}
}

// expectTasks makes done wait for all tasks of an allocation.
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

// stopExpecting says that expectTasks was called for every allocation of the first reconciliation.
func (w *recoveryWatch) stopExpecting() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.allExpected = true
	w.closeWhenRecovered()
}

// Record journals rows and then observes them.
func (w *recoveryWatch) Record(ctx context.Context, ts ...fleet.Transition) error {
	if err := w.Recorder.Record(ctx, ts...); err != nil {
		return err
	}
	w.observeRows(ts)
	return nil
}

// PutHandle journals a handle with rows and then observes the rows.
func (w *recoveryWatch) PutHandle(ctx context.Context, alloc fleet.AllocID, key string, handle []byte, ts ...fleet.Transition) error {
	if err := w.Recorder.PutHandle(ctx, alloc, key, handle, ts...); err != nil {
		return err
	}
	if len(ts) > 0 {
		w.observeRows(ts)
	}
	return nil
}

// observeRows gets the rows that were journaled and passes them to w.recorded. It removes from pending each task that a
// row shows as running or ended.
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

// downAtBoot reports whether a row only records that a reboot ended the task.
func downAtBoot(t fleet.Transition) bool {
	return t.Event != nil && t.Event.Type == fleet.TaskLostAtReboot
}

// dropPendingAlloc stops waiting for an allocation whose runner has returned.
func (w *recoveryWatch) dropPendingAlloc(id fleet.AllocID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pending, id)
	w.closeWhenRecovered()
}

// closeWhenRecovered closes done if nothing is pending. mu is held.
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
