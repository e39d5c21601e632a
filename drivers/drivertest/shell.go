package drivertest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"skerry/drivers"
	"skerry/drivers/supervised"
)

// HogCommand is a command of a shell that uses HogMB of memory.
var HogCommand = fmt.Sprintf("dd if=/dev/zero of=/dev/null count=1 bs=%dM", HogMB)

// Shell is a Harness.Config for drivers whose tasks have a command and args and run in their folder. It returns a
// shell script with the behaviour b, which records its start after it has set its traps.
func Shell(_ drivers.TaskConfig, b Behaviour) map[string]any {
	var lines []string
	if b.Ignore != "" {
		lines = append(lines, fmt.Sprintf("trap '' %s", strings.TrimPrefix(b.Ignore, "SIG")))
	}
	if b.Print != "" {
		lines = append(lines, fmt.Sprintf("echo '%s'", b.Print))
	}
	if b.PrintErr != "" {
		lines = append(lines, fmt.Sprintf("echo '%s' >&2", b.PrintErr))
	}
	if b.HogChild {
		lines = append(lines, HogCommand)
	}
	lines = append(lines, "echo started >> starts")
	switch {
	case b.RunFor == Forever:
		lines = append(lines, "while :; do sleep 1; done")
	case b.RunFor > 0:
		lines = append(lines, fmt.Sprintf("sleep %.3f", b.RunFor.Seconds()))
	}
	if b.Hog {
		lines = append(lines, "exec "+HogCommand)
	}
	lines = append(lines, fmt.Sprintf("exit %d", b.ExitCode))
	return map[string]any{"command": "/bin/sh", "args": []any{"-c", strings.Join(lines, "\n")}}
}

// ShellStarts is the Harness.Starts of Shell.
func ShellStarts(cfg drivers.TaskConfig) int {
	b, err := os.ReadFile(filepath.Join(cfg.Dir, "starts"))
	if err != nil {
		return 0
	}
	return strings.Count(string(b), "started")
}

// NoCgroups is the Harness.NoOOM of drivers whose tasks are not limited on a machine without cgroups.
func NoCgroups() string {
	if _, err := supervised.CgroupVersion(); err != nil {
		return err.Error()
	}
	return ""
}

// killTimeout bounds the wait for the end of a killed supervisor.
const killTimeout = time.Minute

// KillSupervisor is the Harness.KillSupervisor of drivers that are built on package supervised.
func KillSupervisor(cfg drivers.TaskConfig) error {
	pids, err := supervisorsOf(cfg.StateDir)
	if err != nil {
		return err
	}
	if len(pids) != 1 {
		return fmt.Errorf("task %s has %d supervisors", cfg.ID, len(pids))
	}
	process, err := os.FindProcess(pids[0])
	if err == nil {
		err = process.Kill()
	}
	if err != nil {
		return fmt.Errorf("kill supervisor %d: %w", pids[0], err)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(killTimeout); time.Now().Before(deadline); <-tick.C {
		if left, err := supervisorsOf(cfg.StateDir); err == nil && len(left) == 0 {
			return nil
		}
	}
	return fmt.Errorf("supervisor %d was killed and has not ended within %v", pids[0], killTimeout)
}

// supervisorsOf returns the pids of the supervisors of a state folder. A zombie has no command line.
func supervisorsOf(stateDir string) ([]int, error) {
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil || !strings.HasSuffix(string(b), "\x00supervise-task\x00"+stateDir+"\x00") {
			continue // it has ended, or is another program
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return nil, fmt.Errorf("list processes: %w", err)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}
