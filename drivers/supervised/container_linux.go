package supervised

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"skerry/drivers"
	"skerry/internal/durable"
)

// Files of a state folder that only containers have.
const (
	runtimeLog = "runtime.log" // messages of the runtime's last command
	pidFile    = "container.pid"
	holdFIFO   = "hold" // endless input for the first process of the PID namespace
	// partialPIDFile is the file that runc renames to pidFile. It makes no second one: a loss of power may leave it.
	partialPIDFile = "." + pidFile
)

const (
	// runtimeTimeout bounds a command of the runtime.
	runtimeTimeout = 2 * time.Minute
	// maxRuntimeLog bounds the bytes that are read of the runtime's messages.
	maxRuntimeLog = 64 << 10
)

// createContainer creates the task's container, without starting its program, and returns the pid of its process. That
// process becomes a child of the supervisor when the runtime's command ends.
func (s *supervisor) createContainer(files []uintptr) (int, error) {
	c := s.spec.Container
	// An earlier supervisor may have been killed before it recorded its container.
	if err := s.deleteContainer(); err != nil {
		return 0, err
	}
	if c.PIDNamespace != "" {
		if err := s.makePIDNamespace(); err != nil {
			return 0, err
		}
	}
	record := filepath.Join(s.dir, pidFile)
	for _, name := range []string{pidFile, partialPIDFile} {
		if err := os.Remove(filepath.Join(s.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, fmt.Errorf("remove pid of an earlier container: %w", err)
		}
	}
	if err := s.runRuntime(c.Layers, files, "create", "--bundle", c.Bundle, "--pid-file", record, c.ID); err != nil {
		return 0, err
	}
	b, err := os.ReadFile(record)
	if err != nil {
		return 0, fmt.Errorf("read pid of container: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 1 {
		return 0, fmt.Errorf("read pid of container: %q is none", b)
	}
	return pid, nil
}

// holder is the first process of a task's PID namespace: it waits for ever, and the kernel reaps its children.
const holder = "trap '' CHLD HUP INT TERM; exec cat"

// makePIDNamespace starts the first process of a PID namespace and links the namespace where the bundle expects it.
func (s *supervisor) makePIDNamespace() error {
	path := filepath.Join(s.dir, holdFIFO)
	if err := unix.Mkfifo(path, 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make FIFO %s: %w", holdFIFO, err)
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open FIFO %s: %w", holdFIFO, err)
	}
	defer unix.Close(fd)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", os.DevNull, err)
	}
	defer null.Close()
	marker, err := markerOf(s.dir)
	if err != nil {
		return err
	}
	pid, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", holder}, &syscall.ProcAttr{
		Dir: "/", Env: []string{"PATH=/usr/bin:/bin", marker}, Files: []uintptr{uintptr(fd), null.Fd(), null.Fd()},
		Sys: &syscall.SysProcAttr{Setsid: true, Cloneflags: unix.CLONE_NEWPID},
	})
	if err != nil {
		return fmt.Errorf("make PID namespace: %w", err)
	}
	link := s.spec.Container.PIDNamespace
	if err = os.Remove(link); err == nil || errors.Is(err, fs.ErrNotExist) {
		err = os.Symlink(fmt.Sprintf("/proc/%d/ns/pid", pid), link)
	}
	if err != nil {
		// Without its link the namespace could not be found again.
		_ = unix.Kill(pid, unix.SIGKILL)
		return fmt.Errorf("link PID namespace: %w", err)
	}
	return nil
}

// startContainer starts the program of the container that createContainer made. It does nothing for a task without
// a container.
func (s *supervisor) startContainer() error {
	if s.spec.Container == nil {
		return nil
	}
	err := s.runRuntime(nil, nil, "start", s.spec.Container.ID)
	if err == nil {
		return nil
	}
	_ = unix.Kill(s.task.PID, unix.SIGKILL) // it may have ended
	s.removeContainerAndCgroup()
	if removed := os.Remove(filepath.Join(s.dir, taskFile)); removed != nil {
		err = errors.Join(err, fmt.Errorf("remove record: %w", removed))
	}
	return err
}

// startAdoptedContainer starts the program of a container whose supervisor was killed after it wrote the record. If
// that fails, it kills the container, which would wait forever.
func (s *supervisor) startAdoptedContainer() {
	c := s.spec.Container
	if c == nil || !s.task.isAlive() {
		return
	}
	var out []byte
	err := c.withMounts(nil, func() (err error) {
		out, err = exec.Command(c.Runtime, "--root", c.Root, "state", c.ID).Output()
		return err
	})
	var state struct {
		Status string `json:"status"`
	}
	if err != nil || json.Unmarshal(out, &state) != nil || state.Status != "created" {
		return
	}
	if err := s.runRuntime(nil, nil, "start", c.ID); err != nil {
		fmt.Fprintln(os.Stderr, "supervise task:", err)
		_ = unix.Kill(s.task.PID, unix.SIGKILL)
	}
}

// isStateCutOff reports whether the state of a container lost its content with the power, so that no runtime can delete the
// container. It has no processes then. Runtimes themselves replace the file as a whole.
func isStateCutOff(folder string) bool {
	for _, name := range []string{"state.json", "status"} { // of runc, and of crun
		if b, err := os.ReadFile(filepath.Join(folder, name)); err == nil && !json.Valid(b) {
			return true
		}
	}
	return false
}

// deleteContainer ends the task's container if it exists, and removes its state, its cgroup and its PID namespace.
func (s *supervisor) deleteContainer() error {
	c := s.spec.Container
	var err error
	folder := filepath.Join(c.Root, c.ID)
	switch _, missing := os.Stat(folder); {
	case missing != nil:
	case isStateCutOff(folder):
		err = os.RemoveAll(folder)
	default:
		err = s.runRuntime(nil, nil, "delete", "--force", c.ID)
	}
	if c.PIDNamespace == "" {
		return err
	}
	if removed := os.Remove(c.PIDNamespace); errors.Is(removed, fs.ErrNotExist) {
		return err
	}
	for _, m := range append(membersOf(s.dir, identity{}), childrenOf(os.Getpid())...) {
		_ = signalProcess(m.pid, m.start, unix.SIGKILL)
	}
	return err
}

// runRuntime runs a command of the runtime with layers mounted (nil: none), and with files as its input and outputs, or with
// none. The error contains the runtime's message.
func (s *supervisor) runRuntime(layers *Layers, files []uintptr, args ...string) error {
	c := s.spec.Container
	ctx, cancel := context.WithTimeout(context.Background(), runtimeTimeout)
	defer cancel()
	log := filepath.Join(s.dir, runtimeLog)
	if err := os.Remove(log); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the runtime's log: %w", err)
	}
	cmd := exec.CommandContext(ctx, c.Runtime, append([]string{"--root", c.Root, "--log", log, "--log-format", "json"}, args...)...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	if files != nil {
		var opened []*os.File
		for _, fd := range files {
			dup, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				return fmt.Errorf("run %s: %w", args[0], err)
			}
			opened = append(opened, os.NewFile(uintptr(dup), "output"))
		}
		defer closeAll(opened)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = opened[0], opened[1], opened[2]
	}
	if err := c.withMounts(layers, cmd.Run); err != nil {
		return fmt.Errorf("%s %s: %w", filepath.Base(c.Runtime), args[0], runtimeError(log, err, freeSpace(s.dir)))
	}
	return nil
}

// runtimeFailure is an error message of a runtime.
type runtimeFailure struct {
	message string
	cause   error // the kernel error in the message if a retry may succeed; else nil
}

func (f runtimeFailure) Error() string { return f.message }
func (f runtimeFailure) Unwrap() error { return f.cause }

// unstoredState is runc's message when it could not write its own state. It does not contain the cause.
const unstoredState = "unable to store init state"

// fullDisk is the free space in bytes below which an error of a runtime counts as that of a full disk.
const fullDisk = 64 << 10

// deathsOfInit are what the messages of runc have when something killed the process that was to become the task, as a lack of
// memory or a loss of power does.
var deathsOfInit = []string{"broken pipe", "connection reset by peer", "from pipe: EOF", "setup: EOF", "signal: killed", "container init: %!w(<nil>)", "readlink /proc/"}

// runtimeError returns the last error in a runtime's log, or err if the log has none. It marks the error as
// recoverable if the task's process was killed before it began, or a full disk may be the cause: hardly any space is free,
// the runtime could not write its state, or it ran and wrote no log.
func runtimeError(log string, err error, free int64) error {
	message := lastRuntimeError(log)
	if message == "" {
		if errors.As(err, new(*exec.ExitError)) {
			return drivers.Recoverable(err)
		}
		return err
	}
	if free < fullDisk || strings.Contains(message, unstoredState) {
		return runtimeFailure{message, unix.ENOSPC}
	}
	for _, lack := range lacks {
		if strings.Contains(strings.ToLower(message), lack.Error()) {
			return runtimeFailure{message, lack}
		}
	}
	for _, death := range deathsOfInit {
		if strings.Contains(message, death) {
			return drivers.Recoverable(runtimeFailure{message: message})
		}
	}
	return runtimeFailure{message: message}
}

// freeSpace returns the free space of a folder's disk, or a large number if it is unknown.
func freeSpace(dir string) int64 {
	free, _, err := durable.FreeSpace(dir)
	if err != nil {
		return fullDisk
	}
	return free
}

// lastRuntimeError returns the last error in a runtime's log, or "".
func lastRuntimeError(log string) string {
	f, err := os.Open(log)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxRuntimeLog))
	if err != nil {
		return ""
	}
	message := ""
	for line := range bytes.Lines(b) {
		var entry struct {
			Level   string `json:"level"`
			Message string `json:"msg"`
		}
		if json.Unmarshal(line, &entry) == nil && entry.Level == "error" {
			message = entry.Message
		}
	}
	return message
}
