package allocs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"skerry/edge/journal"
	"skerry/fleet"
	"skerry/internal/durable"
)

// A replacement whose group has a sticky ephemeral_disk takes over the data of its predecessor on this edge:
// alloc/data, and the local folder of each task. It waits for the predecessor's end. The folders are renamed one by
// one before the replacement's first row; after a crash the rest is renamed. If a replacement never began, its
// successor takes the data from both.

// dataKey is the journal key under which an allocation's state names its predecessor. No task can have this name.
const dataKey = "/data"

// maxPredecessors bounds the chain of replacements that never began.
const maxPredecessors = 100

// takesData reports whether an allocation must take over data before it begins.
func takesData(w journal.DesiredAlloc, s journal.State) bool {
	g := w.Alloc.Group()
	return s.ClientStatus == "" && !w.Stop && g != nil && g.EphemeralDisk.Sticky && w.Alloc.PreviousAllocation != ""
}

// dataSources returns the allocations of this edge whose data the given one takes over, the newest first: its
// predecessor, and earlier ones as long as none has run.
func dataSources(desired map[fleet.AllocID]journal.DesiredAlloc, states map[fleet.AllocID]journal.State, w journal.DesiredAlloc) []fleet.AllocID {
	var sources []fleet.AllocID
	for id := w.Alloc.PreviousAllocation; len(sources) < maxPredecessors; {
		before, known := desired[id]
		if !known {
			return sources
		}
		sources = append(sources, id)
		if hasRun(states[id]) || before.Alloc.PreviousAllocation == "" {
			return sources
		}
		id = before.Alloc.PreviousAllocation
	}
	return sources
}

// hasRun reports whether a task of the allocation was started.
func hasRun(s journal.State) bool {
	for _, t := range s.TaskStates {
		if t.StartedAt != nil || t.State == fleet.TaskRunning {
			return true
		}
	}
	return false
}

// dataHeld returns the allocations whose data a replacement has not taken over yet.
func dataHeld(desired map[fleet.AllocID]journal.DesiredAlloc, states map[fleet.AllocID]journal.State) map[fleet.AllocID]bool {
	held := map[fleet.AllocID]bool{}
	for id, w := range desired {
		if takesData(w, states[id]) {
			for _, from := range dataSources(desired, states, w) {
				held[from] = true
			}
		}
	}
	return held
}

// takeData has an allocation take over the data of its predecessor, wherever that was. why is the reason if it must wait,
// and again how long until that may have changed.
func (a *Allocs) takeData(ctx context.Context, desired map[fleet.AllocID]journal.DesiredAlloc, w journal.DesiredAlloc, s journal.State) (why string, again time.Duration, err error) {
	if why, err := a.takeStickyData(ctx, desired, w, s); why != "" || err != nil {
		return why, time.Hour, err
	}
	return a.awaitData(ctx, desired, w)
}

// takeStickyData moves the predecessors' data into an allocation's folder. why is the reason if it must wait.
func (a *Allocs) takeStickyData(ctx context.Context, desired map[fleet.AllocID]journal.DesiredAlloc, w journal.DesiredAlloc, s journal.State) (why string, err error) {
	if !takesData(w, s) {
		return "", nil
	}
	states := a.cfg.Journal.States()
	sources := dataSources(desired, states, w)
	for _, from := range sources {
		if a.activeAllocOf(from) != nil || !states[from].Terminal() {
			return fmt.Sprintf("waits for allocation %s to end, to take over its data", fleet.Short(from)), nil
		}
	}
	for _, from := range sources {
		if err := a.moveData(ctx, from, w.Alloc); err != nil {
			return fmt.Sprintf("the data of allocation %s cannot be moved: %v", fleet.Short(from), err), err
		}
	}
	return "", nil
}

// moveData journals that an allocation takes over the data of an ended one, and then moves the folders that the new
// one lacks.
func (a *Allocs) moveData(ctx context.Context, from fleet.AllocID, to fleet.Alloc) error {
	moves := a.missingData(from, to)
	if len(moves) == 0 {
		return nil
	}
	if err := a.recordDataTaken(ctx, from, to.ID); err != nil {
		return err
	}
	for _, part := range moves {
		target := filepath.Join(a.cfg.Dir, string(to.ID), part)
		if err := durable.MakeFolders(filepath.Dir(target), 0o700); err != nil {
			return fmt.Errorf("move the data of allocation %s: %w", fleet.Short(from), err)
		}
		if err := durable.Rename(filepath.Join(a.cfg.Dir, string(from), part), target); err != nil {
			return fmt.Errorf("move the data of allocation %s: %w", fleet.Short(from), err)
		}
	}
	a.log.Info("data of an ended allocation is moved to its replacement", "alloc_id", string(to.ID), "previous", string(from))
	return nil
}

// missingData returns the data folders that exist for from and are missing for to, relative to their folders.
func (a *Allocs) missingData(from fleet.AllocID, to fleet.Alloc) []string {
	var missing []string
	for _, part := range dataFolders(&to) {
		if _, err := os.Lstat(filepath.Join(a.cfg.Dir, string(to.ID), part)); err == nil {
			continue
		}
		if info, err := os.Lstat(filepath.Join(a.cfg.Dir, string(from), part)); err == nil && info.IsDir() {
			missing = append(missing, part)
		}
	}
	return missing
}

// recordDataTaken journals, once, that an allocation takes over the data of another.
func (a *Allocs) recordDataTaken(ctx context.Context, from, to fleet.AllocID) error {
	handles, err := a.cfg.Journal.Handles(ctx, to)
	if err != nil {
		return fmt.Errorf("read whose data allocation %s takes: %w", fleet.Short(to), err)
	}
	if string(handles[dataKey]) == string(from) {
		return nil
	}
	row := fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: to, Message: "takes over the data of allocation " + fleet.Short(from) + ", which has ended"}
	if err := a.cfg.Journal.PutHandle(ctx, to, dataKey, []byte(from), row); err != nil {
		return fmt.Errorf("record whose data allocation %s takes: %w", fleet.Short(to), err)
	}
	return nil
}
