package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"skerry/drivers"
	"skerry/drivers/record"
	"skerry/fleet"
)

const (
	// firstRetry and lastRetry bound the pause before a daemon that does not answer is asked again.
	firstRetry = 50 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// task is a container that was started or found.
type task struct {
	driver     *Driver
	cfg        drivers.TaskConfig
	container  string // id
	logPath    string // the daemon's log of it; "": none
	tty        bool
	stopSignal string // that the daemon sends for a stop; "": SIGTERM

	stopping  atomic.Bool                // this agent ends it
	seenEnded atomic.Bool                // the daemon said that it has ended
	exit      atomic.Pointer[exitRecord] // nil: not recorded yet
}

func (d *Driver) newTask(cfg drivers.TaskConfig, containerID string) *task {
	return &task{driver: d, cfg: cfg, container: containerID}
}

// readExit reads the exit record and reports whether there is one.
func (t *task) readExit() bool {
	if t.exit.Load() != nil {
		return true
	}
	var e exitRecord
	if record.Read(t.cfg.StateDir, exitFile, &e) != nil {
		return false
	}
	t.exit.Store(&e)
	return true
}

// Ended reports whether the container has ended, and none of its processes runs. It asks the daemon, for a short time.
func (t *task) Ended() bool {
	if t.seenEnded.Load() || t.readExit() {
		return true
	}
	c, err := t.driver.inspectContainer(context.Background(), t.container, endedTimeout)
	if err != nil || mayRun(c) {
		return false
	}
	if left, err := processesOf(t.container); err != nil || len(left) > 0 {
		return false
	}
	t.seenEnded.Store(true)
	return true
}

// Wait blocks until the container has ended and its output is in the allocation's log files, to which it copies
// meanwhile. It keeps asking a daemon that does not answer.
func (t *task) Wait(ctx context.Context) (drivers.Exit, error) {
	if t.readExit() {
		return t.exit.Load().toDriverExit(), nil
	}
	ended := make(chan struct{})
	var copying sync.WaitGroup
	copying.Go(func() { t.copyLogs(ctx, ended) })
	state, err := t.waitEnded(ctx)
	close(ended)
	copying.Wait()
	if err != nil {
		return drivers.Exit{}, fmt.Errorf("wait for task %s: %w", t.cfg.ID, err)
	}
	return t.finishWith(state)
}

// finishWith records the exit of an ended container, once.
func (t *task) finishWith(state *container.State) (drivers.Exit, error) {
	t.seenEnded.Store(true)
	if t.readExit() {
		return t.exit.Load().toDriverExit(), nil
	}
	e := exitOf(state)
	// The daemon and the kernel also blame memory if it has ended another process of the container, earlier.
	e.OOM = e.Signal == int(syscall.SIGKILL) && !t.stopping.Load() && (e.OOM || wasOutOfMemory(t.container))
	if err := recordExit(t.cfg.StateDir, e); err != nil {
		return drivers.Exit{}, fmt.Errorf("record exit of task %s: %w", t.cfg.ID, err)
	}
	t.exit.Store(&e)
	return e.toDriverExit(), nil
}

// waitEnded blocks until the daemon says that the container has ended, kills the processes that the daemon has lost, and
// returns the container's state. It returns nil if the daemon does not know that it ran. The only error is that of ctx.
func (t *task) waitEnded(ctx context.Context) (*container.State, error) {
	pause, warned := firstRetry, false
	for {
		c, err := t.driver.inspectContainer(ctx, t.container, requestTimeout)
		ended := err == nil && !mayRun(c)
		if ended {
			err = t.driver.endProcesses(ctx, t.container)
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case ended && err == nil && (c == nil || isUnstarted(c.State.Status)):
			return nil, nil
		case ended && err == nil:
			return c.State, nil
		case err == nil:
			if warned {
				t.driver.log.Info("the daemon answers again", "task_id", t.cfg.ID)
				warned, pause = false, firstRetry
			}
			t.awaitDaemon(ctx)
		case !warned:
			t.driver.log.Warn("the end of a container cannot be awaited: trying again", "task_id", t.cfg.ID, "error", err)
			warned = true
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
		if err != nil {
			pause = min(2*pause, lastRetry)
		}
	}
}

// awaitDaemon blocks until the daemon says that the container has stopped, or the connection ends.
func (t *task) awaitDaemon(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := t.driver.client.ContainerWait(ctx, t.container, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select { // one of the channels always delivers, because the request ends with ctx
	case <-w.Result:
	case <-w.Error:
	}
}

// Stop tells the daemon to send signal, to wait for timeout, and to kill the container. The daemon does that even if
// the agent dies.
func (t *task) Stop(ctx context.Context, signal string, timeout time.Duration) error {
	if _, err := drivers.ParseSignal(signal); err != nil {
		return fmt.Errorf("stop task %s: %w", t.cfg.ID, err)
	}
	if t.Ended() {
		return nil
	}
	if signal == "" {
		signal = fleet.DefaultKillSignal
	}
	t.stopping.Store(true)
	// The goroutine makes the request even if the caller gives up before it reaches a slow daemon.
	asked := make(chan error, 1)
	go func() {
		detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout+startTimeout)
		defer cancel()
		asked <- t.stopContainer(detached, signalName(signal), timeout)
	}()
	select {
	case err := <-asked:
		if err != nil {
			return fmt.Errorf("stop task %s: %w", t.cfg.ID, err)
		}
	case <-ctx.Done():
		return fmt.Errorf("stop task %s: %w", t.cfg.ID, ctx.Err())
	}
	state, err := t.waitEnded(ctx)
	if err != nil {
		return fmt.Errorf("stop task %s: %w", t.cfg.ID, err)
	}
	_, err = t.finishWith(state)
	return err
}

// stopContainer asks the daemon for a stop. Older daemons send only the signal that the container was created with, so
// stopContainer sends any other signal itself before the stop.
func (t *task) stopContainer(ctx context.Context, signal string, timeout time.Duration) error {
	seconds := wholeSeconds(timeout)
	if signal != signalName(orDefault(t.stopSignal, fleet.DefaultKillSignal)) && seconds > 0 {
		_, err := t.driver.client.ContainerKill(ctx, t.container, client.ContainerKillOptions{Signal: signal})
		if errdefs.IsNotFound(err) || errdefs.IsConflict(err) {
			return nil
		}
		if err != nil {
			return t.driver.daemonError("signal container", err)
		}
	}
	_, err := t.driver.client.ContainerStop(ctx, t.container, client.ContainerStopOptions{Timeout: &seconds})
	if errdefs.IsNotFound(err) || errdefs.IsConflict(err) || errdefs.IsNotModified(err) {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return t.driver.daemonError("stop container", err)
}

// Signal sends a signal to the container's main process.
func (t *task) Signal(ctx context.Context, signal string) error {
	number, err := drivers.ParseSignal(signal)
	if err == nil && t.Ended() {
		err = fleet.Errorf(fleet.CodeConflict, "the task has ended")
	}
	if err == nil {
		if number == int(syscall.SIGKILL) {
			t.stopping.Store(true)
		}
		limited, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		_, err = t.driver.client.ContainerKill(limited, t.container, client.ContainerKillOptions{Signal: signalName(orDefault(signal, fleet.DefaultKillSignal))})
		switch {
		case errdefs.IsNotFound(err), errdefs.IsConflict(err):
			err = fleet.Errorf(fleet.CodeConflict, "the task has ended")
		default:
			err = t.driver.daemonError("signal container", err)
		}
	}
	if err != nil {
		return fmt.Errorf("signal task %s: %w", t.cfg.ID, err)
	}
	return nil
}

// Forget copies the rest of the output, removes the ended container and its state folder. A running container is a
// fleet.CodeConflict.
func (t *task) Forget(ctx context.Context) error {
	if !t.Ended() {
		return fmt.Errorf("forget task %s: %w", t.cfg.ID, fleet.Errorf(fleet.CodeConflict, "the task runs"))
	}
	if t.container == "" { // only the exit record was found
		c, err := t.driver.findContainer(ctx, t.cfg)
		if err != nil {
			return fmt.Errorf("forget task %s: %w", t.cfg.ID, err)
		}
		if c != nil {
			t.container = c.ID
		}
	}
	if t.container != "" {
		t.copyRest(ctx)
		if err := t.driver.removeContainer(ctx, t.container); err != nil {
			return fmt.Errorf("forget task %s: %w", t.cfg.ID, err)
		}
	}
	if err := os.RemoveAll(t.cfg.StateDir); err != nil {
		return fmt.Errorf("forget task %s: %w", t.cfg.ID, err)
	}
	return nil
}

// inspectContainer returns the daemon's view of a container; nil if it does not know it.
func (d *Driver) inspectContainer(ctx context.Context, id string, timeout time.Duration) (*container.InspectResponse, error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	found, err := d.client.ContainerInspect(limited, id, client.ContainerInspectOptions{})
	if isEndingUnderInspect(err) { // now that its process is gone, Podman answers
		found, err = d.client.ContainerInspect(limited, id, client.ContainerInspectOptions{})
	}
	switch {
	case errdefs.IsNotFound(err):
		return nil, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, d.daemonError("look for container "+fleet.Short(id), err)
	case found.Container.State == nil || found.Container.Config == nil:
		return nil, drivers.Recoverable(errors.New("the daemon's answer has no state of the container"))
	}
	return &found.Container, nil
}

// mayRun reports whether a container that was started runs, by the daemon's view of it. A daemon that has lost its record of
// the start does not run it.
func mayRun(c *container.InspectResponse) bool {
	return c != nil && !isEnded(c.State.Status) && !isUnstarted(c.State.Status)
}

// isEnded reports whether a container has run and no longer runs.
func isEnded(s container.ContainerState) bool {
	switch s {
	case container.StateExited, container.StateDead, container.StateRemoving, "stopped":
		return true
	}
	return false
}

// isUnstarted reports whether a container was never started.
func isUnstarted(s container.ContainerState) bool {
	return s == container.StateCreated || s == "configured" || s == "initialized"
}

// exitOf returns the exit of a container from its last state, or a lost exit for nil. Daemons report a container that
// signal N ended with the exit code 128+N.
func exitOf(s *container.State) exitRecord {
	if s == nil {
		return exitRecord{Code: -1, Err: "lost: the daemon no longer knows the container", FinishedAt: time.Now().UnixNano()}
	}
	e := exitRecord{Code: s.ExitCode, OOM: s.OOMKilled, FinishedAt: time.Now().UnixNano()}
	if at, err := time.Parse(time.RFC3339Nano, s.FinishedAt); err == nil && at.Year() > 1 {
		e.FinishedAt = at.UnixNano()
	}
	if signal := s.ExitCode - 128; signal > 0 && signal < 32 {
		e.Signal = signal
	}
	if s.Error != "" && s.ExitCode != 0 {
		e.Err = s.Error
	}
	return e
}

// isMissingCommand reports whether a container did not start because its image has no such program.
func isMissingCommand(err error) bool {
	said := strings.ToLower(err.Error())
	for _, part := range []string{"executable file not found", "no such file or directory: unknown", "exec: no command", "no command specified", "permission denied: unknown", "invoke a command that was not found"} {
		if strings.Contains(said, part) {
			return true
		}
	}
	return false
}

func orDefault(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
