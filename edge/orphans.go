package edge

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"skerry/fleet"
	"skerry/internal/pace"
)

const (
	// firstOrphanRemoval is when orphans are first looked for: not while the tasks of a cold boot start.
	firstOrphanRemoval = time.Minute
	// orphanRemovalInterval is how often they are looked for afterwards.
	orphanRemovalInterval = 10 * time.Minute
)

// removeOrphans calls Config.RemoveOrphans regularly until ctx ends.
func (e *Edge) removeOrphans(ctx context.Context) {
	if e.cfg.RemoveOrphans == nil {
		return
	}
	for wait := firstOrphanRemoval; pace.Rest(ctx, wait); wait = orphanRemovalInterval {
		e.cfg.RemoveOrphans(ctx, e.hasDriverState)
	}
}

// hasDriverState reports whether an allocation has a folder for its drivers' state: it has one from before its first
// task starts until it has ended.
func (e *Edge) hasDriverState(id fleet.AllocID) bool {
	if !filepath.IsLocal(string(id)) {
		return false
	}
	_, err := os.Stat(filepath.Join(e.cfg.DataDir, "tasks", string(id)))
	return !os.IsNotExist(err)
}
