package docker

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"skerry/drivers"
	"skerry/fleet"
)

var _ drivers.OrphanRemover = (*Driver)(nil)

// RemoveOrphans removes this edge's containers whose allocation the edge does not know, and returns their names. It
// also removes those that a reboot ended, once the task has another one. It never touches containers of another data
// directory or of other users of the daemon.
func (d *Driver) RemoveOrphans(ctx context.Context, known func(fleet.AllocID) bool) ([]string, error) {
	if _, err := os.Stat(d.cfg.Socket); err != nil || d.cfg.DataDir == "" {
		return nil, nil
	}
	dir, err := identity(d.cfg.DataDir)
	if err != nil {
		return nil, err
	}
	if err := d.ensureConnected(ctx); err != nil {
		return nil, err
	}
	ours, err := d.listContainers(ctx, labelDataDir+"="+dir)
	if err != nil {
		return nil, err
	}
	taskOf := func(c container.Summary) [2]string { return [2]string{c.Labels[labelAlloc], c.Labels[labelTask]} }
	startedAgain := map[[2]string]bool{}
	for _, c := range ours {
		if !d.endedAtReboot(c) {
			startedAgain[taskOf(c)] = true
		}
	}
	var removed []string
	var failed []error
	for _, c := range ours {
		alloc := fleet.AllocID(c.Labels[labelAlloc])
		if c.Labels[labelDataDir] != dir || alloc == "" {
			continue
		}
		replaced := d.endedAtReboot(c) && startedAgain[taskOf(c)]
		if known(alloc) && !replaced {
			continue
		}
		switch err := d.removeContainer(ctx, c.ID); {
		case err != nil: // others may depend on it
			failed = append(failed, err)
		case !replaced:
			removed = append(removed, nameOf(c))
		}
	}
	return removed, errors.Join(failed...)
}

// endedAtReboot reports whether a container was started before the machine booted, and does not run.
func (d *Driver) endedAtReboot(c container.Summary) bool {
	return c.Labels[labelBoot] != d.bootID && (isEnded(c.State) || isUnstarted(c.State))
}

// removeEarlierAttempts removes the containers of other attempts of a task. One may run although its start has failed: the
// daemon died between the start and its answer. RemoveOrphans removes those that a reboot ended.
func (d *Driver) removeEarlierAttempts(ctx context.Context, cfg drivers.TaskConfig) error {
	if d.cfg.DataDir == "" {
		return nil
	}
	dir, err := identity(d.cfg.DataDir)
	if err != nil {
		return err
	}
	found, err := d.listContainers(ctx, labelDataDir+"="+dir, labelAlloc+"="+string(cfg.AllocID), labelTask+"="+cfg.Task)
	if err != nil {
		return err
	}
	for _, c := range found {
		if c.Labels[labelTaskID] == cfg.ID || d.endedAtReboot(c) {
			continue
		}
		d.log.Warn("the container of an earlier attempt is removed", "task_id", cfg.ID, "container", nameOf(c))
		if err := d.removeContainer(ctx, c.ID); err != nil {
			return err
		}
	}
	return nil
}

// containerOfTask returns the id of the running container of another task of an allocation.
func (d *Driver) containerOfTask(ctx context.Context, alloc fleet.AllocID, task string) (string, error) {
	found, err := d.listContainers(ctx, labelAlloc+"="+string(alloc), labelTask+"="+task)
	if err != nil {
		return "", err
	}
	for _, c := range found {
		if c.State == container.StateRunning {
			return c.ID, nil
		}
	}
	return "", drivers.Recoverable(fleet.Errorf(fleet.CodeConflict, "network_mode task:%s: that task's container does not run", task).
		WithHint("start it before: lifecycle { hook = \"prestart\", sidecar = true }"))
}

// listContainers returns the containers, ended ones included, that have all of these labels.
func (d *Driver) listContainers(ctx context.Context, labels ...string) ([]container.Summary, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := d.client.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", labels...)})
	if err != nil {
		return nil, d.daemonError("list containers", err)
	}
	return list.Items, nil
}

// nameOf returns a container's name, or else its id.
func nameOf(c container.Summary) string {
	if len(c.Names) > 0 {
		return fmt.Sprintf("%.255s", c.Names[0])
	}
	return c.ID
}
