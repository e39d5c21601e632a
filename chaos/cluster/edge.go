package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"skerry/chaos/clock"
	"skerry/chaos/proc"
	"skerry/drivers/docker/dockertest"
	"skerry/edge/local"
	"skerry/edge/secretdirs"
	"skerry/fleet"
	"skerry/internal/tmpfs"
)

// Edge is the machine of one edge.
type Edge struct {
	Member
	Flags []string   // flags of this edge alone
	Clock clock.File // file that moves its clock; "": the clock cannot be moved
	boot  int        // guarded by mu: number of the current boot
	// Daemon runs containers on the machine; nil: nothing does.
	Daemon *dockertest.Daemon
	image  string // the name of an image of busybox that Daemon has
}

// BootEnv is the environment variable that gives an agent its boot id in place of the kernel.
const BootEnv = "SKERRY_BOOT_ID"

// Start starts the agent in the machine's current boot. It waits until a power cut is over.
func (e *Edge) Start() error {
	return e.WithPower(func() error { return e.startPowered([]string{BootEnv + "=" + string(e.BootID())}) })
}

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

// killAllProcesses kills the agent, all processes below its data directory, and the containers with their daemon.
func (e *Edge) killAllProcesses() error {
	e.Kill()
	// The daemon dies first, so that it does not record the ends of its containers.
	if err := e.killContainers(); err != nil {
		return err
	}
	return e.killTasks()
}

// killTasks ends the boot: it kills all processes below the data directory and removes the secrets folders from memory. An agent that is
// started now, by whatever fault, is in another boot.
func (e *Edge) killTasks() error {
	e.mu.Lock()
	e.boot++
	e.mu.Unlock()
	return errors.Join(proc.KillBelow(e.Dir), tmpfs.DetachBelow(e.Dir, secretdirs.SourcePrefix))
}

// killContainers kills the container daemon and its containers.
func (e *Edge) killContainers() error {
	if e.Daemon == nil {
		return nil
	}
	return e.Daemon.CutPower()
}

// Shutdown stops the agent gracefully, and then kills its tasks and stops the container daemon.
func (e *Edge) Shutdown() error {
	if err := e.Stop(); err != nil {
		return err
	}
	if e.Daemon != nil {
		e.Daemon.Stop(syscall.SIGTERM)
	}
	if err := e.killContainers(); err != nil {
		return err
	}
	return e.killTasks()
}

// Boot starts the agent of a machine that is off, and then the container daemon: the agent has to find it later.
func (e *Edge) Boot() error {
	if err := e.Start(); err != nil {
		return err
	}
	return e.StartDaemon(context.Background())
}

// daemonBound bounds the start of a container daemon, which a fault may end or stop meanwhile.
const daemonBound = 4 * time.Minute

// StartDaemon starts the container daemon unless it runs, waits until it answers, and gives it the image if it has
// none. It starts again if the daemon ends meanwhile. It does nothing for an edge without one.
func (e *Edge) StartDaemon(ctx context.Context) error {
	if e.Daemon == nil {
		return nil
	}
	return Eventually(ctx, daemonBound, "the container daemon of "+e.Name+" has its image", func(ctx context.Context) string {
		err := e.Daemon.Start(ctx)
		if err == nil {
			err = e.Daemon.ImportBusybox(ctx, e.image)
		}
		if err != nil {
			return err.Error()
		}
		return ""
	})
}

// Reboot calls PowerCut and then Boot.
func (e *Edge) Reboot() error {
	if err := e.PowerCut(); err != nil {
		return err
	}
	return e.Boot()
}

// Scrap kills all processes of the edge, removes its container daemon and unmounts its disk. The edge cannot be used again.
func (e *Edge) Scrap() error {
	err := e.killAllProcesses()
	if e.Daemon != nil {
		err = errors.Join(err, e.Daemon.Remove())
	}
	if err != nil {
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
