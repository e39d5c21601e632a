package supervised

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"skerry/drivers"
	"skerry/drivers/cgroup"
)

var _ drivers.CoreSharer = (*Driver)(nil)

// KeepOffCores implements drivers.CoreSharer, by the task's cgroup.
func (d *Driver) KeepOffCores(_ context.Context, cfg drivers.TaskConfig, reserved []int) error {
	mounts, err := cgroup.Find()
	if err != nil {
		return fmt.Errorf("keep task %s off cores: %w", cfg.ID, err)
	}
	marker, err := markerOf(cfg.StateDir)
	if err != nil {
		return fmt.Errorf("keep task %s off cores: %w", cfg.ID, err)
	}
	_, instance, _ := strings.Cut(marker, "=")
	if err := mounts.Group(cfg.ID + "." + instance).KeepOffCores(reserved); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("keep task %s off cores: %w", cfg.ID, err)
	}
	return nil
}
