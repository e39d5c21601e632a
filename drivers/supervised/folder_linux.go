package supervised

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"skerry/drivers"
)

// FIFOs of a state folder.
const (
	controlFIFO = "control"
	lifeFIFO    = "life"
	stdoutFIFO  = "stdout"
	stderrFIFO  = "stderr"
)

// maxControlLine bounds a line on the control FIFO. It is less than PIPE_BUF, so that lines of several
// writers do not mix.
const maxControlLine = 256

// Errors about a task's supervisor: another one holds the lock; none does.
var (
	errSupervised   = errors.New("task has a supervisor")
	errUnsupervised = errors.New("task has no supervisor")
)

// makeFIFOs makes the missing FIFOs of a folder.
func makeFIFOs(dir string) error {
	for _, name := range []string{controlFIFO, lifeFIFO, stdoutFIFO, stderrFIFO} {
		if err := unix.Mkfifo(filepath.Join(dir, name), 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make FIFO %s: %w", name, err)
		}
	}
	return nil
}

// openFIFO opens a FIFO of a folder for reading and writing, which never blocks.
func openFIFO(dir, name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open FIFO %s: %w", name, err)
	}
	return f, nil
}

// lockFolder locks the folder until the returned file is closed. If another process has the lock, the error
// wraps errSupervised.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = errSupervised
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), f.Close())
	}
	return f, nil
}

// hasSupervisor reports whether a supervisor holds the lock of the folder dir: it tries to take the lock for a moment.
// Only a supervisor that is just starting could notice, and the caller starts none meanwhile.
func hasSupervisor(dir string) bool {
	lock, err := os.Open(filepath.Join(dir, lockFile))
	if err != nil {
		return false
	}
	defer lock.Close()
	return errors.Is(unix.Flock(int(lock.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// controlCommand is a command to a supervisor: to send a signal to the task or, with stop, to end the task with
// the signal and kill it after timeout.
type controlCommand struct {
	stop    bool
	signal  int
	timeout time.Duration
}

// formatLine returns the command as a line of the control FIFO.
func (o controlCommand) formatLine() string {
	if o.stop {
		return fmt.Sprintf("stop %d %d\n", o.signal, o.timeout.Milliseconds())
	}
	return fmt.Sprintf("signal %d\n", o.signal)
}

// parseControlCommand parses a line of the control FIFO and checks its numbers.
func parseControlCommand(line string) (controlCommand, error) {
	var o controlCommand
	var ms int64
	switch {
	case strings.HasPrefix(line, "stop "):
		if _, err := fmt.Sscanf(line, "stop %d %d", &o.signal, &ms); err != nil {
			return controlCommand{}, fmt.Errorf("parse command: %w", err)
		}
		o.stop = true
	case strings.HasPrefix(line, "signal "):
		if _, err := fmt.Sscanf(line, "signal %d", &o.signal); err != nil {
			return controlCommand{}, fmt.Errorf("parse command: %w", err)
		}
	default:
		return controlCommand{}, errors.New("parse command: neither stop nor signal")
	}
	if o.signal < 1 || o.signal > 64 || ms < 0 || ms > maxKillTimeout.Milliseconds() {
		return controlCommand{}, errors.New("parse command: a number is out of bounds")
	}
	o.timeout = time.Duration(ms) * time.Millisecond
	return o, nil
}

// maxKillTimeout bounds the kill timeout of a task.
const maxKillTimeout = 24 * time.Hour

// sendControlCommand writes a command to the control FIFO of a folder. Without a supervisor the error wraps
// errUnsupervised.
func sendControlCommand(dir string, o controlCommand) error {
	f, err := os.OpenFile(filepath.Join(dir, controlFIFO), os.O_WRONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENXIO) || errors.Is(err, fs.ErrNotExist) {
		return errUnsupervised
	}
	if err != nil {
		return fmt.Errorf("open FIFO control: %w", err)
	}
	_, err = io.WriteString(f, o.formatLine())
	if errors.Is(err, unix.EPIPE) {
		return errors.Join(errUnsupervised, f.Close())
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("send command: %w", err)
	}
	return nil
}

// encodeHandle returns the Handle of the task with that process.
func (d *Driver) encodeHandle(taskID string, id identity) (drivers.Handle, error) {
	state, err := encodeIdentity(id)
	if err != nil {
		return drivers.Handle{}, err
	}
	return drivers.Handle{Driver: d.cfg.Name, Version: recordVersion, TaskID: taskID, State: state}, nil
}
