package engine

import (
	"context"
	"time"

	"skerry/chaos/schedule"
)

// restartDelay is how long a process stays down at least.
const restartDelay = time.Second

// stopUntilHealed is a process that is down: it is started again when the fault is healed,
// soon where it has no duration. A hit says that the process was ended as it was to be.
func stopUntilHealed(ctx context.Context, f schedule.Fault, hits uint64, err error, start func(ctx context.Context) error) (Active, error) {
	a := Done(hits, "")
	if err != nil || f.For > 0 {
		a.Heal = start
		return a, err
	}
	Pause(ctx, restartDelay)
	return a, start(ctx)
}

func killHub(ctx context.Context, p *Faults, hub string, f schedule.Fault) (Active, error) {
	err := p.Hubs.KillHub(ctx, hub, f.Params.Step)
	return stopUntilHealed(ctx, f, 1, err, func(ctx context.Context) error { return p.Hubs.StartHub(ctx, hub) })
}

func pauseHub(ctx context.Context, p *Faults, hub string, _ schedule.Fault) (Active, error) {
	return p.Hubs.PauseHub(ctx, hub)
}

func restoreHubs(ctx context.Context, p *Faults, f schedule.Fault) (Active, error) {
	for _, hub := range p.Topology.Hubs {
		if err := p.Hubs.KillHub(ctx, hub, ""); err != nil {
			return Active{}, err
		}
	}
	p.Users.rewindWantedJobs(f)
	return p.Hubs.RestoreHubs(ctx, f)
}

func killEdge(ctx context.Context, p *Faults, edge string, f schedule.Fault) (Active, error) {
	hit, err := p.Edges.KillEdge(ctx, edge, f.Params.Step)
	return stopUntilHealed(ctx, f, countHit(hit), err, func(ctx context.Context) error { return p.Edges.StartEdge(ctx, edge) })
}

func cutPower(ctx context.Context, p *Faults, edge string, f schedule.Fault) (Active, error) {
	hit, err := p.Edges.CutPower(ctx, edge, f.Params.Step)
	return stopUntilHealed(ctx, f, countHit(hit), err, func(ctx context.Context) error { return p.Edges.BootEdge(ctx, edge) })
}

func countHit(hit bool) uint64 {
	if hit {
		return 1
	}
	return 0
}

func restartEdge(ctx context.Context, p *Faults, edge string, f schedule.Fault) (Active, error) {
	err := p.Edges.StopEdge(ctx, edge)
	return stopUntilHealed(ctx, f, 1, err, func(ctx context.Context) error { return p.Edges.StartEdge(ctx, edge) })
}

func rebootEdge(ctx context.Context, p *Faults, edge string, f schedule.Fault) (Active, error) {
	err := p.Edges.ShutDown(ctx, edge)
	return stopUntilHealed(ctx, f, 1, err, func(ctx context.Context) error { return p.Edges.BootEdge(ctx, edge) })
}

// damageEdge damages an edge's journal while its agent is down. What tears a page is a power
// cut: the machine boots afterwards.
func damageEdge(ctx context.Context, p *Faults, edge string, f schedule.Fault) (Active, error) {
	start := p.Edges.StartEdge
	if f.Kind == schedule.TornPage {
		start = p.Edges.BootEdge
	}
	hits, err := p.Edges.DamageEdge(ctx, edge, f)
	return stopUntilHealed(ctx, f, hits, err, func(ctx context.Context) error { return start(ctx, edge) })
}

func pauseEdge(ctx context.Context, p *Faults, edge string, _ schedule.Fault) (Active, error) {
	return p.Edges.PauseEdge(ctx, edge)
}

func cloneEdge(ctx context.Context, p *Faults, edge string, _ schedule.Fault) (Active, error) {
	return p.Edges.CloneEdge(ctx, edge)
}

func drainEdge(ctx context.Context, p *Faults, edge string, f schedule.Fault) (Active, error) {
	return p.Users.drainEdge(ctx, edge, f), nil
}

func fillDisk(ctx context.Context, p *Faults, member string, _ schedule.Fault) (Active, error) {
	return p.Disks.FillDisk(ctx, member)
}

// slowDisks makes each sync take long, of edges and of hubs.
func slowDisks(ctx context.Context, p *Faults, f schedule.Fault) (Active, error) {
	members := append(p.Topology.EdgesOf(f), p.hubsOf(ctx, f)...)
	return p.injectEach(ctx, f, members, func(ctx context.Context, p *Faults, member string, f schedule.Fault) (Active, error) {
		return p.Disks.SlowDisk(ctx, member, f.Params.Sync)
	})
}

func jumpClock(_ context.Context, p *Faults, edge string, f schedule.Fault) (Active, error) {
	return p.Clocks.MoveClock(edge, f.Params.Jump, f.For == 0)
}

func wakeIn1970(ctx context.Context, p *Faults, edge string, f schedule.Fault) (Active, error) {
	if err := p.Edges.ShutDown(ctx, edge); err != nil {
		return Active{}, err
	}
	a, err := p.Clocks.MoveClock(edge, time.Until(time.Unix(0, 0)), f.For == 0)
	if err != nil {
		return a, err
	}
	Pause(ctx, restartDelay)
	return a, p.Edges.BootEdge(ctx, edge)
}

func crashTasks(ctx context.Context, p *Faults, edge string, f schedule.Fault) (Active, error) {
	return p.Tasks.CrashTasks(ctx, edge, f.Params)
}

func killDriver(_ context.Context, p *Faults, edge string, _ schedule.Fault) (Active, error) {
	return p.Tasks.KillDriver(edge)
}
