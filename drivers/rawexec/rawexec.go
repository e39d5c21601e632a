// Package rawexec is the driver "raw_exec": a task is a process of the machine without isolation, in a cgroup of its
// own where there are cgroups. Edges run it; hubs check config blocks with it. Package supervised runs the process;
// this package starts no goroutine and stores nothing.
package rawexec

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

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
	// DeniedEnv are variables of the agent's environment that no task gets, besides the agent's own settings.
	DeniedEnv []string
}

// New makes the driver. It starts nothing.
func New(cfg Config) (*supervised.Driver, error) {
	p := planner{deniedEnv: slices.Clone(cfg.DeniedEnv)}
	return supervised.New(supervised.Config{
		Name: Name, BootID: cfg.BootID, Log: cfg.Log, Users: true, Check: Check, Build: p.planTask, Fingerprint: fingerprint,
		Capabilities: drivers.Capabilities{
			FSIsolation: drivers.FSNone, HidesEnv: true,
			Networks: []string{fleet.NetworkHost, fleet.NetworkBridge, fleet.NetworkNone, drivers.NetworkCNI},
		},
	})
}

// settings are the values of a task's config block.
type settings struct {
	command string
	args    []string
	workDir string
}

// parseSettings reads a task's config block. The error names all its problems.
func parseSettings(config map[string]any) (settings, error) {
	r := options.Read(config)
	s := settings{command: r.RequiredText("command"), args: r.Texts("args"), workDir: r.Text("work_dir")}
	if s.workDir != "" && !filepath.IsAbs(s.workDir) {
		r.Refuse("work_dir must be an absolute path, not %q", s.workDir)
	}
	return s, r.Err(Name, "it takes command (a string), args (a list of strings) and work_dir (an absolute path)")
}

// Check returns an error for a config block that works on no machine: without a command, with an unknown key,
// or with a value of the wrong type. Hubs check a job with it when it is registered.
func Check(config map[string]any) error {
	_, err := parseSettings(config)
	return err
}

// fingerprint reports that the driver works, and whether its tasks have cgroups.
func fingerprint(context.Context) fleet.DriverInfo {
	info := fleet.DriverInfo{
		Detected: true, Healthy: true, HealthDescription: "Healthy",
		Attributes: map[string]string{"driver." + Name: "1"},
	}
	if kind, err := supervised.CgroupVersion(); err != nil {
		info.HealthDescription = fmt.Sprintf("Healthy, but memory and CPU of its tasks are not limited: %v", err)
	} else {
		info.Attributes["driver."+Name+".cgroups"] = kind
	}
	return info
}

// planner makes the processes of tasks.
type planner struct{ deniedEnv []string }

// planTask returns the process of a task: its command with the environment of the agent and of the task.
func (p planner) planTask(_ context.Context, cfg drivers.TaskConfig) (supervised.Process, error) {
	s, err := parseSettings(cfg.Config)
	if err != nil {
		return supervised.Process{}, err
	}
	env := supervised.Environment(os.Environ(), cfg.Env, p.deniedEnv...)
	path, err := supervised.FindProgram(s.command, cfg.Dir, env)
	if err != nil {
		return supervised.Process{}, fmt.Errorf("find command: %w", err)
	}
	process := supervised.Process{
		Path: path, Argv: append([]string{s.command}, s.args...), Env: env, Dir: cfg.Dir, Namespace: cfg.Network.Namespace,
	}
	if s.workDir != "" {
		process.Dir = s.workDir
	}
	if err := process.UseUser(cfg); err != nil {
		return supervised.Process{}, err
	}
	return process, process.UseCgroup(cfg)
}
