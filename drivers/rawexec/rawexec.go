// Package rawexec is the driver "raw_exec": a task is a plain process, as the
// agent's user, without isolation.
//
// Tasks outlive the agent. Each has a supervisor, a small process of its own
// (the agent's program, started again with a hidden argument, see Supervise),
// which starts the task in a session and process group of its own, writes what
// it prints to rotated files, carries out orders to stop or signal it, and
// writes its exit to the disk, durably. Supervisor and agent meet only in the
// task's state folder, by files and FIFOs, so that it makes no difference which
// life of the agent it is:
//
//	spec.json          what to run; written by the agent
//	task.json          pid, start time and boot id of the task; written once it runs
//	exit.json          how it ended
//	lock               flock held by the supervisor for as long as it lives
//	control            FIFO: orders to the supervisor, a line each
//	life               FIFO: held open by the supervisor; its end tells the agent
//	stdout, stderr     FIFOs: held open by the task itself, too, so that it does
//	                   not die of a broken pipe where its supervisor was killed
//	supervisor.log     what a supervisor had to say, empty as a rule
//
// A task is found again by all of: the lock, or else the process's pid, start
// time and boot id together with the folder's own device and inode. So a pid
// that is used again is never taken for the task, and a copy of a data directory
// never touches the tasks of the first. Where a supervisor was killed, the next
// one adopts the task; how it ends is then not known, as only a parent is told.
//
// What belongs to a task is known by its supervisor's descendants; where that was killed, by
// the task's session, by who has its output open, by a marker in the environment
// (SKERRY_TASK=DEVICE:INODE of the state folder), and by who descends from any of them. A stop
// that a supervisor does not carry out in time is carried out by the agent: it kills all of
// them, each by a descriptor of the very process, and the supervisor.
//
// A Driver starts no goroutine and holds nothing but the processes that it has
// started, to reap them. It works on Linux; elsewhere its fingerprint says so.
package rawexec

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
)

// Name is the driver's name in job files.
const Name = "raw_exec"

// superviseArg is the hidden argument of a supervisor; the state folder follows.
const superviseArg = "supervise-task"

// Config of a Driver.
type Config struct {
	// BootID is the kernel's boot id; "": it is read from the kernel.
	BootID string
	Log    *slog.Logger
}

// Driver runs tasks as plain processes.
type Driver struct {
	bootID string
	log    *slog.Logger

	mu sync.Mutex
	// children are the supervisors that this process started, by state folder.
	children map[string]*os.Process
}

// New makes a Driver.
func New(cfg Config) (*Driver, error) {
	if cfg.Log == nil {
		return nil, errors.New("make raw_exec driver: no logger")
	}
	if cfg.BootID == "" {
		cfg.BootID = kernelBootID()
	}
	return &Driver{
		bootID:   cfg.BootID,
		log:      cfg.Log.With("driver", Name),
		children: make(map[string]*os.Process),
	}, nil
}

// Supervise must be called first in main, and in the TestMain of tests that run
// raw_exec tasks. It returns at once, unless the process was started by a Driver
// to supervise a task: then it does that, and ends the process.
func Supervise() {
	if len(os.Args) == 3 && os.Args[1] == superviseArg {
		syscall.Exit(supervise(os.Args[2])) // without what os.Exit does at an agent's end
	}
}

// Validate refuses a config block that cannot work, as Check does.
func (d *Driver) Validate(config map[string]any) error { return Check(config) }

// Check refuses a config block that cannot work on any machine: without a command, with
// an unknown key, or with a value of the wrong type. Who registers a job asks it before
// an edge has to.
func Check(config map[string]any) error {
	_, err := parseOptions(config)
	return err
}

func kernelBootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "" // not Linux: the fingerprint says that tasks cannot be run
	}
	return strings.TrimSpace(string(b))
}
