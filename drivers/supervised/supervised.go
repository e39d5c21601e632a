// Package supervised is the part that all drivers share whose tasks are processes of this machine: raw_exec, exec,
// java, qemu and wasm. A driver makes a Driver with its name, a check of its config block, and a function that turns a
// TaskConfig into the Process to run.
//
// Tasks survive the agent. Each task has a supervisor, a small process (the agent's program with a hidden
// argument, see Supervise). It starts the task in its own session and process group, writes its output to rotated
// files, executes commands to stop or signal it, and writes its exit to disk, durably. Supervisor and agent
// communicate only through the task's state folder, so that a restarted agent can continue:
//
//	spec.json          what to run; written by the agent
//	task.json          pid, start time and boot id of the task; written once it runs
//	exit.json          how it ended
//	lock               flock held by the supervisor for as long as it lives
//	control            FIFO: commands to the supervisor, a line each
//	life               FIFO: held open by the supervisor; its end tells the agent
//	stdout, stderr     FIFOs: the task itself holds them open too, so that it does
//	                   not die of a broken pipe if its supervisor is killed
//	supervisor.log     messages of the supervisor, empty as a rule
//
// A task in a container has more: container.pid and runtime.log of the OCI runtime, pidns (link to its PID namespace),
// hold (FIFO, input of that namespace's first process), exec-* (one for each command beside it), and its
// driver's files (the bundle, and oci, the state of the runtime). The supervisor creates the container, records it, and
// starts it. So a container without a record has never run, and is created again.
//
// A task is found again by the lock, or by the pid, start time and boot id of the process together with the
// device and inode of the folder. So a reused pid is never taken for the task, and a copy of a data directory
// never affects the tasks of the original. If a supervisor was killed, the next one adopts the task; the exit is
// then not known, because only a parent receives it.
//
// The processes of a task are those in its cgroup, if it has one, and the descendants of its supervisor. If the
// supervisor was killed, they are those in the task's session, those with its output open, those with its marker in
// the environment (SKERRY_TASK=DEVICE:INODE of the state folder), and the descendants of all these. If a supervisor
// does not execute a stop in time, the agent kills all of them, each through a descriptor of the very process, and
// the supervisor.
//
// A Driver starts no goroutine. It only keeps its child processes, to reap them. It works on Linux; elsewhere its
// fingerprint says that it does not.
package supervised

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"

	"skerry/drivers"
	"skerry/fleet"
)

// superviseArg is the hidden argument of a supervisor; the state folder follows it.
const superviseArg = "supervise-task"

// Config of a Driver.
type Config struct {
	// Name is the driver's name in job files.
	Name string
	// BootID is the kernel's boot id; "": read from the kernel.
	BootID string
	Log    *slog.Logger
	// Check returns an error for an invalid config block. It starts nothing.
	Check func(config map[string]any) error
	// Build returns the process to run for a task. Check has accepted the config block, and the folders of the
	// TaskConfig exist, also StateDir, into which Build may write files. It may be called again for the same task, and
	// starts nothing.
	Build func(ctx context.Context, cfg drivers.TaskConfig) (Process, error)
	// Capabilities are the abilities of the driver's tasks.
	Capabilities drivers.Capabilities
	// Users says that Build uses the user of a task. Otherwise a task with a user does not start.
	Users bool
	// Fingerprint returns whether the driver works on this machine; nil: it does.
	Fingerprint func(ctx context.Context) fleet.DriverInfo
}

// Driver runs tasks as supervised processes. It implements drivers.Driver. A driver with further abilities embeds it.
type Driver struct {
	cfg    Config
	bootID string
	log    *slog.Logger

	mu sync.Mutex
	// children are the supervisors that this process started, by state folder.
	children map[string]*os.Process
	// starting has the state folders for which ensureSupervisor runs; each channel is closed when it returns.
	starting map[string]chan struct{}
}

// New makes a Driver. It reads the kernel's boot id if none is configured, and starts nothing.
func New(cfg Config) (*Driver, error) {
	switch {
	case cfg.Name == "" || cfg.Check == nil || cfg.Build == nil:
		return nil, errors.New("make driver: no name, check or build function")
	case cfg.Log == nil:
		return nil, errors.New("make driver " + cfg.Name + ": no logger")
	}
	if cfg.BootID == "" {
		cfg.BootID = kernelBootID()
	}
	return &Driver{
		cfg:      cfg,
		bootID:   cfg.BootID,
		log:      cfg.Log.With("driver", cfg.Name),
		children: make(map[string]*os.Process),
		starting: make(map[string]chan struct{}),
	}, nil
}

// Supervise must be called first in main, and in the TestMain of tests that run such tasks. It returns at
// once, unless a Driver started the process as a supervisor: then it supervises the task and ends the process.
func Supervise() {
	if len(os.Args) == 3 && os.Args[1] == superviseArg {
		syscall.Exit(runSupervisor(os.Args[2])) // skips what os.Exit does at the end of an agent
	}
}

// Capabilities returns the abilities of the driver's tasks.
func (d *Driver) Capabilities() drivers.Capabilities { return d.cfg.Capabilities }

// Validate returns an error for an invalid config block.
func (d *Driver) Validate(config map[string]any) error { return d.cfg.Check(config) }

// kernelBootID returns the kernel's boot id; "" if it cannot be read.
func kernelBootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "" // not Linux: the fingerprint reports that no tasks can run
	}
	return strings.TrimSpace(string(b))
}
