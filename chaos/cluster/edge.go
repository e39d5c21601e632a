package cluster

import (
	"context"
	"fmt"
	"path/filepath"

	"skerry/chaos/clock"
	"skerry/chaos/proc"
	"skerry/edge/local"
	"skerry/fleet"
)

// Edge is one edge.
type Edge struct {
	Member
	Flags []string   // of its own
	Clock clock.File // "": its clock cannot be moved
	boot  int        // guarded by mu: number of its boot
}

// BootEnv names the environment variable that takes the place of the kernel's
// boot id.
const BootEnv = "SKERRY_BOOT_ID"

// Start starts the agent, in the machine's current boot.
func (e *Edge) Start() error { return e.startProcess([]string{BootEnv + "=" + string(e.BootID())}) }

// BootID is what the machine's current boot is known by.
func (e *Edge) BootID() fleet.BootID {
	e.mu.Lock()
	defer e.mu.Unlock()
	return fleet.BootID(fleet.DeriveUUID(e.Dir, e.Name, fmt.Sprint(e.boot)))
}

// PowerCut is a Machine's.
func (e *Edge) PowerCut() error {
	if e.Disk == nil {
		return e.killAllProcesses()
	}
	return e.Disk.PowerCut(e.killAllProcesses)
}

func (e *Edge) killAllProcesses() error {
	e.Kill()
	return proc.KillBelow(e.Dir)
}

// Shutdown takes the machine down in good order.
func (e *Edge) Shutdown() error {
	if err := e.Stop(); err != nil {
		return err
	}
	return proc.KillBelow(e.Dir)
}

// Boot starts the agent in a new boot of the machine, which is off.
func (e *Edge) Boot() error {
	e.mu.Lock()
	e.boot++
	e.mu.Unlock()
	return e.Start()
}

// Reboot cuts the power and starts the agent in a new boot of the machine.
func (e *Edge) Reboot() error {
	if err := e.PowerCut(); err != nil {
		return err
	}
	return e.Boot()
}

// Scrap ends everything that runs on the edge, and takes its disk out.
func (e *Edge) Scrap() error {
	if err := e.killAllProcesses(); err != nil {
		return err
	}
	return e.detachDisk()
}

// Local speaks to the agent on its own machine.
func (e *Edge) Local() *local.Client { return local.NewClient(filepath.Join(e.Dir, "local.sock")) }

// NodeID asks the agent which node it is.
func (e *Edge) NodeID(ctx context.Context) (fleet.NodeID, error) {
	s, err := e.Local().Status(ctx)
	return s.NodeID, err
}
