package drivertest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"skerry/drivers"
)

// Shell is a Harness.Config for drivers whose tasks have a command and args and run in their folder: it returns a
// shell script with the behaviour b. It records its start after its traps are set.
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
	lines = append(lines, "echo started >> starts")
	switch {
	case b.RunFor == Forever:
		lines = append(lines, "while :; do sleep 1; done")
	case b.RunFor > 0:
		lines = append(lines, fmt.Sprintf("sleep %.3f", b.RunFor.Seconds()))
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
