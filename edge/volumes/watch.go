package volumes

import (
	"context"
	"errors"
	"os"
	"time"

	"skerry/edge/runner"
	"skerry/fleet"
)

// EventUnusable is the type of the event of a task that lost the folder of a host volume.
const EventUnusable = "Volume Unusable"

// restartReason is the reason of the restart that follows EventUnusable.
const restartReason = "The task lost the folder of a host volume"

// Watch looks at the folders of a running task, and locks them again if its agent was restarted. If a folder is gone,
// replaced or in use by another edge at two looks in a row, Watch journals an event and restarts the task: what the task
// writes would be lost. Prepare fails until the folder can be used.
func (h *Hook) Watch(ctx context.Context, p *runner.Preparation, control runner.TaskControl) {
	if len(p.Task.VolumeMounts) == 0 {
		return
	}
	ticker := time.NewTicker(h.cfg.Interval)
	defer ticker.Stop()
	for seen := ""; ; {
		err := h.awaitLook(ctx, p)
		if ctx.Err() != nil {
			return
		}
		if err != nil && err.Error() == seen {
			if control.Event(ctx, EventUnusable, "The task restarts: "+seen) == nil {
				_ = control.Restart(ctx, restartReason) // an error says that the task has ended
			}
			return
		}
		if seen = ""; err != nil {
			seen = err.Error()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// awaitLook calls lookAtFolders, and returns before it if ctx ends: a network file system without its server
// answers nothing for as long as it has none.
func (h *Hook) awaitLook(ctx context.Context, p *runner.Preparation) error {
	done := make(chan error, 1)
	go func() { done <- h.lookAtFolders(ctx, p) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lookAtFolders returns why a running task must not go on with one of its folders.
func (h *Hook) lookAtFolders(ctx context.Context, p *runner.Preparation) error {
	user := userOf(p)
	for i := range p.Task.VolumeMounts {
		v, err := findVolume(p, &p.Task.VolumeMounts[i])
		if err != nil {
			continue // the agent was started without it: the next start of the task says so
		}
		key := mountKey{user, i}
		before := h.mountedFolder(key)
		now, err := v.lookAtFolder()
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			err = v.compareFolders(before, now)
		}
		if err == nil && !v.readOnly {
			err = h.locks.lockFolder(ctx, user, v.source, v.path, now.info)
		}
		var problem *fleet.Error
		switch {
		case errors.As(err, &problem):
			return problem
		case err != nil:
			h.log.Debug("folder of a host volume cannot be looked at", "alloc_id", string(p.Alloc.ID), "error", err)
		default:
			h.setMountedFolder(key, now)
		}
	}
	return nil
}

// compareFolders returns an error if the folder of a volume is not the one that the task has.
func (v hostVolume) compareFolders(before, now folder) error {
	if before.info == nil || os.SameFile(before.info, now.info) {
		return nil
	}
	if v.propagates && deviceOf(before.info) != deviceOf(now.info) {
		return nil // a disk was mounted or unmounted, in the task too
	}
	if err := v.lostDisk(before, now); err != nil {
		return err
	}
	return fleet.Errorf(fleet.CodeConflict, "the folder %s of the host volume %q was replaced, and the task still writes to the former one", v.path, v.source).
		WithHint("stop a job before you remove or replace the folder of its volume")
}
