package real

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	"skerry/chaos/cluster"
	"skerry/chaos/engine"
	"skerry/chaos/schedule"
	"skerry/drivers/docker/dockertest"
)

// needDaemons are the kinds of fault that need edges with container daemons.
var needDaemons = []schedule.Kind{
	schedule.DaemonKill, schedule.DaemonPause, schedule.DaemonRestart,
	schedule.ContainersLost, schedule.ContainerKill, schedule.ContainerRemove,
}

// removeBound bounds the removal of an edge's containers, whose daemon may be starting.
const removeBound = 30 * time.Second

// ReplaceEdge returns engine.ErrUnsupported: no edge is revoked on real processes.
func (p platform) ReplaceEdge(context.Context, string) error { return engine.ErrUnsupported }

// BreakDaemon breaks an edge's container daemon or its containers, as the fault's kind says. Healing starts a daemon
// that was ended; without a duration it is started at once. The evidence is a daemon that ran, with the number of its
// containers, or the number of killed or removed containers.
func (p platform) BreakDaemon(ctx context.Context, edge string, f schedule.Fault) (engine.Active, error) {
	e := p.s.fleet.Edge(edge)
	d := e.Daemon
	if d == nil {
		return engine.Done(0, edge+": it has no container daemon"), nil
	}
	before, err := d.FirstProcesses()
	if err != nil {
		return engine.Active{}, err
	}
	if !d.Runs() {
		return engine.Done(0, edge+": its machine is off"), nil
	}
	switch f.Kind {
	case schedule.ContainerKill:
		killed, err := d.KillContainers()
		return engine.Done(uint64(killed), fmt.Sprintf("%s: %d containers of %s killed", edge, killed, d.Name)), err
	case schedule.ContainerRemove:
		ctx, cancel := context.WithTimeout(ctx, removeBound)
		defer cancel()
		removed, err := d.RemoveContainers(ctx) // the daemon may be down with its machine, and the agent may remove containers
		return engine.Done(uint64(removed), fmt.Sprintf("%s: %d containers of %s removed (%v)", edge, removed, d.Name, err)), nil
	case schedule.ContainersLost:
		err = d.LoseContainers()
	case schedule.DaemonPause:
		err = d.Signal(syscall.SIGSTOP)
	case schedule.DaemonRestart:
		d.Stop(syscall.SIGTERM)
	default:
		d.Stop(syscall.SIGKILL)
	}
	return healedDaemon(ctx, e, f, before, err)
}

// healedDaemon returns the active fault of an edge's daemon. before are the processes of its containers when the fault
// began, and broken is the error of that beginning.
func healedDaemon(ctx context.Context, e *cluster.Edge, f schedule.Fault, before []int, broken error) (engine.Active, error) {
	d, outlived := e.Daemon, 0
	a := engine.Active{
		Heal: func(ctx context.Context) error {
			now, err := d.FirstProcesses()
			for _, pid := range before {
				if slices.Contains(now, pid) {
					outlived++
				}
			}
			if err != nil {
				return err
			}
			if f.Kind == schedule.DaemonPause {
				_ = d.Signal(syscall.SIGCONT) // it may have ended with its machine
			}
			return e.StartDaemon(ctx)
		},
		Evidence: func() (uint64, string) {
			return uint64(max(1, len(before))), fmt.Sprintf("%s: %d of %d containers of %s ran on without it", e.Name, outlived, len(before), d.Name)
		},
	}
	if broken != nil || f.For > 0 {
		return a, broken
	}
	heal := a.Heal
	a.Heal = nil
	return a, heal(ctx)
}

// campaignImage is the image of all container tasks.
const campaignImage = "localhost/skerry-chaos:1"

// ContainerDrivers returns the drivers of containers whose daemons can run on this machine.
func ContainerDrivers() []string {
	var drivers []string
	for _, name := range []string{"docker", "podman"} {
		if dockertest.Missing(name) == nil {
			drivers = append(drivers, name)
		}
	}
	return drivers
}

// UsesContainers reports whether a schedule has jobs or faults that need container daemons.
func UsesContainers(s schedule.Schedule) bool {
	return slices.ContainsFunc(s.Jobs, func(j schedule.Job) bool { return j.Driver != "" }) ||
		slices.ContainsFunc(s.Faults, func(f schedule.Fault) bool { return slices.Contains(needDaemons, f.Kind) })
}

// daemonOf returns the container daemon of edge n, from 1: the drivers alternate. The containers of every second
// Docker daemon outlive it.
func (p CampaignConfig) daemonOf(n int) dockertest.Config {
	if len(p.Containers) == 0 {
		return dockertest.Config{}
	}
	turn := (n - 1) / len(p.Containers)
	return dockertest.Config{Name: p.Containers[(n-1)%len(p.Containers)], LiveRestore: turn%2 == 0}
}
