// Package exec is the driver "exec": a task is a program of the machine in a container of an OCI runtime, with a root
// file system made of folders of the machine or of an image, and namespaces, cgroups, capabilities and a seccomp profile of its own.
// Edges run it; hubs check config blocks with it. Packages oci and supervised do the work; this package starts no
// goroutine and stores nothing.
package exec

import (
	"context"
	"os"

	"skerry/drivers"
	"skerry/drivers/oci"
	"skerry/drivers/options"
	"skerry/drivers/supervised"
	"skerry/fleet"
)

// Name is the driver's name in job files.
const Name = "exec"

// New makes the driver. It starts nothing.
func New(cfg oci.DriverConfig) (*supervised.Driver, error) {
	isolation, err := oci.New(cfg.Isolation)
	if err != nil {
		return nil, err
	}
	return supervised.New(supervised.Config{
		Name: Name, BootID: cfg.BootID, Log: cfg.Log, Users: true, Check: Check, Capabilities: oci.Capabilities(),
		Build: func(ctx context.Context, task drivers.TaskConfig) (supervised.Process, error) {
			program, err := readProgram(task.Config)
			if err != nil {
				return supervised.Process{}, err
			}
			program.User, program.Env = task.User, supervised.Environment(os.Environ(), task.Env)
			return isolation.Process(ctx, task, program)
		},
		Fingerprint: func(ctx context.Context) fleet.DriverInfo {
			how, err := isolation.Describe(ctx)
			if err != nil {
				return fleet.DriverInfo{HealthDescription: err.Error()}
			}
			info := fleet.DriverInfo{
				Detected: true, Healthy: true, HealthDescription: "Healthy",
				Attributes: map[string]string{"driver." + Name: "1", "driver." + Name + ".runtime": how},
			}
			if err := isolation.CheckFolders(); err != nil {
				info.Healthy, info.HealthDescription = false, err.Error()
			}
			return info
		},
	})
}

// readProgram reads a task's config block. The error names all its problems.
func readProgram(config map[string]any) (oci.Program, error) {
	r := options.Read(config)
	p := oci.Program{Image: r.Text("image"), Args: r.Texts("args")}
	if p.Image == "" {
		p.Command = r.RequiredText("command")
	} else {
		p.Command = r.Text("command")
	}
	oci.ReadIsolation(r, &p)
	return p, r.Err(Name, "it takes command, args, image, work_dir, pid_mode, ipc_mode, cap_add, cap_drop and pids_limit")
}

// Check returns an error for a config block that works on no machine. Hubs check a job with it when it is
// registered.
func Check(config map[string]any) error {
	_, err := readProgram(config)
	return err
}
