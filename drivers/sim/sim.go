// Package sim is the driver "sim": tasks that follow a script, for tests and simulations. It runs and
// writes nothing.
//
// A SimMachine is the machine of the tasks. It outlives drivers, as a machine outlives agents: a test
// that closes an edge and opens another passes the same SimMachine to both, and the second edge finds
// the tasks of the first. All time is from package time, so that a synctest bubble makes it virtual. A
// task costs a timer and no goroutine.
//
// The script is the task's config block:
//
//	run_for                  duration; default: until it is stopped
//	exit_code                exit code of a task that ends by itself, 0…255
//	exit_signal              signal that ends it instead
//	start_delay              duration of Start
//	start_error              message with which Start fails
//	start_error_recoverable  whether that error is recoverable
//	ignore_signals           true, or a list of names: signals that do not end it
//	kill_after               duration from a signal to its end; not for SIGKILL
package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"skerry/drivers"
	"skerry/fleet"
)

// Name is the driver's name in job files.
const Name = "sim"

// handleVersion is drivers.Handle.Version of this driver.
const handleVersion = 1

// SimMachine is the machine on which simulated tasks run. It may be used concurrently.
type SimMachine struct {
	watch func(Event) // nil: no watcher

	mu     sync.Mutex
	tasks  map[string]*task // by TaskConfig.ID
	starts map[string]int   // by TaskConfig.ID
}

// NewSimMachine makes a machine without tasks.
func NewSimMachine() *SimMachine {
	return &SimMachine{tasks: make(map[string]*task), starts: make(map[string]int)}
}

// Kinds of an Event.
const (
	Started  = "started"
	Exited   = "exited"   // ended by itself
	Stopped  = "stopped"  // ended by a signal
	Vanished = "vanished" // lost with its machine
)

// Event is the start or the end of a task.
type Event struct {
	ID   string       // TaskConfig.ID
	What string       // Started, Exited, Stopped or Vanished
	Exit drivers.Exit // not for Started
}

// NewWatchedSimMachine makes a machine without tasks that calls watch for every event. watch must not
// block or call the machine.
func NewWatchedSimMachine(watch func(Event)) *SimMachine {
	w := NewSimMachine()
	w.watch = watch
	return w
}

// emitEvent calls the watcher, if there is one.
func (w *SimMachine) emitEvent(e Event) {
	if w.watch != nil {
		w.watch(e)
	}
}

// Reboot ends all running tasks. Recover then returns ErrTaskGone for them.
func (w *SimMachine) Reboot() {
	for _, t := range w.listTasks() {
		t.endByReboot()
	}
}

// Starts returns how often each task was started, by TaskConfig.ID.
func (w *SimMachine) Starts() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.starts)
}

// Running returns the ids of the tasks that run, sorted.
func (w *SimMachine) Running() []string {
	var ids []string
	for _, t := range w.listTasks() {
		if !t.Ended() {
			ids = append(ids, t.id)
		}
	}
	slices.Sort(ids)
	return ids
}

// End ends a running task with an exit, as if the task ended by itself, and sets the exit's FinishedAt. It
// reports whether the task was running.
func (w *SimMachine) End(id string, exit drivers.Exit) bool {
	w.mu.Lock()
	t := w.tasks[id]
	w.mu.Unlock()
	return t != nil && t.endTask(Exited, exit)
}

// listTasks returns all tasks that are not forgotten, in any order.
func (w *SimMachine) listTasks() []*task {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.tasks))
}

// Driver runs simulated tasks on a SimMachine. It implements drivers.Driver.
type Driver struct {
	machine *SimMachine
}

// New makes a Driver whose tasks run on w.
func New(w *SimMachine) *Driver { return &Driver{machine: w} }

// Capabilities returns that a simulated task takes every mount and every network: it ignores them.
func (d *Driver) Capabilities() drivers.Capabilities {
	return drivers.Capabilities{
		FSIsolation: drivers.FSNone, Mounts: true, Names: true, HidesEnv: true,
		Networks: []string{fleet.NetworkHost, fleet.NetworkBridge, fleet.NetworkNone, drivers.NetworkCNI},
	}
}

// Fingerprint reports that the driver works.
func (d *Driver) Fingerprint(context.Context) fleet.DriverInfo {
	return fleet.DriverInfo{
		Detected: true, Healthy: true, HealthDescription: "Healthy",
		Attributes: map[string]string{"driver." + Name: "1"},
	}
}

// Validate returns an error for a script that cannot be read.
func (d *Driver) Validate(config map[string]any) error {
	_, err := parseScript(config)
	return err
}

// Start starts a task that follows its script, after the script's delay. If the task was started before, it
// returns its Handle.
func (d *Driver) Start(ctx context.Context, cfg drivers.TaskConfig) (drivers.Handle, error) {
	s, err := parseScript(cfg.Config)
	if err != nil {
		return drivers.Handle{}, fmt.Errorf("start task %s: %w", cfg.ID, err)
	}
	h := drivers.Handle{Driver: Name, Version: handleVersion, TaskID: cfg.ID}
	if d.findTask(cfg) != nil {
		return h, nil
	}
	if s.startDelay > 0 {
		delay := time.NewTimer(s.startDelay)
		defer delay.Stop()
		select {
		case <-ctx.Done():
			return drivers.Handle{}, fmt.Errorf("start task %s: %w", cfg.ID, ctx.Err())
		case <-delay.C:
		}
	}
	if s.startError != "" {
		err := fmt.Errorf("start task %s: %s", cfg.ID, s.startError)
		if s.startErrorRecoverable {
			err = drivers.Recoverable(err)
		}
		return drivers.Handle{}, err
	}
	d.machine.startTask(cfg, s)
	return h, nil
}

// Recover finds a task on the driver's machine.
func (d *Driver) Recover(_ context.Context, cfg drivers.TaskConfig, h drivers.Handle) (drivers.Task, error) {
	if err := h.CheckReader(Name, handleVersion); err != nil {
		return nil, fmt.Errorf("recover task %s: %w", h.TaskID, err)
	}
	if t := d.findTask(cfg); t != nil {
		return t, nil
	}
	return nil, drivers.ErrTaskGone
}

// findTask returns the task with the ID and the state folder of cfg; nil if there is none or a reboot ended it.
func (d *Driver) findTask(cfg drivers.TaskConfig) *task {
	d.machine.mu.Lock()
	t := d.machine.tasks[cfg.ID]
	d.machine.mu.Unlock()
	if t == nil || t.stateDir != cfg.StateDir || t.hasVanished() {
		return nil
	}
	return t
}

// startTask adds a running task to the machine, and sets the timer that ends it.
func (w *SimMachine) startTask(cfg drivers.TaskConfig, s script) {
	t := &task{machine: w, id: cfg.ID, stateDir: cfg.StateDir, script: s, done: make(chan struct{})}
	w.mu.Lock()
	w.tasks[cfg.ID] = t
	w.starts[cfg.ID]++
	w.mu.Unlock()
	w.emitEvent(Event{ID: cfg.ID, What: Started})
	if s.forever {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer = time.AfterFunc(s.runFor, func() { t.endTask(Exited, s.scriptedExit()) })
}

// task is a simulated task.
type task struct {
	machine  *SimMachine
	id       string
	stateDir string
	script   script
	done     chan struct{} // closed when it has ended

	mu       sync.Mutex
	timer    *time.Timer // ends the task; nil: it has no end
	exit     drivers.Exit
	ended    bool
	vanished bool
}

// errEnded is the error of a signal to a task that has ended.
var errEnded = errors.New("the task has ended")

// endTask ends the task with an exit and emits an event of the kind how. It returns false if the task had ended
// before.
func (t *task) endTask(how string, exit drivers.Exit) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return false
	}
	if t.timer != nil {
		t.timer.Stop()
	}
	exit.FinishedAt = time.Now()
	t.exit, t.ended = exit, true
	t.machine.emitEvent(Event{ID: t.id, What: how, Exit: exit}) // before anybody can start it again
	close(t.done)
	return true
}

// endByReboot ends the task as a reboot does: Recover then no longer finds it.
func (t *task) endByReboot() {
	if t.endTask(Vanished, drivers.Exit{Code: -1, Err: "lost: the machine rebooted"}) {
		t.mu.Lock()
		t.vanished = true
		t.mu.Unlock()
	}
}

// hasVanished reports whether a reboot ended the task.
func (t *task) hasVanished() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.vanished
}

// Ended reports whether the task has ended.
func (t *task) Ended() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// Wait blocks until the task has ended.
func (t *task) Wait(ctx context.Context) (drivers.Exit, error) {
	select {
	case <-t.done:
		return t.exit, nil // not written any more
	case <-ctx.Done():
		return drivers.Exit{}, fmt.Errorf("wait for task %s: %w", t.id, ctx.Err())
	}
}

// Stop sends the signal to the task and, after timeout, SIGKILL. It returns when the task has ended or ctx has.
func (t *task) Stop(ctx context.Context, signal string, timeout time.Duration) error {
	number, err := drivers.ParseSignal(signal)
	if err != nil {
		return fmt.Errorf("stop task %s: %w", t.id, err)
	}
	t.deliverSignal(number)
	kill := time.AfterFunc(max(timeout, 0), func() { t.deliverSignal(sigkill) })
	select {
	case <-t.done:
		kill.Stop()
		return nil
	case <-ctx.Done(): // the task is killed all the same
		return fmt.Errorf("stop task %s: %w", t.id, ctx.Err())
	}
}

// Signal sends a signal, which ends the task unless it ignores it.
func (t *task) Signal(_ context.Context, signal string) error {
	number, err := drivers.ParseSignal(signal)
	if err == nil && t.Ended() {
		err = errEnded
	}
	if err != nil {
		return fmt.Errorf("signal task %s: %w", t.id, err)
	}
	t.deliverSignal(number)
	return nil
}

const sigkill = 9

// deliverSignal ends the task at once or after kill_after, unless its script ignores the signal.
func (t *task) deliverSignal(number int) {
	exit := drivers.Exit{Signal: number, Code: 128 + number}
	switch {
	case number == sigkill || !t.script.isSignalIgnored(number) && t.script.killAfter == 0:
		t.endTask(Stopped, exit)
	case !t.script.isSignalIgnored(number):
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.timer != nil {
			t.timer.Stop()
		}
		t.timer = time.AfterFunc(t.script.killAfter, func() { t.endTask(Stopped, exit) })
	}
}

// Forget removes an ended task from its machine. A running task is an error.
func (t *task) Forget(context.Context) error {
	if !t.Ended() {
		return fmt.Errorf("forget task %s: it runs", t.id)
	}
	t.machine.mu.Lock()
	defer t.machine.mu.Unlock()
	if t.machine.tasks[t.id] == t {
		delete(t.machine.tasks, t.id)
	}
	return nil
}
