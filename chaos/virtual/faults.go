package virtual

import (
	"context"
	"slices"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/engine"
	"skerry/chaos/schedule"
)

// newFaults returns the player of the run's faults, which calls the run as its platform.
func (r *run) newFaults() *engine.Faults {
	return &engine.Faults{
		Platform: r, Users: r.users,
		Topology: r.s.Topology, Targets: r.targetNames, Seed: r.s.Seed, AwaitEvidence: awaitEcho, Observe: r.judgeAndRecord,
		Began: func(schedule.Fault) { r.expect.CountFaultBegin() },
		Ended: func(f schedule.Fault, over time.Time, hits uint64, _ string) {
			r.expect.CountFaultEnd(f, over.Sub(r.began), hits)
		},
	}
}

// echo is the time after a fault without duration in which its effect may appear.
const echo = 45 * time.Second

// awaitEcho waits for the effect of a fault without duration whose effect appears late.
func awaitEcho(ctx context.Context, f schedule.Fault, a engine.Active) {
	if f.For == 0 && a.Late {
		engine.Pause(ctx, echo)
	}
}

// targetNames returns the names of the members that a fault hits, each once. It replaces
// TargetLeader by the current leader, if there is one.
func (r *run) targetNames(f schedule.Fault) []string {
	names := r.s.Topology.EdgesOf(f)
	for _, name := range r.s.Topology.HubsOf(f) {
		if name == schedule.TargetLeader {
			name = r.LeadingHub(context.Background())
		}
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// changedDisk returns an active fault of a disk, which heal ends. Its evidence is the number of
// disk steps that failed or waited since.
func changedDisk(d *disk, heal func(ctx context.Context) error) engine.Active {
	before := d.Hits()
	return engine.Active{Heal: heal, Evidence: engine.Counted(func() uint64 { return uint64(d.Hits() - before) })}
}

// FillDisk fills the disk of a member. When the fault ends, it starts a hub that gave up again.
func (r *run) FillDisk(_ context.Context, member string, _ schedule.Fault) (engine.Active, error) {
	d := r.diskOf(member)
	a := changedDisk(d, func(ctx context.Context) error {
		d.Fill(false)
		if r.c.Hub(member) == nil {
			return nil
		}
		engine.Pause(ctx, time.Second) // until a process that gave up has ended
		return r.StartHub(ctx, member)
	})
	d.Fill(true)
	return a, nil
}

// SlowDisk makes each disk step of a member take f.Params.Sync.
func (r *run) SlowDisk(_ context.Context, member string, f schedule.Fault) (engine.Active, error) {
	d := r.diskOf(member)
	a := changedDisk(d, func(context.Context) error { d.Slow(0); return nil })
	d.Slow(f.Params.Sync)
	return a, nil
}

// diskOf returns the disk of the hub or edge of that name.
func (r *run) diskOf(member string) *disk {
	if h := r.c.Hub(member); h != nil {
		return &h.Disk
	}
	return &r.c.Edge(member).Disk
}

// MoveClock changes an edge's wall clock. Without stays, healing sets it right. The evidence is the
// number of times that the agent read the clock.
func (r *run) MoveClock(edge string, by time.Duration, stays bool) (engine.Active, error) {
	e := r.c.Edge(edge)
	e.Clock.Jump(by)
	before := e.Clock.asked.Load()
	a := engine.Active{Evidence: engine.Counted(func() uint64 { return e.Clock.asked.Load() - before }), Late: true}
	if !stays {
		a.Heal = func(context.Context) error { e.Clock.Right(); return nil }
	}
	return a, nil
}

// observeProcess records that the process of a member began or ended; `what` is check.ProcessStart or another of its kinds.
func (r *run) observeProcess(name string, edge bool, what string) {
	p := check.Process{Name: name, Edge: edge, What: what}
	if edge && what == check.ProcessStart {
		p.Boot = r.c.Edge(name).BootID()
		r.forgetVariables(name)
	}
	r.judgeAndRecord(check.Observation{Process: &p})
}
