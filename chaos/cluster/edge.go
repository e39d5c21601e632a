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

// Edge is the machine of one edge.
type Edge struct {
	Member
	Flags []string   // flags of this edge alone
	Clock clock.File // file that moves its clock; "": the clock cannot be moved
	boot  int        // guarded by mu: number of the current boot
}

// BootEnv is the environment variable that gives an agent its boot id in place of the kernel.
const BootEnv = "SKERRY_BOOT_ID"

// Start starts the agent in the machine's current boot.
func (e *Edge) Start() error { return e.startProcess([]string{BootEnv + "=" + string(e.BootID())}) }

// BootID returns the id of the machine's current boot.
func (e *Edge) BootID() fleet.BootID {
	e.mu.Lock()
	defer e.mu.Unlock()
	return fleet.BootID(fleet.DeriveUUID(e.Dir, e.Name, fmt.Sprint(e.boot)))
}

// PowerCut kills the agent and everything that it started. If the edge has its own disk, data that
// was not synced is lost.
func (e *Edge) PowerCut() error {
	if e.Disk == nil {
		return e.killAllProcesses()
	}
	return e.Disk.PowerCut(e.killAllProcesses)
}

// killAllProcesses kills the agent and all processes below its data directory.
func (e *Edge) killAllProcesses() error {
	e.Kill()
	return proc.KillBelow(e.Dir)
}

// Shutdown stops the agent gracefully, and then kills its tasks.
func (e *Edge) Shutdown() error {
	if err := e.Stop(); err != nil {
		return err
	}
	return proc.KillBelow(e.Dir)
}

// Boot starts the agent in a new boot of the machine, which must be off.
func (e *Edge) Boot() error {
	e.mu.Lock()
	e.boot++
	e.mu.Unlock()
	return e.Start()
}

// Reboot calls PowerCut and then Boot.
func (e *Edge) Reboot() error {
	if err := e.PowerCut(); err != nil {
		return err
	}
	return e.Boot()
}

// Scrap kills all processes of the edge and unmounts its disk. The edge cannot be used again.
func (e *Edge) Scrap() error {
	if err := e.killAllProcesses(); err != nil {
		return err
	}
	return e.detachDisk()
}

// Local returns a client of the agent's local API.
func (e *Edge) Local() *local.Client { return local.NewClient(filepath.Join(e.Dir, "local.sock")) }

// NodeID asks the agent for its node id.
func (e *Edge) NodeID(ctx context.Context) (fleet.NodeID, error) {
	s, err := e.Local().Status(ctx)
	return s.NodeID, err
}
