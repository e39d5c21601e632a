// Package rawexec is the driver "raw_exec": a task is a process of the agent's user, without isolation. Edges run
// it; hubs check config blocks with it. Package supervised runs the process; this package starts no goroutine and
// stores nothing.
package rawexec

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"skerry/drivers"
	"skerry/drivers/options"
	"skerry/drivers/supervised"
	"skerry/fleet"
)

// Name is the driver's name in job files.
const Name = "raw_exec"

// Config of the driver.
type Config struct {
	// BootID is the kernel's boot id; "": read from the kernel.
	BootID string
	Log    *slog.Logger
}

// New makes the driver. It starts nothing.
func New(cfg Config) (*supervised.Driver, error) {
	return supervised.New(supervised.Config{
		Name: Name, BootID: cfg.BootID, Log: cfg.Log, Check: Check, Build: buildProcess,
		Capabilities: drivers.Capabilities{FSIsolation: drivers.FSNone, Networks: []string{fleet.NetworkHost}},
	})
}

// settings are the values of a task's config block.
type settings struct {
	command string
	args    []string
}

// parseSettings reads a task's config block. The error names everything that is wrong with it.
func parseSettings(config map[string]any) (settings, error) {
	r := options.Read(config)
	s := settings{command: r.RequiredText("command"), args: r.Texts("args")}
	return s, r.Err(Name, "it takes command (a string) and args (a list of strings)")
}

// Check returns an error for a config block that works on no machine: without a command, with an unknown key,
// or with a value of the wrong type. Hubs check a job with it when it is registered.
func Check(config map[string]any) error {
	_, err := parseSettings(config)
	return err
}

// buildProcess returns the process of a task: its command with the environment of the agent and of the task.
func buildProcess(_ context.Context, cfg drivers.TaskConfig) (supervised.Process, error) {
	s, err := parseSettings(cfg.Config)
	if err != nil {
		return supervised.Process{}, err
	}
	env := supervised.Environment(os.Environ(), cfg.Env)
	path, err := supervised.FindProgram(s.command, cfg.Dir, env)
	if err != nil {
		return supervised.Process{}, fmt.Errorf("find command: %w", err)
	}
	return supervised.Process{Path: path, Argv: append([]string{s.command}, s.args...), Env: env, Dir: cfg.Dir}, nil
}
