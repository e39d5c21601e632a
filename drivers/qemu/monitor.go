package qemu

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"skerry/drivers"
	"skerry/fleet"
)

const (
	monitorFile = "monitor.sock"
	// maxSocketPath is the longest path of a unix socket on Linux, in bytes.
	maxSocketPath = 107
	// monitorTimeout bounds a command to the monitor. An emulator that SIGSTOP holds does not answer.
	monitorTimeout = 10 * time.Second
	maxGreeting    = 64 << 10 // bytes before the prompt
)

// monitorPath returns the path of the monitor's socket: in the state folder, or in a folder of its own if the path
// would be too long.
func monitorPath(stateDir string) string {
	if path := filepath.Join(stateDir, monitorFile); len(path) <= maxSocketPath {
		return path
	}
	sum := sha256.Sum256([]byte(stateDir))
	return filepath.Join(os.TempDir(), "skerry-qemu-"+hex.EncodeToString(sum[:12]), monitorFile)
}

// makeMonitorPath returns the path of the monitor's socket and makes its folder, which only the agent may use.
func makeMonitorPath(stateDir string) (string, error) {
	path := monitorPath(stateDir)
	if len(path) > maxSocketPath {
		return "", fmt.Errorf("make folder of monitor: the path %s is too long for a socket", path)
	}
	dir := filepath.Dir(path)
	if dir == stateDir {
		return path, nil
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("make folder of monitor: %w", err)
	}
	if err := checkPrivate(dir); err != nil {
		return "", fmt.Errorf("make folder of monitor: %w", err)
	}
	return path, nil
}

// powerDown tells a machine's monitor to press its power button.
func powerDown(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, monitorTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("reach the machine's monitor: %w", err)
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	if err := awaitPrompt(conn); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("system_powerdown\n")); err != nil {
		return fmt.Errorf("write to the machine's monitor: %w", err)
	}
	return awaitPrompt(conn) // the command was carried out
}

// awaitPrompt reads from a monitor until it prompts for a command.
func awaitPrompt(conn net.Conn) error {
	var said strings.Builder
	b := make([]byte, 1024)
	for said.Len() < maxGreeting {
		n, err := conn.Read(b)
		said.Write(b[:n])
		if strings.HasSuffix(strings.TrimRight(said.String(), " "), "(qemu)") {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read from the machine's monitor: %w", err)
		}
	}
	return errors.New("read from the machine's monitor: no prompt")
}

// machineTask is a machine that runs or has ended.
type machineTask struct {
	drivers.Task
	drivers.Meter
	id       string
	stateDir string
	graceful bool
	log      *slog.Logger
}

// Stop shuts the machine down. With graceful_shutdown it presses the power button, and kills the machine after
// timeout. Otherwise it signals the emulator, which switches the machine off at once.
func (t *machineTask) Stop(ctx context.Context, signal string, timeout time.Duration) error {
	number, err := drivers.ParseSignal(signal)
	if err != nil {
		return fmt.Errorf("stop task %s: %w", t.id, err)
	}
	if t.graceful && number != killSignal && !t.Ended() {
		err := powerDown(ctx, monitorPath(t.stateDir))
		if err == nil {
			signal = "SIGCONT" // changes nothing; the supervisor kills after the timeout
		} else {
			t.log.Warn("monitor of the machine does not answer: ending its emulator", "task_id", t.id, "error", err)
		}
	}
	return t.Task.Stop(ctx, signal, timeout)
}

// killSignal is the number of SIGKILL.
const killSignal = 9

// Signal returns an error: a signal would reach the emulator and end the machine.
func (t *machineTask) Signal(_ context.Context, signal string) error {
	if _, err := drivers.ParseSignal(signal); err != nil {
		return fmt.Errorf("signal task %s: %w", t.id, err)
	}
	return fleet.Errorf(fleet.CodeUnsupported, "signal task %s: a machine gets no signals", t.id).
		WithHint("restart the task, or reach the machine by its network")
}

// Forget removes the data of an ended machine.
func (t *machineTask) Forget(ctx context.Context) error {
	if err := t.Task.Forget(ctx); err != nil {
		return err
	}
	if dir := filepath.Dir(monitorPath(t.stateDir)); dir != t.stateDir {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("forget task %s: %w", t.id, err)
		}
	}
	return nil
}
