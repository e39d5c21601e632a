package cluster

import (
	"context"
	"fmt"
	"path/filepath"

	"skerry/chaos/proc"
	"skerry/edge/local"
	"skerry/fleet"
)

// Edge is one edge.
type Edge struct {
	member
	boot int // number of its boot
}

// BootEnv names the environment variable that takes the place of the kernel's
// boot id.
const BootEnv = "SKERRY_BOOT_ID"

// Start starts the agent, in the machine's current boot.
func (e *Edge) Start() error {
	id := fleet.DeriveUUID(e.Dir, e.Name, fmt.Sprint(e.boot))
	return e.start([]string{BootEnv + "=" + id})
}

// PowerCut kills the agent and everything that it started.
func (e *Edge) PowerCut() error {
	e.Kill()
	return proc.KillBelow(e.Dir)
}

// Reboot cuts the power and starts the agent in a new boot of the machine.
func (e *Edge) Reboot() error {
	if err := e.PowerCut(); err != nil {
		return err
	}
	e.boot++
	return e.Start()
}

// Local speaks to the agent on its own machine.
func (e *Edge) Local() *local.Client { return local.NewClient(filepath.Join(e.Dir, "local.sock")) }

// NodeID asks the agent which node it is.
func (e *Edge) NodeID(ctx context.Context) (fleet.NodeID, error) {
	s, err := e.Local().Status(ctx)
	return s.NodeID, err
}
