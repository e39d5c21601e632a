package edge

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"skerry/fleet"
	"skerry/internal/pace"
)

// orphanRemovalInterval is the pause between removals, and before the first: tasks of a cold boot must start first. A
// daemon that comes back may have started a task that its edge has stopped meanwhile.
const orphanRemovalInterval = time.Minute

// removeOrphans calls Config.RemoveOrphans regularly until ctx ends.
func (e *Edge) removeOrphans(ctx context.Context) {
	if e.cfg.RemoveOrphans == nil {
		return
	}
	for pace.Rest(ctx, orphanRemovalInterval) {
		e.cfg.RemoveOrphans(ctx, e.hasDriverState)
	}
}

// hasDriverState reports whether an allocation has a folder with its drivers' state. It has one from before the start
// of its first task until its end.
func (e *Edge) hasDriverState(id fleet.AllocID) bool {
	if !filepath.IsLocal(string(id)) {
		return false
	}
	_, err := os.Stat(filepath.Join(e.cfg.DataDir, "tasks", string(id)))
	return !os.IsNotExist(err)
}
