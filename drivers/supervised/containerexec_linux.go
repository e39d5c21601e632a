package supervised

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"skerry/drivers/record"
	"skerry/fleet"
)

// Files of the folder of one command in a container.
const (
	execProcess = "process.json"
	execPID     = "pid"
	execLog     = "log"
)

// execStartPatience bounds the wait for a runtime that starts a command whose caller has gone.
const execStartPatience = 10 * time.Second

// execInContainer runs a command in the task's container with the user, environment and restrictions of the task,
// and returns its exit code. It ends with ctx. If the agent dies, it ends with the container at the latest.
func (t *task) execInContainer(ctx context.Context, sp *spec, x fleet.Exec) (int, error) {
	c := sp.Container
	dir, err := os.MkdirTemp(cmp.Or(sp.MemoryDir, t.dir), "exec-")
	if err != nil {
		return 0, fmt.Errorf("run a command: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // Forget removes what remains
	process, err := c.readProcess()
	if err == nil {
		err = writeExecProcess(filepath.Join(dir, execProcess), process, x)
	}
	if err != nil {
		return 0, fmt.Errorf("run a command: %w", err)
	}
	log, pid := filepath.Join(dir, execLog), filepath.Join(dir, execPID)
	args := []string{c.Runtime, "--root", c.Root, "--log", log, "--log-format", "json", "exec", "--process", filepath.Join(dir, execProcess), "--pid-file", pid}
	if x.TTY {
		args = append(args, "--tty")
	}
	cmd := &exec.Cmd{
		Path: c.Runtime, Args: append(args, c.ID), Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", terminal}, Dir: "/",
		SysProcAttr: &unix.SysProcAttr{Setsid: true, Setctty: x.TTY, Pdeathsig: unix.SIGKILL},
	}
	ended := make(chan struct{})
	code, err := t.runCommand(ctx, cmd, x, func() error { return c.startUntil(ended, cmd) }, func() { killStarted(cmd, pid, ended) })
	close(ended)
	killRecorded(pid)
	if message := lastRuntimeError(log); err == nil && code != 0 && message != "" {
		return 0, fleet.Errorf(fleet.CodeInvalid, "run a command: %s", message)
	}
	return code, err
}

// startUntil starts a command with the container's mounts. The thread that starts it, whose end kills the command, stays until
// ended is closed.
func (c *Container) startUntil(ended <-chan struct{}, cmd *exec.Cmd) error {
	started := make(chan error, 1)
	go func() {
		begun := false
		err := c.withMounts(nil, func() error {
			begun = true
			started <- cmd.Start()
			<-ended
			return nil
		})
		if !begun {
			started <- err
		}
	}()
	return <-started
}

// readProcess reads the container's process from its bundle.
func (c *Container) readProcess() (map[string]any, error) {
	f, err := os.Open(filepath.Join(c.Bundle, "config.json"))
	if err != nil {
		return nil, fmt.Errorf("open bundle: %w", err)
	}
	defer f.Close()
	var bundle struct {
		Process map[string]any `json:"process"`
	}
	if err := json.NewDecoder(io.LimitReader(f, record.Max)).Decode(&bundle); err != nil {
		return nil, fmt.Errorf("read bundle: %w", err)
	}
	if bundle.Process == nil {
		return nil, fmt.Errorf("read bundle %s: it has no process", c.Bundle)
	}
	return bundle.Process, nil
}

// writeExecProcess writes the process of a command: the container's process with other arguments.
func writeExecProcess(path string, process map[string]any, x fleet.Exec) error {
	process["args"], process["terminal"] = x.Command, x.TTY
	env, _ := process["env"].([]any)
	hasTerm := slices.ContainsFunc(env, func(v any) bool { s, _ := v.(string); return strings.HasPrefix(s, "TERM=") })
	if x.TTY && !hasTerm {
		process["env"] = append(slices.Clone(env), terminal)
	}
	b, err := json.Marshal(process)
	if err != nil {
		return fmt.Errorf("encode process: %w", err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		return fmt.Errorf("write process: %w", err)
	}
	return nil
}

// killStarted kills the command that a runtime starts or has started, until the runtime has ended. It kills the runtime only after
// execStartPatience: one that is killed before it has recorded the command leaves it running.
func killStarted(runtime *exec.Cmd, record string, ended <-chan struct{}) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for patience := time.After(execStartPatience); ; {
		killRecorded(record)
		select {
		case <-ended:
			return
		case <-patience:
			killGroupOf(runtime)
			return
		case <-tick.C:
		}
	}
}

// killRecorded kills the command that a runtime has recorded, with its process group. Before it is in the container, and after its end,
// it does nothing.
func killRecorded(record string) {
	b, err := os.ReadFile(record)
	if err != nil {
		return // it is not started yet
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 1 {
		return
	}
	own, err := os.Readlink("/proc/self/ns/mnt")
	its, failed := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil || failed != nil || its == own {
		return
	}
	if s, err := readStat(pid); err == nil && s.session > 1 { // runc's command leads its session; with crun, the session's leader has ended
		_ = unix.Kill(-s.session, unix.SIGKILL)
	}
}
