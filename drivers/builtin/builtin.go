// Package builtin makes the task drivers of this release. The edge runs them; the hub and the commands
// that read job files know their names and check their config blocks. It starts no goroutine.
package builtin

import (
	"cmp"
	"fmt"
	"log/slog"
	"path/filepath"

	"skerry/drivers"
	"skerry/drivers/docker"
	"skerry/drivers/exec"
	"skerry/drivers/java"
	"skerry/drivers/oci"
	"skerry/drivers/qemu"
	"skerry/drivers/rawexec"
	"skerry/drivers/sim"
	"skerry/drivers/supervised"
	"skerry/drivers/wasm"
	"skerry/fleet/validate"
	"skerry/internal/programs"
)

// Config of the drivers of an edge. Log is required.
type Config struct {
	BootID  string // the kernel's boot id; "": read from the kernel
	DataDir string // of the edge
	// DockerSocket and PodmanSocket are the paths of the daemons' sockets; "": the defaults.
	DockerSocket, PodmanSocket string
	Containers                 docker.Permissions
	// TotalMHz returns the machine's processor capacity; nil: unknown.
	TotalMHz func() int
	// DeniedEnv are variables of the agent's environment that no task of raw_exec gets.
	DeniedEnv []string
	Isolation oci.Config // containers of exec and java
	Machines  qemu.Permissions
	// Programs keeps what programs answered; nil: in memory.
	Programs *programs.Answers
	Log      *slog.Logger
}

// New makes the drivers that an edge can run, by their names in job files. It starts nothing.
func New(cfg Config) (map[string]drivers.Driver, error) {
	dir, err := filepath.Abs(cfg.DataDir)
	if err != nil {
		return nil, fmt.Errorf("find data directory: %w", err)
	}
	raw, err := rawexec.New(rawexec.Config{BootID: cfg.BootID, Log: cfg.Log, DeniedEnv: cfg.DeniedEnv})
	if err != nil {
		return nil, err
	}
	cfg.Isolation.Programs = cfg.Programs
	withImages := cfg.Isolation
	withImages.Images = filepath.Join(dir, "images", exec.Name)
	isolated, err := exec.New(oci.DriverConfig{BootID: cfg.BootID, Log: cfg.Log, Isolation: withImages})
	if err != nil {
		return nil, err
	}
	jvm, err := java.New(oci.DriverConfig{BootID: cfg.BootID, Log: cfg.Log, Isolation: cfg.Isolation})
	if err != nil {
		return nil, err
	}
	all := map[string]drivers.Driver{
		rawexec.Name: raw, exec.Name: isolated, java.Name: jvm, sim.Name: sim.New(sim.NewSimMachine()),
	}
	if all[wasm.Name], err = wasm.New(wasm.Config{BootID: cfg.BootID, CacheDir: filepath.Join(dir, "wasm"), Log: cfg.Log}); err != nil {
		return nil, err
	}
	if all[qemu.Name], err = qemu.New(qemu.Config{BootID: cfg.BootID, Permissions: cfg.Machines, Programs: cfg.Programs, Log: cfg.Log}); err != nil {
		return nil, err
	}
	for name, socket := range map[string]string{
		docker.Docker: cmp.Or(cfg.DockerSocket, docker.DefaultDockerSocket),
		docker.Podman: cmp.Or(cfg.PodmanSocket, docker.DefaultPodmanSocket),
	} {
		if all[name], err = docker.New(docker.Config{
			Name: name, Socket: socket, DataDir: cfg.DataDir, BootID: cfg.BootID, Permissions: cfg.Containers,
			TotalMHz: cfg.TotalMHz, Programs: cfg.Programs, Log: cfg.Log,
		}); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// RunTaskProcess must be called first in main. It returns at once, unless a driver started this process to run or
// to supervise a task: then it does that, and ends the process.
func RunTaskProcess() {
	supervised.Supervise()
	wasm.RunModule()
}

// Names returns the names of the drivers that a job may name.
func Names() []string {
	return []string{rawexec.Name, exec.Name, java.Name, sim.Name, docker.Docker, docker.Podman, wasm.Name, qemu.Name}
}

// Isolated returns the names of the drivers whose tasks always have a file system of their own: a command in such a task
// cannot do what the edge can. Tasks of java have one on some machines alone.
func Isolated() []string {
	return []string{exec.Name, docker.Docker, docker.Podman, wasm.Name, qemu.Name}
}

// Known returns what a hub has to know of the drivers.
func Known() validate.KnownDrivers {
	return validate.KnownDrivers{Names: Names(), Isolated: Isolated(), Configs: Configs()}
}

// Configs returns, by driver, the functions with which hubs check the config blocks of tasks before any edge
// does. The block of a simulated task may contain ${…}, so only the edge checks it.
func Configs() validate.ConfigChecks {
	return validate.ConfigChecks{
		rawexec.Name: rawexec.Check, exec.Name: exec.Check, java.Name: java.Check,
		docker.Docker: docker.CheckDocker, docker.Podman: docker.CheckPodman, wasm.Name: wasm.Check,
		qemu.Name: qemu.Check,
	}
}
