package allocs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"skerry/edge/journal"
	"skerry/fleet"
)

// Collect removes an ended allocation and its folder from this edge, regardless of KeepEnded; for "" it removes all
// that may be removed. The error for a single one says why it must stay (whyHeld).
func (a *Allocs) Collect(ctx context.Context, id fleet.AllocID) error {
	desired, err := a.readDesired(ctx)
	if err != nil {
		return fmt.Errorf("collect allocations: %w", err)
	}
	if id != "" {
		states, acknowledged := a.cfg.Journal.States(), a.cfg.Journal.Head().Acknowledged
		w, held := desired[id]
		if !held {
			return fleet.Errorf(fleet.CodeNotFound, "garbage-collect allocation %s: it is not on this edge", fleet.Short(id)).
				WithHint("its folder is already removed")
		}
		if why, hint := a.whyHeld(w, states[id], acknowledged); why != "" {
			return fleet.Errorf(fleet.CodeConflict, "garbage-collect allocation %s: %s", fleet.Short(id), why).WithHint("%s", hint)
		}
		if dataHeld(desired, states)[id] {
			return fleet.Errorf(fleet.CodeConflict, "garbage-collect allocation %s: its replacement has not taken its data yet", fleet.Short(id)).
				WithHint("ask again when the replacement runs")
		}
		if a.keepsData(w, states[id]) {
			return fleet.Errorf(fleet.CodeConflict, "garbage-collect allocation %s: a replacement on another edge may need its data", fleet.Short(id)).
				WithHint("ask again when the replacement runs, or an hour after its end")
		}
		return a.collectEnded(ctx, id)
	}
	var failed []error
	for _, id := range a.collectableAllocs(desired) {
		failed = append(failed, a.collectEnded(ctx, id))
	}
	return errors.Join(failed...)
}

// CollectOldest removes the allocation that ended first among those that may be removed, whatever KeepEnded says. It
// returns false if it removed none, and the errors of the allocations that it could not remove.
func (a *Allocs) CollectOldest(ctx context.Context) (bool, error) {
	desired, err := a.readDesired(ctx)
	if err != nil {
		return false, fmt.Errorf("collect the oldest ended allocation: %w", err)
	}
	var failed []error
	for _, id := range a.collectableAllocs(desired) {
		err := a.collectEnded(ctx, id)
		if err == nil {
			return true, errors.Join(failed...)
		}
		failed = append(failed, err)
	}
	return false, errors.Join(failed...)
}

// collectableAllocs returns the ended allocations that may be removed (whyHeld), in the order of their ends.
func (a *Allocs) collectableAllocs(desired map[fleet.AllocID]journal.DesiredAlloc) []fleet.AllocID {
	states, acknowledged := a.cfg.Journal.States(), a.cfg.Journal.Head().Acknowledged
	needed := dataHeld(desired, states)
	var ended []fleet.AllocID
	for id, w := range desired {
		if why, _ := a.whyHeld(w, states[id], acknowledged); why == "" && !needed[id] && !a.keepsData(w, states[id]) {
			ended = append(ended, id)
		}
	}
	slices.SortFunc(ended, func(x, y fleet.AllocID) int { return cmp.Compare(states[x].Seq, states[y].Seq) })
	return ended
}

// collectEnded removes an ended allocation's folders, and then its desired state.
func (a *Allocs) collectEnded(ctx context.Context, id fleet.AllocID) error {
	if err := a.removeFolders(id); err != nil {
		return fmt.Errorf("remove the folder of allocation %s: %w", fleet.Short(id), err)
	}
	if err := a.forgetAlloc(ctx, id); err != nil {
		return fmt.Errorf("forget allocation %s: %w", fleet.Short(id), err)
	}
	a.log.Info("ended allocation is collected", "alloc_id", string(id))
	return nil
}

// whyHeld returns why an allocation must stay on this edge, with a hint, or "". An allocation may be removed after it
// has ended, the hubs have acknowledged that, and no operator on site holds its name.
func (a *Allocs) whyHeld(w journal.DesiredAlloc, s journal.State, acknowledged fleet.Seq) (why, hint string) {
	runs := a.activeAllocOf(w.Alloc.ID) != nil
	switch {
	case !s.Terminal():
		return "it has not ended", "stop it first: skerry alloc stop " + fleet.Short(w.Alloc.ID)
	case runs, s.Seq > acknowledged:
		return "the hubs have not confirmed its end yet", "ask again in a few seconds"
	case w.KeptStopped, s.Held != nil:
		return "an operator on site stopped it and has not released it", "on the edge itself: skerry local start " + fleet.Short(w.Alloc.ID)
	}
	return "", ""
}

// removeFolders deletes an allocation's folders below Dir and TasksDir.
func (a *Allocs) removeFolders(id fleet.AllocID) error {
	err := os.RemoveAll(filepath.Join(a.cfg.Dir, string(id)))
	if a.cfg.TasksDir != "" {
		err = errors.Join(err, os.RemoveAll(filepath.Join(a.cfg.TasksDir, string(id))))
	}
	return err
}

// forgetAlloc deletes an ended allocation's desired state from the journal. Its final state stays, so that it
// never starts again.
func (a *Allocs) forgetAlloc(ctx context.Context, id fleet.AllocID) error {
	if err := a.cfg.Journal.Remove(ctx, id); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.runDeliveredAt, id)
	a.moving.dropRecords(id)
	return nil
}
