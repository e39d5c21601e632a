package edged

import (
	"fmt"
	"log/slog"
	"path/filepath"

	"skerry/edge/secretdirs"
	"skerry/fleet"
)

// newSecretsHook makes the hook that keeps the secrets folders of tasks, and environments with secrets, in memory.
func newSecretsHook(dataDir string, boot fleet.BootID, log *slog.Logger) (*secretdirs.Hook, error) {
	dir, err := filepath.Abs(dataDir)
	if err != nil {
		return nil, fmt.Errorf("find the data directory %s: %w", dataDir, err)
	}
	return secretdirs.New(secretdirs.Config{
		Allocs: filepath.Join(dir, "allocs"), Memory: filepath.Join(dir, "memory"), BootID: boot, Log: log.With("component", "secretdirs"),
	})
}

// removeOldSecrets removes the secrets folders of ended allocations that an earlier agent left in memory.
func removeOldSecrets(secrets *secretdirs.Hook, hasEnded func(fleet.AllocID) bool, log *slog.Logger) {
	if err := secrets.RemoveOrphans(hasEnded); err != nil {
		log.Warn("secrets folders of ended allocations not removed: trying again", "error", err)
	}
}
