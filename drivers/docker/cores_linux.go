package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"skerry/drivers"
	"skerry/drivers/cgroup"
)

var _ drivers.CoreSharer = (*Driver)(nil)

// KeepOffCores implements drivers.CoreSharer, by the container's cgroup: Podman's daemon changes no running container.
func (d *Driver) KeepOffCores(ctx context.Context, cfg drivers.TaskConfig, reserved []int) error {
	c, err := d.findContainer(ctx, cfg)
	if err != nil {
		return fmt.Errorf("keep task %s off cores: %w", cfg.ID, err)
	}
	if c == nil || c.State.Pid <= 0 {
		return nil
	}
	mounts, err := cgroup.Find()
	if err != nil {
		return fmt.Errorf("keep task %s off cores: %w", cfg.ID, err)
	}
	group, err := mounts.Group("").Of(c.State.Pid, mounts)
	if err == nil && !strings.Contains(cmp.Or(group.Unified, group.Legacy["cpuset"]), c.ID) {
		return nil // it shares the cgroup of others
	}
	if err == nil {
		err = group.KeepOffCores(reserved)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("keep task %s off cores: %w", cfg.ID, err)
	}
	return nil
}
