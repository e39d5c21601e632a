package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"skerry/drivers"
	"skerry/fleet"
	"skerry/fleet/taskenv"
	"skerry/internal/redact"
)

// recoverTries bounds how often, once a second, a driver is asked for a task that it cannot look up. Then the
// task counts as lost, unless the error is recoverable: the task may run and must not be started twice.
const recoverTries = 30

// errEnded is the result of a request to a task that has ended, or is not running.
var errEnded = errors.New("the task has ended")

// task runs one task of an allocation, attempt after attempt, in its own goroutine.
type task struct {
	runner    *Runner
	name      string
	killed    chan struct{}       // closed when the task must end
	restarts  chan restartRequest // restarts by operators and checks
	signals   chan signalRequest  // signals by operators
	events    chan eventRequest   // events by watchers
	done      chan struct{}       // closed when its goroutine has ended
	startGate chan struct{}       // closed when it may start
	hook      string              // of its lifecycle; "" for a main task
	sidecar   bool

	// gateOpen says that startGate is closed, stateOfThisBoot that state was journaled in this boot. Owned by
	// the allocation's goroutine.
	gateOpen, stateOfThisBoot bool

	// state is changed by the allocation's goroutine only, while the task's goroutine waits for it.
	state fleet.TaskState
	// killReason is why the task must end, killedAt when the first task was told to stop, in monotonic
	// time. The allocation's goroutine sets them before it closes killed.
	killReason string
	killedAt   time.Duration

	// Owned by the task's goroutine.
	rec       record
	hasRecord bool         // rec was journaled by a previous agent
	prepared  *Preparation // of the newest attempt that this agent has prepared; nil: none
	// hidden are the values of the newest attempt's secrets.
	hidden redact.Values
}

// restartRequest asks a task's goroutine for a restart. The reply comes when the restart is journaled.
type restartRequest struct {
	reason string
	failed bool // requested by failed checks: the restart policy counts it
	reply  chan error
}

// signalRequest asks a task's goroutine to send a signal. The reply comes when the driver has sent it, with its
// error.
type signalRequest struct {
	signal, reason string
	reply          chan error
}

// newTask makes the task of a runner from its journaled state, without events. It starts no goroutine.
func newTask(r *Runner, spec *fleet.Task, state fleet.TaskState) *task {
	hook, sidecar := hookOf(spec)
	state.Events = nil
	if state.State == "" {
		state.State = fleet.TaskPending
	}
	return &task{
		runner: r, name: spec.Name, state: state, hook: hook, sidecar: sidecar,
		killed: make(chan struct{}), restarts: make(chan restartRequest), signals: make(chan signalRequest), events: make(chan eventRequest),
		done: make(chan struct{}), startGate: make(chan struct{}),
	}
}

// restoreRecord sets t.rec from the encoded record of the previous agent. If that is missing, unreadable, or
// older than the newest attempt in the driver's folders (the journal was damaged), that attempt may run, and
// its time begins now.
func (t *task) restoreRecord(b []byte) {
	f := &t.runner.factory
	now := f.Mono()
	rec, err := decodeRecord(b)
	last := f.Dirs.lastAttempt(t.runner.id, t.name)
	switch {
	case b != nil && err == nil && last <= rec.Attempt:
		t.rec, t.hasRecord, t.stateOfThisBoot = rec, true, rec.BootID == f.BootID
		if rec.BootID != f.BootID {
			t.rec.Window = rec.Window.rebaseStart(rec.Mono, now)
			t.rec.Ending, t.rec.StopAt, t.rec.Killing = 0, 0, false
		}
		return
	case b != nil && err != nil:
		t.runner.log.Error("task's record not readable", "task", t.name, "error", err)
	case b != nil:
		t.runner.log.Warn("task's record is older than its last attempt", "task", t.name, "attempt", last, "record", rec.Attempt)
	}
	t.rec = record{Version: recordVersion, BootID: f.BootID, Mono: now, Started: now, Window: restartWindow{Start: now}, Restarts: t.state.Restarts}
	if last > 0 {
		t.rec.Attempt, t.hasRecord = last, true
	}
}

// requestKill tells the task to end. Only the allocation's goroutine calls it; the first reason counts.
func (t *task) requestKill(reason string) {
	select {
	case <-t.killed:
	default:
		t.killReason, t.killedAt = reason, t.runner.ensureFirstStopTime()
		close(t.killed)
	}
}

// isStopping reports whether the task must end and not start again.
func (t *task) isStopping() bool {
	select {
	case <-t.killed:
		return true
	default:
		return t.runner.isStopped() && !t.isPoststop()
	}
}

// requestRestart asks the task's goroutine for a restart and waits until it is journaled. The error is errEnded
// if the task has ended.
func (t *task) requestRestart(ctx context.Context, req restartRequest) error {
	req.reply = make(chan error, 1)
	return sendRequest(ctx, t, t.restarts, req, req.reply)
}

// requestSignal asks the task's goroutine to send a signal and waits until the driver has sent it. The error is
// errEnded if the task does not run.
func (t *task) requestSignal(ctx context.Context, signal, reason string) error {
	req := signalRequest{signal: signal, reason: reason, reply: make(chan error, 1)}
	return sendRequest(ctx, t, t.signals, req, req.reply)
}

// sendRequest sends a request to a task's goroutine and returns its reply; errEnded if the task has ended or
// must end.
func sendRequest[T any](ctx context.Context, t *task, to chan<- T, req T, reply <-chan error) error {
	select {
	case to <- req:
		return waitForReply(ctx, reply)
	case <-t.killed:
		return errEnded
	case <-t.done:
		return errEnded
	case <-t.runner.done:
		return errEnded
	case <-ctx.Done():
		return ctx.Err()
	}
}

// waitForReply returns the reply to a request that was sent, or ctx's error if that ends first.
func waitForReply(ctx context.Context, reply <-chan error) error {
	select {
	case err := <-reply:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// runUntilDead is the task's goroutine: it resumes or starts attempts until the task is dead or ctx ends. In
// the latter case the running attempt goes on.
func (t *task) runUntilDead(ctx context.Context) {
	defer close(t.done)
	if t.state.State == fleet.TaskDead {
		return
	}
	live, err := t.resumeAttempt(ctx)
	for err == nil && t.state.State != fleet.TaskDead {
		switch {
		case live != nil:
			err = t.superviseTask(ctx, live)
			live = nil
		case t.isParked():
			return
		case t.isStopping():
			err = t.reportSteps(ctx, t.killedStep("Task was stopped and not started again"))
		case t.isWaitingToStart():
			err = t.waitForStart(ctx)
		default:
			live, err = t.startAttempt(ctx)
		}
	}
	if err != nil && ctx.Err() == nil {
		t.runner.log.Error("task is no longer supervised", "task", t.name, "error", err)
	}
}

// attemptID returns the id by which the driver knows the attempt.
func (t *task) attemptID() string {
	return fmt.Sprintf("%s/%s/%d", t.runner.id, t.name, t.rec.Attempt)
}

// waitForRestart waits for d before the next attempt. An operator's restart and a stop end the wait. An error
// means that ctx has ended.
func (t *task) waitForRestart(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return nil
		case <-t.killed:
			return nil
		case <-t.allocStopped():
			return nil
		case req := <-t.signals:
			req.reply <- errEnded
		case req := <-t.restarts:
			if req.failed { // it is restarting already
				req.reply <- nil
				continue
			}
			err := t.reportSteps(ctx, step{event: t.newTaskEvent(fleet.TaskRestartSignal, req.reason)})
			req.reply <- err
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// reportSteps journals steps together through the allocation's goroutine, and returns when they are
// durable. An error means that ctx has ended.
func (t *task) reportSteps(ctx context.Context, steps ...step) error {
	return t.sendReport(ctx, report{task: t, steps: steps, reply: make(chan error, 1)})
}

// reportWithRecord journals steps, as reportSteps does, together with the task's record in one commit: a
// restarted agent finds both or neither, and sends each event once.
func (t *task) reportWithRecord(ctx context.Context, steps ...step) error {
	b, err := t.encodeCurrentRecord()
	if err != nil {
		return err
	}
	return t.sendReport(ctx, report{task: t, steps: steps, record: b, reply: make(chan error, 1)})
}

// sendReport passes a report to the allocation's goroutine and returns when it is durable. An error means that
// ctx has ended.
func (t *task) sendReport(ctx context.Context, rep report) error {
	select {
	case t.runner.reports <- rep:
		return <-rep.reply
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// saveRecord journals the task's record as of now, and tries again until it succeeds.
func (t *task) saveRecord(ctx context.Context) error {
	b, err := t.encodeCurrentRecord()
	if err != nil {
		return err
	}
	return t.runner.putHandle(ctx, t.name, b)
}

// encodeCurrentRecord sets the boot and time of the task's record to now and encodes it.
func (t *task) encodeCurrentRecord() ([]byte, error) {
	t.rec.BootID, t.rec.Mono = t.runner.factory.BootID, t.runner.factory.Mono()
	return t.rec.encodeRecord()
}

// releaseAttempt makes the driver forget an attempt whose end is journaled.
func (t *task) releaseAttempt(ctx context.Context, live drivers.Task) {
	if err := live.Forget(ctx); err != nil {
		t.runner.log.Warn("driver could not forget an ended task", "task", t.name, "error", err)
	}
}

// isLeader reports whether the task is the leader of its group in the newest version of the allocation.
func (t *task) isLeader() bool {
	spec, err := t.currentSpec()
	return err == nil && spec.task.Leader
}

// spec is the specification of a task in one version of its allocation.
type spec struct {
	alloc         fleet.Alloc
	task          fleet.Task
	policy        fleet.RestartPolicy // the task's, or else its group's, or else the default
	alwaysRestart bool                // restart also after a success
}

// currentSpec returns the specification of the task in the newest version of the allocation; fleet.CodeInvalid
// if that has no such task.
func (t *task) currentSpec() (spec, error) {
	a := t.runner.currentAlloc()
	group := a.Group()
	if group == nil || group.Task(t.name) == nil {
		return spec{}, fleet.Errorf(fleet.CodeInvalid, "job %s has no task %q in group %q", a.JobID, t.name, a.TaskGroup)
	}
	s := spec{
		alloc: a, task: *group.Task(t.name), policy: fleet.DefaultRestart(a.Job.Type),
		alwaysRestart: runsForever(group.Task(t.name), a.Job.Type),
	}
	if group.RestartPolicy != nil {
		s.policy = *group.RestartPolicy
	}
	if s.task.RestartPolicy != nil {
		s.policy = *s.task.RestartPolicy
	}
	return s, nil
}

// findDriver returns the driver with that name; fleet.CodeInvalid if this edge has none.
func (t *task) findDriver(name string) (drivers.Driver, error) {
	d, ok := t.runner.factory.Drivers[name]
	if !ok {
		return nil, fleet.Errorf(fleet.CodeInvalid, "this edge has no driver %q", name)
	}
	return d, nil
}

// driverConfig returns the configuration with which the driver starts or recovers the current attempt, without
// what hooks add.
func (t *task) driverConfig(s spec) drivers.TaskConfig {
	f := &t.runner.factory
	dirs := f.Dirs.taskFolders(t.runner.id, t.name)
	env := t.taskEnv(s)
	return drivers.TaskConfig{
		ID: t.attemptID(), AllocID: t.runner.id, Task: t.name,
		Config: env.ReplaceAll(s.task.Config), Env: env.Vars(), Resources: s.task.Resources.WithSecrets(),
		Dir: dirs.task, AllocDir: dirs.alloc, LocalDir: dirs.local, SecretsDir: dirs.secrets,
		LogDir: dirs.logs, StateDir: f.Dirs.attemptStateDir(t.runner.id, t.name, t.rec.Attempt),
		Logs: s.task.LogConfig, KillSignal: s.task.KillSignal, KillTimeout: s.task.KillTimeout, User: s.task.User,
	}
}

// taskEnv returns the task's environment variables and the values of ${…}.
func (t *task) taskEnv(s spec) taskenv.Env { return taskenv.New(t.taskPlace(s)) }

// taskPlace returns where the task runs, with its folders as it sees them.
func (t *task) taskPlace(s spec) taskenv.Place {
	f := &t.runner.factory
	dirs := f.Dirs.taskFolders(t.runner.id, t.name)
	node := f.Node()
	where := taskenv.Place{
		Alloc: &s.alloc, Node: &node, Task: t.name, Region: s.alloc.Job.Region,
		AllocDir: dirs.alloc, TaskDir: dirs.local, SecretsDir: dirs.secrets,
	}
	if d, ok := f.Drivers[s.task.Driver]; ok && d.Capabilities().FSIsolation == drivers.FSImage {
		where.AllocDir, where.TaskDir, where.SecretsDir = drivers.AllocPath, drivers.LocalPath, drivers.SecretsPath
	}
	return where
}
