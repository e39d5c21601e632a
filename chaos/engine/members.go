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
	err := p.KillHub(ctx, hub, f.Params.Step)
	return stopUntilHealed(ctx, f, 1, err, func(ctx context.Context) error { return p.StartHub(ctx, hub) })
}

func restoreHubs(ctx context.Context, p *Faults, f schedule.Fault) (Active, error) {
	for _, hub := range p.Topology.Hubs {
		if err := p.KillHub(ctx, hub, ""); err != nil {
			return Active{}, err
		}
	}
	p.Users.rewindWantedJobs(f)
	return p.RestoreHubs(ctx, f)
}

func killEdge(ctx context.Context, p *Faults, edge string, f schedule.Fault) (Active, error) {
	hit, err := p.KillEdge(ctx, edge, f.Params.Step)
	return stopUntilHealed(ctx, f, countHit(hit), err, func(ctx context.Context) error { return p.StartEdge(ctx, edge) })
}

func cutPower(ctx context.Context, p *Faults, edge string, f schedule.Fault) (Active, error) {
	hit, err := p.CutPower(ctx, edge, f.Params.Step)
	return stopUntilHealed(ctx, f, countHit(hit), err, func(ctx context.Context) error { return p.BootEdge(ctx, edge) })
}

func countHit(hit bool) uint64 {
	if hit {
		return 1
	}
	return 0
}

func restartEdge(ctx context.Context, p *Faults, edge string, f schedule.Fault) (Active, error) {
	err := p.StopEdge(ctx, edge)
	return stopUntilHealed(ctx, f, 1, err, func(ctx context.Context) error { return p.StartEdge(ctx, edge) })
}

func rebootEdge(ctx context.Context, p *Faults, edge string, f schedule.Fault) (Active, error) {
	err := p.ShutDown(ctx, edge)
	return stopUntilHealed(ctx, f, 1, err, func(ctx context.Context) error { return p.BootEdge(ctx, edge) })
}

// damageEdge damages an edge's journal while its agent is down. What tears a page is a power
// cut: the machine boots afterwards.
func damageEdge(ctx context.Context, p *Faults, edge string, f schedule.Fault) (Active, error) {
	start := p.StartEdge
	if f.Kind == schedule.TornPage {
		start = p.BootEdge
	}
	hits, err := p.DamageEdge(ctx, edge, f)
	return stopUntilHealed(ctx, f, hits, err, func(ctx context.Context) error { return start(ctx, edge) })
}

func drainEdge(ctx context.Context, p *Faults, edge string, f schedule.Fault) (Active, error) {
	return p.Users.drainEdge(ctx, edge, f), nil
}

// slowDisks makes each sync take long, of edges and of hubs.
func slowDisks(ctx context.Context, p *Faults, f schedule.Fault) (Active, error) {
	members := append(p.Topology.EdgesOf(f), p.hubsOf(ctx, f)...)
	return p.injectEach(ctx, f, members, by(Platform.SlowDisk))
}

func jumpClock(_ context.Context, p *Faults, edge string, f schedule.Fault) (Active, error) {
	return p.MoveClock(edge, f.Params.Jump, f.For == 0)
}

func wakeIn1970(ctx context.Context, p *Faults, edge string, f schedule.Fault) (Active, error) {
	if err := p.ShutDown(ctx, edge); err != nil {
		return Active{}, err
	}
	a, err := p.MoveClock(edge, time.Until(time.Unix(0, 0)), f.For == 0)
	if err != nil {
		return a, err
	}
	Pause(ctx, restartDelay)
	return a, p.BootEdge(ctx, edge)
}
