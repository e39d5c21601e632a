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
	"sync"
	"time"

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
		if err := d.removeInspected(ctx, found); err != nil {
			return drivers.Handle{}, err
		}
		_ = os.Remove(filepath.Join(cfg.StateDir, exitFile)) // the exit of an earlier container
		found = nil
	}
	if found != nil && !isUnstarted(found.State.Status) {
		return d.handleOf(cfg, found.ID)
	}
	if err := d.removeEarlierAttempts(ctx, cfg); err != nil {
		return drivers.Handle{}, err
	}
	id, err := d.startWithImage(ctx, &o, cfg, found)
	if err != nil {
		return drivers.Handle{}, err
	}
	return d.handleOf(cfg, id)
}

// startWithImage fetches a task's image if it is absent, and starts the container. The image is not removed meanwhile. created is the
// task's container that an earlier agent has created; nil: none.
func (d *Driver) startWithImage(ctx context.Context, o *options, cfg drivers.TaskConfig, created *container.InspectResponse) (string, error) {
	release, err := d.holdImage(ctx, trimTransport(o.image))
	if err != nil {
		return "", err
	}
	defer release()
	image, err := d.ensureImage(ctx, o, cfg)
	if err != nil {
		return "", err
	}
	low := d.needsLowLimits()
	id, err := d.runContainer(ctx, o, cfg, image, created)
	if d.quirks.podman && isLimitRefused(err) && !low {
		d.noteLowLimits()
		id, err = d.runContainer(ctx, o, cfg, image, nil)
		for try := 0; try < portTries && isPortHeld(err) && pace.Rest(ctx, portPause); try++ {
			id, err = d.runContainer(ctx, o, cfg, image, nil)
		}
	}
	return id, err
}

// runContainer creates and starts a task's container and returns its id. If the start fails, it removes the container. If the agent
// stops meanwhile, it leaves it to the next agent: the task may run by then.
func (d *Driver) runContainer(agent context.Context, o *options, cfg drivers.TaskConfig, image string, created *container.InspectResponse) (string, error) {
	release, err := d.takeTurn(agent)
	if err != nil {
		return "", err
	}
	defer release()
	ctx, cancel := context.WithTimeout(agent, startTimeout)
	defer cancel()
	create, err := d.describeContainer(ctx, o, cfg, image)
	if err != nil {
		return "", err
	}
	if created != nil {
		if started, err := d.startCreated(ctx, created, create); started || err != nil {
			return created.ID, err
		}
	}
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
		if agent.Err() != nil {
			return "", d.startError(err)
		}
		return "", errors.Join(d.startError(err), d.removeFailedContainer(ctx, made.ID))
	}
	return made.ID, nil
}

// takeTurn waits until the daemon may start another container. Docker computes while it starts one: of ten at once on two
// processors none runs until almost all do. Podman waits most of the time. A start that hangs lets others pass.
func (d *Driver) takeTurn(ctx context.Context) (release func(), err error) {
	if d.quirks.podman {
		return func() {}, nil
	}
	select {
	case d.starting <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	end := sync.OnceFunc(func() { <-d.starting })
	late := time.AfterFunc(turnTimeout, end)
	return func() {
		late.Stop()
		end()
	}, nil
}

// describeContainer returns the options of a task's container, with their hash as a label.
func (d *Driver) describeContainer(ctx context.Context, o *options, cfg drivers.TaskConfig, image string) (client.ContainerCreateOptions, error) {
	folder, err := folderID(cfg.StateDir)
	if err != nil {
		return client.ContainerCreateOptions{}, drivers.Recoverable(err)
	}
	create, err := d.createOptions(ctx, o, cfg, containerName(cfg, folder), folder)
	if err != nil {
		return client.ContainerCreateOptions{}, err
	}
	create.Config.Image = image
	text, err := json.Marshal([]any{create.Config, create.HostConfig, create.NetworkingConfig})
	if err != nil {
		return client.ContainerCreateOptions{}, fmt.Errorf("encode the configuration of a container: %w", err)
	}
	create.Config.Labels[labelConfig] = shortHash(string(text))
	return create, nil
}

// startCreated starts a container that was created but not started: the agent ended meanwhile, or the start failed. The daemon may be
// starting it at this moment, and starts it once. It removes a container that has another configuration, or does not start.
func (d *Driver) startCreated(ctx context.Context, created *container.InspectResponse, wanted client.ContainerCreateOptions) (bool, error) {
	if created.Config.Labels[labelConfig] == wanted.Config.Labels[labelConfig] {
		_, err := d.client.ContainerStart(ctx, created.ID, client.ContainerStartOptions{})
		if err == nil {
			return true, nil
		}
		if ctx.Err() != nil {
			return false, d.startError(err)
		}
	}
	return false, d.removeInspected(ctx, created)
}

// startError explains why a container did not start. A command that the image does not have is a permanent error.
func (d *Driver) startError(err error) error {
	if isMissingCommand(err) {
		return fleet.Errorf(fleet.CodeInvalid, "start container: %s", daemonMessage(err)).WithHint("check command, args and entrypoint: the image has no such program")
	}
	return d.daemonError("start container", err)
}

// Recover finds a task's container. If the machine rebooted since the container was started, it copies the rest of
// its output and returns drivers.ErrTaskGone.
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
	if found == nil || was.ContainerID != "" && was.ContainerID != found.ID {
		return nil, t.endUnknown(ctx, was)
	}
	t.container, t.logPath, t.tty = found.ID, found.LogPath, found.Config.Tty
	t.stopSignal = found.Config.StopSignal
	switch {
	case isUnstarted(found.State.Status) && was.ContainerID == "":
		return nil, drivers.ErrTaskGone // Start goes on with it
	case isUnstarted(found.State.Status), !d.isOfThisBoot(found):
		t.copyRest(ctx)
		if d.isOfThisBoot(found) || mayRun(found) {
			if err := d.removeInspected(ctx, found); err != nil {
				return nil, err
			}
		} // else RemoveOrphans removes it: after a boot the daemon first starts containers
		return nil, drivers.ErrTaskGone
	}
	return t, nil
}

// endUnknown ends the processes of a handle's container if the daemon does not know it, and returns drivers.ErrTaskGone. In a copy of the
// state folder the container is that of the original.
func (t *task) endUnknown(ctx context.Context, was handleState) error {
	folder, err := folderID(t.cfg.StateDir)
	if err != nil {
		return drivers.Recoverable(err)
	}
	if was.ContainerID == "" || was.Folder != folder {
		return drivers.ErrTaskGone
	}
	known, err := t.driver.inspectContainer(ctx, was.ContainerID, requestTimeout)
	if err == nil && known == nil {
		err = t.driver.endProcesses(ctx, was.ContainerID)
	}
	if err != nil {
		return err
	}
	return drivers.ErrTaskGone
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
func (d *Driver) handleOf(cfg drivers.TaskConfig, containerID string) (drivers.Handle, error) {
	folder, err := folderID(cfg.StateDir)
	if err != nil {
		return drivers.Handle{}, drivers.Recoverable(err)
	}
	state, err := json.Marshal(handleState{ContainerID: containerID, BootID: d.bootID, Folder: folder})
	if err != nil {
		return drivers.Handle{}, fmt.Errorf("encode handle: %w", err)
	}
	return drivers.Handle{Driver: d.cfg.Name, Version: recordVersion, TaskID: cfg.ID, State: state}, nil
}

// removeContainer kills and removes a container, by its id or its name. A missing one is no error.
func (d *Driver) removeContainer(ctx context.Context, id string) error {
	found, err := d.inspectContainer(ctx, id, requestTimeout)
	if err != nil {
		return err
	}
	if found == nil {
		return d.endProcesses(ctx, id)
	}
	return d.removeInspected(ctx, found)
}

// removeInspected kills and removes a container with its anonymous volumes. None of its processes runs afterwards: those that the daemon
// does not know end first, as nothing leads to them once the container is removed.
func (d *Driver) removeInspected(ctx context.Context, found *container.InspectResponse) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	ofThisBoot := d.isOfThisBoot(found) // of another one no process is left
	if ofThisBoot && !mayRun(found) {
		if err := d.endProcesses(ctx, found.ID); err != nil {
			return err
		}
	}
	_, err := d.client.ContainerRemove(ctx, found.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if errdefs.IsNotFound(err) || errdefs.IsConflict(err) && strings.Contains(err.Error(), "already in progress") {
		err = nil // another request has removed it or is removing it
	}
	if err != nil {
		return d.daemonError("remove container "+fleet.Short(found.ID), err)
	}
	if !ofThisBoot {
		return nil
	}
	return d.endProcesses(ctx, found.ID)
}

// removeFailedContainer removes a container whose start failed, or at least ends its processes. A caller that has given up does not wait
// for a daemon that hangs: what is left there, the next start removes.
func (d *Driver) removeFailedContainer(ctx context.Context, id string) error {
	removed := make(chan error, 1)
	go func() {
		err := d.removeContainer(context.WithoutCancel(ctx), id)
		if err != nil {
			err = errors.Join(err, d.endProcesses(context.WithoutCancel(ctx), id))
		}
		removed <- err
	}()
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
