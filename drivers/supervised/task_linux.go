package supervised

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"skerry/drivers"
	"skerry/drivers/record"
	"skerry/fleet"
)

// task is a started task, identified by its state folder. Its only state in memory is a copy of the exit.
type task struct {
	driver *Driver
	dir    string                     // state folder
	id     string                     // TaskConfig.ID
	exit   atomic.Pointer[exitRecord] // nil: not read yet
}

// Ended reports whether the task's exit is written. It reads the state folder.
func (t *task) Ended() bool {
	if t.exit.Load() != nil {
		return true
	}
	var e exitRecord
	if record.Read(t.dir, exitFile, &e) != nil {
		return false
	}
	t.exit.Store(&e)
	return true
}

// Wait blocks until the task has ended, and returns its exit. If the supervisor is killed meanwhile, it starts
// another one, which adopts the task.
func (t *task) Wait(ctx context.Context) (drivers.Exit, error) {
	for !t.Ended() {
		if err := t.driver.ensureSupervisor(ctx, t.dir); err != nil {
			return drivers.Exit{}, fmt.Errorf("wait for task %s: %w", t.id, err)
		}
		if err := t.waitForSupervisorEnd(ctx); err != nil {
			return drivers.Exit{}, fmt.Errorf("wait for task %s: %w", t.id, err)
		}
	}
	t.driver.reapSupervisor(t.dir)
	return t.exit.Load().toDriverExit(), nil
}

// waitForSupervisorEnd blocks until the supervisor has ended: until the life FIFO has no writer.
func (t *task) waitForSupervisorEnd(ctx context.Context) error {
	life, err := os.OpenFile(filepath.Join(t.dir, lifeFIFO), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open FIFO life: %w", err)
	}
	defer life.Close()
	stop := context.AfterFunc(ctx, func() { _ = life.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	_, err = life.Read(make([]byte, 1)) // nothing is ever written
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return nil
}

// stopGrace is the time after a stop's timeout in which the supervisor must kill the rest of the task and write the
// exit.
const stopGrace = reapTimeout + 5*time.Second

// Stop tells the supervisor to send signal to the task's process group and to kill it after timeout (at most a day),
// and waits for the end. If SIGSTOP holds the supervisor, the agent kills all processes of the task.
func (t *task) Stop(ctx context.Context, signal string, timeout time.Duration) error {
	number, err := drivers.ParseSignal(signal)
	if err != nil {
		return fmt.Errorf("stop task %s: %w", t.id, err)
	}
	o := controlCommand{stop: true, signal: number, timeout: min(max(timeout, 0), maxKillTimeout)}
	for !t.Ended() { // again if the supervisor was killed meanwhile
		receiver, _, _ := supervisorOf(t.dir)
		err := t.sendToSupervisor(ctx, o)
		if err == nil {
			err = t.waitStopped(ctx, o, receiver)
		}
		if err != nil {
			return fmt.Errorf("stop task %s: %w", t.id, err)
		}
	}
	t.driver.reapSupervisor(t.dir)
	return nil
}

// supervisorCheck is how often a stop checks whether another supervisor has the task.
const supervisorCheck = time.Second

// waitStopped waits until the supervisor has ended after the stop o, or another one than receiver has the task, which
// may not have the command. If SIGSTOP holds the supervisor, the agent sends the signal itself. If the stop takes too
// long, it kills the task and the supervisor.
func (t *task) waitStopped(ctx context.Context, o controlCommand, receiver member) error {
	patience := o.timeout + stopGrace
	if _, s, ok := supervisorOf(t.dir); ok && s.isStopped() {
		// A supervisor that SIGSTOP holds executes no commands, so the agent signals the task, with the same timeout.
		var rec taskRecord
		if err := record.Read(t.dir, taskFile, &rec); err == nil && rec.isInFolder(t.dir) && rec.BootID == t.driver.bootID && rec.isAlive() {
			_ = unix.Kill(-rec.PID, unix.Signal(o.signal))
		}
		patience = o.timeout
	}
	for deadline := time.Now().Add(patience); ; {
		waiting, cancel := context.WithTimeout(ctx, min(supervisorCheck, max(time.Until(deadline), 0)))
		err := t.waitForSupervisorEnd(waiting)
		late := waiting.Err() != nil
		cancel()
		if err == nil || ctx.Err() != nil || !late {
			return err
		}
		if now, _, ok := supervisorOf(t.dir); ok && now != receiver {
			return nil
		}
		if !time.Now().Before(deadline) {
			break
		}
	}
	t.driver.log.Warn("a task's supervisor is stopped: killing the task and the supervisor", "task_id", t.id)
	return t.killTree()
}

// killTree kills the task's processes and then its supervisor. The next supervisor writes the exit.
func (t *task) killTree() error {
	var rec taskRecord
	if err := record.Read(t.dir, taskFile, &rec); err != nil && !errors.Is(err, record.ErrNone) {
		return err
	}
	var group *Cgroup
	if rec.BootID != t.driver.bootID || !rec.isInFolder(t.dir) {
		rec = taskRecord{} // it belongs to another boot, or to the original of a copied folder
	} else if sp := new(spec); record.Read(t.dir, specFile, sp) == nil {
		group = sp.Cgroup
	}
	super, _, found := supervisorOf(t.dir)
	roots := []int{}
	if found {
		roots = append(roots, super.pid)
	}
	for deadline := time.Now().Add(reapTimeout); time.Now().Before(deadline); <-time.After(time.Millisecond) {
		left := append(membersOf(t.dir, rec.identity, roots...), group.listMembers(super.pid)...)
		if len(left) == 0 {
			break
		}
		for _, m := range left {
			_ = signalProcess(m.pid, m.start, unix.SIGKILL)
		}
	}
	if !found {
		return nil
	}
	if err := signalProcess(super.pid, super.start, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill supervisor %d: %w", super.pid, err)
	}
	return nil
}

// Signal tells the supervisor to send a signal to the task's main process. It does not wait until that is done.
func (t *task) Signal(ctx context.Context, signal string) error {
	number, err := drivers.ParseSignal(signal)
	if err == nil && t.Ended() {
		err = fleet.Errorf(fleet.CodeConflict, "the task has ended")
	}
	if err == nil {
		err = t.sendToSupervisor(ctx, controlCommand{signal: number})
	}
	if err != nil {
		return fmt.Errorf("signal task %s: %w", t.id, err)
	}
	return nil
}

// sendToSupervisor sends a command to the task's supervisor, and starts one if there is none. It does nothing
// if the task has ended.
func (t *task) sendToSupervisor(ctx context.Context, o controlCommand) error {
	for !t.Ended() {
		err := sendControlCommand(t.dir, o)
		if !errors.Is(err, errUnsupervised) {
			return err
		}
		if err := t.driver.ensureSupervisor(ctx, t.dir); err != nil {
			return err
		}
	}
	return nil
}

// Forget removes the state folder of an ended task. A running task is a fleet.CodeConflict.
func (t *task) Forget(context.Context) error {
	if !t.Ended() {
		return fmt.Errorf("forget task %s: %w", t.id, fleet.Errorf(fleet.CodeConflict, "the task runs"))
	}
	t.driver.reapSupervisor(t.dir)
	if err := os.RemoveAll(t.dir); err != nil {
		return fmt.Errorf("forget task %s: %w", t.id, err)
	}
	return nil
}
