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

// removeBound bounds the removal of an edge's containers: their daemon may just be starting.
const removeBound = 30 * time.Second

// BreakDaemon does to an edge's container daemon, or to its containers, what the fault's kind says. A daemon that
// was ended is started when the fault is healed; without a duration it is started at once. The evidence is that the
// daemon ran, with the number of its containers, or the number of containers that were killed or removed.
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

// healedDaemon returns a fault of an edge's daemon, of which the containers with the processes `before` ran when it
// began. broken is the error of its beginning.
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

// daemonOf returns the container daemon of edge n, from 1: the drivers take turns. The containers of every second
// Docker live on without it.
func (p CampaignConfig) daemonOf(n int) dockertest.Config {
	if len(p.Containers) == 0 {
		return dockertest.Config{}
	}
	turn := (n - 1) / len(p.Containers)
	return dockertest.Config{Name: p.Containers[(n-1)%len(p.Containers)], LiveRestore: turn%2 == 0}
}
