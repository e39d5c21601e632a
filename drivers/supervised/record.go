package supervised

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"skerry/drivers"
	"skerry/drivers/logfile"
	"skerry/drivers/record"
	"skerry/internal/durable"
)

// Files of a task's state folder, besides the FIFOs: control (commands to the supervisor), life (open
// while it lives), stdout and stderr.
const (
	specFile   = "spec.json" // written by the agent before it starts a supervisor
	taskFile   = "task.json" // written by the supervisor once the task runs
	exitFile   = "exit.json" // written by the supervisor, durably, after the end
	lockFile   = "lock"      // held by the supervisor of this very folder
	stderrFile = "supervisor.log"
)

// argumentsFile is the record in the folder in memory of a task with secrets in its environment.
const argumentsFile = "arguments.json"

// recordVersion is the version of all records. Later releases read all versions, because tasks survive an
// upgrade of the agent. Since version 2 the spec has a user, a namespace, a cgroup and a container.
const recordVersion = 2

// checkVersion returns an error for a record of a version that this release does not know.
func checkVersion(version int) error {
	if version < 1 || version > recordVersion {
		return fmt.Errorf("version %d is not known", version)
	}
	return nil
}

// spec is the record from which a supervisor starts its task.
type spec struct {
	Version int    `json:"version"`
	TaskID  string `json:"task_id"`
	BootID  string `json:"boot_id"` // boot in which the task was started
	Process
	LogDir       string `json:"log_dir"`        // absolute path
	LogName      string `json:"log_name"`       // prefix of the log files: the task's name
	LogFiles     int    `json:"log_files"`      // files that are kept of each stream
	LogFileBytes int64  `json:"log_file_bytes"` // size at which a new file begins
	LogsDisabled bool   `json:"logs_disabled,omitempty"`
	// MemoryDir is the folder in memory with argumentsFile, which has the arguments and the environment of the process then;
	// "": they are in Process.
	MemoryDir string `json:"memory_dir,omitempty"`
}

// arguments are what is not on the disk of a process with secrets in its environment.
type arguments struct {
	Version int      `json:"version"`
	Argv    []string `json:"argv"`
	Env     []string `json:"env"`
}

// ValidateRecord returns an error for an unknown version and for a missing argument.
func (a *arguments) ValidateRecord() error {
	if err := checkVersion(a.Version); err != nil {
		return err
	}
	if len(a.Argv) == 0 {
		return errors.New("a field is missing")
	}
	return nil
}

// writeRecords writes the spec into a state folder, and what it has in memory into that folder.
func (s spec) writeRecords(dir string) error {
	if s.MemoryDir != "" {
		if err := record.Write(durable.Swap, s.MemoryDir, argumentsFile, arguments{recordVersion, s.Argv, s.Env}); err != nil {
			return err
		}
		s.Argv, s.Env = nil, nil
	}
	return record.Write(durable.Swap, dir, specFile, s)
}

// readArguments adds what the spec has in memory. A reboot ends that, and the task with it.
func (s *spec) readArguments() error {
	if s.MemoryDir == "" {
		return nil
	}
	var a arguments
	if err := record.Read(s.MemoryDir, argumentsFile, &a); err != nil {
		return fmt.Errorf("read the environment of the task from memory: %w", err)
	}
	s.Argv, s.Env = a.Argv, a.Env
	return nil
}

// newSpec makes the spec of a task.
func newSpec(cfg drivers.TaskConfig, process Process, bootID string) spec {
	files, mb := cfg.Logs.MaxFiles, cfg.Logs.MaxFileSizeMB
	if files <= 0 {
		files = logfile.DefaultFiles
	}
	if mb <= 0 {
		mb = logfile.DefaultFileMB
	}
	return spec{
		Version: recordVersion, TaskID: cfg.ID, BootID: bootID, Process: process, MemoryDir: cfg.MemoryDir,
		LogDir: cfg.LogDir, LogName: cfg.Task, LogFiles: files, LogFileBytes: int64(mb) << 20,
		LogsDisabled: cfg.Logs.Disabled,
	}
}

// identity identifies a process across restarts of the agent, because a pid may be reused. Start is in clock
// ticks since boot.
type identity struct {
	BootID string `json:"boot_id"`
	PID    int    `json:"pid"`
	Start  uint64 `json:"start"`
}

// taskRecord is the record of a running task's process and of the state folder. A copy of the folder has
// another Device and Inode.
type taskRecord struct {
	Version int `json:"version"`
	identity
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
}

// exitRecord records how the task ended. Interrupted says that the supervisor got a signal to end as well, for example
// at a shutdown of the machine.
type exitRecord struct {
	Version     int    `json:"version"`
	Code        int    `json:"code"`
	Signal      int    `json:"signal"`
	OOM         bool   `json:"oom"`
	Err         string `json:"error"`
	FinishedAt  int64  `json:"finished_at"` // UnixNano
	BootID      string `json:"boot_id"`
	Interrupted bool   `json:"interrupted"`
}

// encodeIdentity encodes an identity for Handle.State.
func encodeIdentity(id identity) ([]byte, error) {
	b, err := json.Marshal(id)
	if err != nil {
		return nil, fmt.Errorf("encode handle: %w", err)
	}
	return b, nil
}

// decodeIdentity decodes Handle.State.
func decodeIdentity(b []byte) (identity, error) {
	var id identity
	if err := json.Unmarshal(b, &id); err != nil {
		return identity{}, fmt.Errorf("decode handle: %w", err)
	}
	return id, nil
}

// ValidateRecord returns an error for an unknown version and for values that a supervisor cannot use.
func (s *spec) ValidateRecord() error {
	if err := checkVersion(s.Version); err != nil {
		return err
	}
	switch {
	case s.TaskID == "" || s.Path == "" || len(s.Argv) == 0 && s.MemoryDir == "" || s.LogName == "":
		return errors.New("a field is missing")
	case s.LogFiles < 1 || s.LogFileBytes < 1:
		return errors.New("logs are not bounded")
	}
	return s.Container.validateContainer()
}

// ValidateRecord returns an error for an unknown version and for a pid that cannot be that of a task.
func (t *taskRecord) ValidateRecord() error {
	if err := checkVersion(t.Version); err != nil {
		return err
	}
	// A negative pid, 0 or 1 would signal a process group, our own, or all processes.
	if t.PID <= 1 || t.Start == 0 {
		return errors.New("not a process of a task")
	}
	return nil
}

// ValidateRecord returns an error for an unknown version.
func (e *exitRecord) ValidateRecord() error {
	return checkVersion(e.Version)
}

// toDriverExit converts the record to the driver's result.
func (e *exitRecord) toDriverExit() drivers.Exit {
	return drivers.Exit{
		Code: e.Code, Signal: e.Signal, OOM: e.OOM, Err: e.Err, FinishedAt: time.Unix(0, e.FinishedAt),
	}
}
