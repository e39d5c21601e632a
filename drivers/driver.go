// Package drivers is the contract between an edge and what runs its tasks: the
// Driver interface, what is handed to it, and what it reports. Each driver is a
// folder below; drivertest is the conformance suite that all of them pass.
//
// The package itself starts no goroutine and persists nothing. A driver keeps
// tasks running when the agent that started them dies; the Handle, which the
// edge journals before it counts a task as started, is enough to find them again.
package drivers

import (
	"context"
	"time"

	"skerry/fleet"
)

// Driver runs tasks of one kind. Its methods may be called at once from several
// goroutines, but for one task they are called one after the other.
type Driver interface {
	// Fingerprint says whether and how the driver works on this machine.
	Fingerprint(ctx context.Context) fleet.DriverInfo
	// Validate refuses a configuration before anything is started.
	Validate(config map[string]any) error
	// Start starts a task and returns what finds it again. It is idempotent by
	// TaskConfig.ID: where that very task already runs, its Handle is returned.
	// An error that a second try may not meet is wrapped with Recoverable.
	Start(ctx context.Context, cfg TaskConfig) (Handle, error)
	// Recover finds a task by its Handle, in this or an earlier life of the agent.
	// cfg is what Start was given, with the folders where the data directory lies
	// now: a copy of a data directory elsewhere is another one, and does not find
	// the first one's tasks. A Handle without Version and State is one that the
	// agent did not live to journal: the task is looked for by its ID.
	// ErrTaskGone: it is not there, and how it ended is not known (the machine
	// rebooted, or the task belongs to another data directory). A task that ended
	// meanwhile is found, with its exit; so is one that ended by itself before a
	// reboot. An error that a second try may not meet is wrapped with Recoverable:
	// the task is then not taken for lost, however long that takes.
	Recover(ctx context.Context, cfg TaskConfig, h Handle) (Task, error)
}

// Task is a task that a driver found or started. Its methods may be called at
// once from several goroutines.
type Task interface {
	// Ended reports whether the task has ended, without waiting: what is found so
	// right after Recover ended while the agent was away.
	Ended() bool
	// Wait blocks until the task has ended, or ctx is done. It may be called
	// again and gives the same.
	Wait(ctx context.Context) (Exit, error)
	// Stop sends signal ("": SIGTERM), waits up to timeout, kills, and returns when
	// the task is gone. Stopping what has ended is no error. Where ctx ends first,
	// or the agent dies, the task is stopped all the same.
	Stop(ctx context.Context, signal string, timeout time.Duration) error
	// Signal sends a signal; an unknown name is an error, and so is a task that
	// has ended.
	Signal(ctx context.Context, signal string) error
	// Forget removes what the driver keeps of an ended task, not its logs.
	Forget(ctx context.Context) error
}

// Execer is a Task beside which further commands can be run: in its folder, with
// its environment, and within whatever separates it from the rest of the machine.
type Execer interface {
	// Exec runs a command and returns its exit code (128 and the signal where that
	// ended it) when it has ended and all that it wrote was taken. It ends the command
	// with ctx, whose error it then returns, and closes Stdin in any case. A command
	// that cannot be started is a fleet.CodeInvalid.
	Exec(ctx context.Context, x fleet.Exec) (code int, err error)
}

// Meter is a Task that can say what it uses.
type Meter interface {
	// Consumed returns what each process of the task has used since it began. Of a
	// task that has ended it is a fleet.CodeConflict.
	Consumed(ctx context.Context) ([]fleet.Consumed, error)
}

// TaskConfig is what a driver is told to run. Interpolation is done; folders are
// absolute.
type TaskConfig struct {
	ID         string // ALLOC/TASK/ATTEMPT: unique for each start
	AllocID    fleet.AllocID
	Task       string
	Config     map[string]any
	Env        map[string]string
	Resources  fleet.Resources
	Dir        string // the task's own folder: working directory; it exists
	LogDir     string // where TASK.stdout.N and TASK.stderr.N are written; it exists
	StateDir   string // private to the driver, one a start; survives a reboot; made by the driver
	Logs       fleet.LogConfig
	KillSignal string // "": SIGTERM
	// KillTimeout is what Stop will be given.
	KillTimeout time.Duration
}

// Handle finds a task again. It is journaled; State is the driver's own,
// versioned by Version.
type Handle struct {
	Driver  string
	Version int
	TaskID  string
	State   []byte
}

// Exit is how a task ended.
type Exit struct {
	Code       int
	Signal     int
	OOM        bool
	FinishedAt time.Time // edge's wall clock
	// Err says what went wrong besides: the supervisor died, the exit was lost.
	Err string
}

// Success reports an exit code of 0 without a signal.
func (e Exit) Success() bool { return e.Code == 0 && e.Signal == 0 && e.Err == "" }
