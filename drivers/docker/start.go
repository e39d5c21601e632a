package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"skerry/drivers"
	"skerry/fleet"
	"skerry/internal/pace"
)

// Start starts a container, or finds the one that was started before for the same task id. It fetches the image if the
// daemon lacks it.
func (d *Driver) Start(ctx context.Context, cfg drivers.TaskConfig) (drivers.Handle, error) {
	h, err := d.startTask(ctx, cfg)
	if err != nil {
		return drivers.Handle{}, fmt.Errorf("start task %s: %w", cfg.ID, err)
	}
	return h, nil
}

func (d *Driver) startTask(ctx context.Context, cfg drivers.TaskConfig) (drivers.Handle, error) {
	for _, dir := range []string{cfg.StateDir, cfg.Dir, cfg.LogDir} {
		if !filepath.IsAbs(dir) {
			return drivers.Handle{}, fleet.Errorf(fleet.CodeInvalid, "folder %q is not an absolute path", dir)
		}
	}
	o, err := parseOptions(d.cfg.Name, cfg.Config, false)
	if err == nil {
		err = d.checkPermitted(&o)
	}
	if err == nil {
		_, err = drivers.ParseSignal(cfg.KillSignal)
	}
	if err != nil {
		return drivers.Handle{}, err
	}
	if err := d.ensureConnected(ctx); err != nil {
		return drivers.Handle{}, err
	}
	// The folder's identity is the container's name, so it is made before the container.
	if _, err := makeFolderID(cfg.StateDir); err != nil {
		return drivers.Handle{}, drivers.Recoverable(err)
	}
	found, err := d.findContainer(ctx, cfg)
	if err != nil {
		return drivers.Handle{}, err
	}
	if found != nil && !d.isOfThisBoot(found) {
		if err := d.removeContainer(ctx, found.ID); err != nil {
			return drivers.Handle{}, err
		}
		_ = os.Remove(filepath.Join(cfg.StateDir, exitFile)) // the exit of an earlier container
		found = nil
	}
	if found != nil && found.State.Status != container.StateCreated {
		return d.handleOf(cfg.ID, found.ID)
	}
	if found != nil { // it was created but not started: the agent died or the start failed
		if err := d.removeContainer(ctx, found.ID); err != nil {
			return drivers.Handle{}, err
		}
	}
	if err := d.removeEarlierAttempts(ctx, cfg); err != nil {
		return drivers.Handle{}, err
	}
	id, err := d.startWithImage(ctx, &o, cfg)
	if err != nil {
		return drivers.Handle{}, err
	}
	return d.handleOf(cfg.ID, id)
}

// startWithImage fetches a task's image if it is absent, and starts the container. The image is not removed meanwhile.
func (d *Driver) startWithImage(ctx context.Context, o *options, cfg drivers.TaskConfig) (string, error) {
	release, err := d.holdImage(ctx, trimTransport(o.image))
	if err != nil {
		return "", err
	}
	defer release()
	image, err := d.ensureImage(ctx, o, cfg)
	if err != nil {
		return "", err
	}
	low := d.lowLimits.Load()
	id, err := d.runContainer(ctx, o, cfg, image)
	if d.quirks.podman && isLimitRefused(err) && !low {
		if !d.lowLimits.Swap(true) {
			d.log.Warn("this machine does not permit podman's limits of open files and processes: containers get lower ones")
		}
		id, err = d.runContainer(ctx, o, cfg, image)
		for try := 0; try < portTries && isPortHeld(err) && pace.Rest(ctx, portPause); try++ {
			id, err = d.runContainer(ctx, o, cfg, image)
		}
	}
	return id, err
}

// runContainer creates and starts a task's container and returns its id. If the start fails, it removes the container.
func (d *Driver) runContainer(ctx context.Context, o *options, cfg drivers.TaskConfig, image string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	folder, err := folderID(cfg.StateDir)
	if err != nil {
		return "", drivers.Recoverable(err)
	}
	create, err := d.createOptions(ctx, o, cfg, containerName(cfg, folder), folder)
	if err != nil {
		return "", err
	}
	create.Config.Image = image
	if err := recordLogStart(cfg); err != nil {
		return "", drivers.Recoverable(err)
	}
	made, err := d.client.ContainerCreate(ctx, create)
	if err != nil {
		return "", d.daemonError("create container", err)
	}
	for _, w := range made.Warnings {
		d.log.Warn("the daemon warned about a container", "task_id", cfg.ID, "warning", w)
	}
	if _, err := d.client.ContainerStart(ctx, made.ID, client.ContainerStartOptions{}); err != nil {
		return "", errors.Join(d.startError(err), d.removeFailedContainer(ctx, made.ID))
	}
	return made.ID, nil
}

// startError explains why a container did not start. A command that the image does not have is a permanent error.
func (d *Driver) startError(err error) error {
	if isMissingCommand(err) {
		return fleet.Errorf(fleet.CodeInvalid, "start container: %s", daemonMessage(err)).WithHint("check command, args and entrypoint: the image has no such program")
	}
	return d.daemonError("start container", err)
}

// Recover finds a task's container. If the machine rebooted since the container was started, it copies the rest of
// its output and removes it.
func (d *Driver) Recover(ctx context.Context, cfg drivers.TaskConfig, h drivers.Handle) (drivers.Task, error) {
	t, err := d.recoverTask(ctx, cfg, h)
	if err != nil {
		if errors.Is(err, drivers.ErrTaskGone) {
			return nil, err
		}
		return nil, fmt.Errorf("recover task %s: %w", h.TaskID, err)
	}
	return t, nil
}

func (d *Driver) recoverTask(ctx context.Context, cfg drivers.TaskConfig, h drivers.Handle) (*task, error) {
	if err := h.CheckReader(d.cfg.Name, recordVersion); err != nil {
		return nil, err
	}
	var was handleState
	if h.Version > 0 {
		if err := json.Unmarshal(h.State, &was); err != nil {
			return nil, fmt.Errorf("decode handle: %w", err)
		}
	}
	t := d.newTask(cfg, was.ContainerID)
	if t.readExit() {
		return t, nil
	}
	if id, err := folderID(cfg.StateDir); err == nil && id == "" {
		return nil, drivers.ErrTaskGone // it was never started, or forgotten
	}
	if err := d.ensureConnected(ctx); err != nil {
		return nil, err
	}
	found, err := d.findContainer(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if found == nil || was.ContainerID != "" && was.ContainerID != found.ID || isUnstarted(found.State) {
		if err := d.endForgotten(ctx, found, was.ContainerID); err != nil {
			return nil, err
		}
		return nil, drivers.ErrTaskGone
	}
	t.container, t.logPath, t.tty = found.ID, found.LogPath, found.Config.Tty
	t.stopSignal = found.Config.StopSignal
	if !d.isOfThisBoot(found) {
		t.copyRest(ctx)
		if err := d.removeContainer(ctx, found.ID); err != nil {
			return nil, err
		}
		return nil, drivers.ErrTaskGone
	}
	if isEnded(found.State) {
		t.seenEnded.Store(true)
	}
	return t, nil
}

// endForgotten ends the processes of a container that the daemon has forgotten: found, if it says that it never ran, or the
// one with the id. The daemon knows that id if this task's folder is a copy: the container is that of the original.
func (d *Driver) endForgotten(ctx context.Context, found *container.InspectResponse, id string) error {
	if found != nil && isUnstarted(found.State) {
		return d.endProcesses(ctx, found.ID)
	}
	if id == "" {
		return nil
	}
	if known, err := d.inspectContainer(ctx, id, requestTimeout); err != nil || known != nil {
		return err
	}
	return d.endProcesses(ctx, id)
}

// findContainer returns a task's container, or nil. It looks for the name, which contains the identity of the state
// folder.
func (d *Driver) findContainer(ctx context.Context, cfg drivers.TaskConfig) (*container.InspectResponse, error) {
	folder, err := folderID(cfg.StateDir)
	if err != nil {
		return nil, drivers.Recoverable(err)
	}
	if folder == "" { // no container was started with this folder
		return nil, nil
	}
	found, err := d.inspectContainer(ctx, containerName(cfg, folder), requestTimeout)
	if err != nil || found == nil {
		return nil, err
	}
	if found.Config.Labels[labelFolder] != folder || found.Config.Labels[labelTaskID] != cfg.ID {
		return nil, nil
	}
	return found, nil
}

// isOfThisBoot reports whether a container was started since the machine booted.
func (d *Driver) isOfThisBoot(c *container.InspectResponse) bool {
	return c.Config.Labels[labelBoot] == d.bootID
}

// handleOf returns the Handle of a task with that container.
func (d *Driver) handleOf(taskID, containerID string) (drivers.Handle, error) {
	state, err := json.Marshal(handleState{ContainerID: containerID, BootID: d.bootID})
	if err != nil {
		return drivers.Handle{}, fmt.Errorf("encode handle: %w", err)
	}
	return drivers.Handle{Driver: d.cfg.Name, Version: recordVersion, TaskID: taskID, State: state}, nil
}

// removeContainer kills and removes a container with its anonymous volumes. A missing one is no error. None of its
// processes runs afterwards.
func (d *Driver) removeContainer(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	_, err := d.client.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if errdefs.IsNotFound(err) || errdefs.IsConflict(err) && strings.Contains(err.Error(), "already in progress") {
		err = nil // another request has removed it or is removing it
	}
	if err != nil {
		return d.daemonError("remove container "+fleet.Short(id), err)
	}
	return d.endProcesses(ctx, id)
}

// removeFailedContainer removes a container whose start failed. A caller that has given up does not wait for a daemon that
// hangs: what is left there, the next start removes.
func (d *Driver) removeFailedContainer(ctx context.Context, id string) error {
	removed := make(chan error, 1)
	go func() { removed <- d.removeContainer(context.WithoutCancel(ctx), id) }()
	select {
	case err := <-removed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// shortHash returns the first digits of the SHA-256 sum of a text.
func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:6])
}

// processors returns the number of processors of this machine.
func processors() int { return runtime.NumCPU() }
