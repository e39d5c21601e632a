package oci

import (
	"path"

	"skerry/drivers"
	"skerry/drivers/options"
	"skerry/fleet"
)

// Capabilities returns the abilities of a task in a container.
func Capabilities() drivers.Capabilities {
	return drivers.Capabilities{
		FSIsolation: drivers.FSImage, Mounts: true, Names: true, HidesEnv: true,
		Networks: []string{fleet.NetworkHost, fleet.NetworkBridge, fleet.NetworkNone, drivers.NetworkCNI},
	}
}

// maxPIDs is the largest pid of the kernel.
const maxPIDs = 1 << 22

// ReadIsolation reads the keys of a config block that control a task's isolation.
func ReadIsolation(r *options.Reader, p *Program) {
	p.WorkDir, p.PIDMode, p.IPCMode = r.Text("work_dir"), r.Text("pid_mode"), r.Text("ipc_mode")
	p.CapAdd, p.CapDrop = r.Texts("cap_add"), r.Texts("cap_drop")
	p.PIDs = r.Int("pids_limit", 0, 1, maxPIDs)
	if p.WorkDir != "" && !path.IsAbs(p.WorkDir) {
		r.Refuse("work_dir must be an absolute path in the task's file system, not %q", p.WorkDir)
	}
	for key, mode := range map[string]string{"pid_mode": p.PIDMode, "ipc_mode": p.IPCMode} {
		if mode != "" && mode != ModePrivate && mode != ModeHost {
			r.Refuse("%s must be private or host, not %q", key, mode)
		}
	}
	if err := CheckCapabilities(p.CapAdd, p.CapDrop); err != nil {
		r.Refuse("%w", err)
	}
}
