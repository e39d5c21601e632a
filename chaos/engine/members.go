package engine

import (
	"context"
	"time"

	"skerry/chaos/schedule"
)

// restartDelay is the least time for which a process stays down.
const restartDelay = time.Second

// stopUntilHealed returns the fault of a process that was just ended: start runs when the fault is healed, or
// after restartDelay where it has no duration. hits is 1 where the process ended as planned; err is the error
// of ending it.
func stopUntilHealed(ctx context.Context, f schedule.Fault, hits uint64, err error, start func(ctx context.Context) error) (Active, error) {
	a := Done(hits, "")
	if err != nil || f.For > 0 {
		a.Heal = start
		return a, err
	}
	Pause(ctx, restartDelay)
	return a, start(ctx)
}

// killHub kills a hub, at a step of its disk protocol where the fault names one, until the fault is healed.
func killHub(ctx context.Context, p *Faults, hub string, f schedule.Fault) (Active, error) {
	err := p.KillHub(ctx, hub, f.Params.Step)
	return stopUntilHealed(ctx, f, 1, err, func(ctx context.Context) error { return p.StartHub(ctx, hub) })
}

// restoreHubs kills all hubs, puts them back to the copy that was made before, and starts them. Users then want
// only the jobs of that copy.
func restoreHubs(ctx context.Context, p *Faults, f schedule.Fault) (Active, error) {
	for _, hub := range p.Topology.Hubs {
		if err := p.KillHub(ctx, hub, ""); err != nil {
			return Active{}, err
		}
	}
	p.Users.rewindWantedJobs(f)
	p.Users.Access.reviveRevoked()
	return p.RestoreHubs(ctx, f)
}

// killEdge kills an edge's agent, at a step of its disk protocol where the fault names one, until the fault is
// healed. It hits where the agent reached that step.
func killEdge(ctx context.Context, p *Faults, edge string, f schedule.Fault) (Active, error) {
	hit, err := p.KillEdge(ctx, edge, f.Params.Step)
	return stopUntilHealed(ctx, f, countHit(hit), err, func(ctx context.Context) error { return p.StartEdge(ctx, edge) })
}

// cutPower ends an edge's machine without a sync, at a step where the fault names one, and boots it when the
// fault is healed. It hits where the agent reached that step.
func cutPower(ctx context.Context, p *Faults, edge string, f schedule.Fault) (Active, error) {
	hit, err := p.CutPower(ctx, edge, f.Params.Step)
	return stopUntilHealed(ctx, f, countHit(hit), err, func(ctx context.Context) error { return p.BootEdge(ctx, edge) })
}

// countHit returns 1 for a hit, else 0.
func countHit(hit bool) uint64 {
	if hit {
		return 1
	}
	return 0
}

// restartEdge stops an edge's agent in good order, and starts it when the fault is healed.
func restartEdge(ctx context.Context, p *Faults, edge string, f schedule.Fault) (Active, error) {
	err := p.StopEdge(ctx, edge)
	return stopUntilHealed(ctx, f, 1, err, func(ctx context.Context) error { return p.StartEdge(ctx, edge) })
}

// rebootEdge shuts an edge's machine down in good order, and boots it when the fault is healed.
func rebootEdge(ctx context.Context, p *Faults, edge string, f schedule.Fault) (Active, error) {
	err := p.ShutDown(ctx, edge)
	return stopUntilHealed(ctx, f, 1, err, func(ctx context.Context) error { return p.BootEdge(ctx, edge) })
}

// damageEdge damages an edge's journal while its agent is down, and starts the agent when the fault is healed.
// A torn page comes from a power cut: the machine then boots.
func damageEdge(ctx context.Context, p *Faults, edge string, f schedule.Fault) (Active, error) {
	start := p.StartEdge
	if f.Kind == schedule.TornPage {
		start = p.BootEdge
	}
	hits, err := p.DamageEdge(ctx, edge, f)
	return stopUntilHealed(ctx, f, hits, err, func(ctx context.Context) error { return start(ctx, edge) })
}

// drainEdge drains an edge through the HTTP API until the fault is healed.
func drainEdge(ctx context.Context, p *Faults, edge string, f schedule.Fault) (Active, error) {
	return p.Users.drainEdge(ctx, edge, f), nil
}

// slowDisks makes each sync of the fault's edges and hubs slow until the fault is healed.
func slowDisks(ctx context.Context, p *Faults, f schedule.Fault) (Active, error) {
	members := append(p.Topology.EdgesOf(f), p.hubsOf(ctx, f)...)
	return p.injectEach(ctx, f, members, callPlatform(Platform.SlowDisk))
}

// jumpClock moves an edge's wall clock. A fault without a duration is never healed.
func jumpClock(_ context.Context, p *Faults, edge string, f schedule.Fault) (Active, error) {
	return p.MoveClock(edge, f.Params.Jump, f.For == 0)
}

// wakeIn1970 shuts an edge's machine down, sets its wall clock to 1970, and boots it. Without a duration the
// clock stays wrong.
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
