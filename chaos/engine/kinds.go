package engine

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/schedule"
)

// kind is the function that injects faults of one kind, and the effects by which checkers excuse what they see.
type kind struct {
	inject  func(ctx context.Context, p *Faults, f schedule.Fault) (Active, error)
	effects []check.Effect
}

// kinds has each kind of fault; a test compares it with the kinds of chaos/schedule.
var kinds = map[schedule.Kind]kind{
	schedule.LinkCut:       {cutLinks, []check.Effect{check.Severs}},
	schedule.MassRejoin:    {cutLinks, []check.Effect{check.Severs}},
	schedule.Flapping:      {flapLinks, []check.Effect{check.Impairs}},
	schedule.OfflineOn:     {flapLinks, []check.Effect{check.Impairs}},
	schedule.LinkProfile:   {shapeLinks, []check.Effect{check.Impairs}},
	schedule.NATRebind:     {onEdges(callPlatform(Platform.RebindEdge)), []check.Effect{check.Impairs}},
	schedule.AddressChange: {onEdges(callPlatform(Platform.MoveEdge)), []check.Effect{check.Impairs}},
	schedule.CertExpired:   {cutUntilExpired, []check.Effect{check.Severs}},

	schedule.HubKill:     {onHubs(killHub), []check.Effect{check.Halts}},
	schedule.LeaderKill:  {onHubs(killHub), []check.Effect{check.Halts}},
	schedule.HubPause:    {onHubs(callPlatform(Platform.PauseHub)), []check.Effect{check.Halts}},
	schedule.HubDiskFull: {onHubs(callPlatform(Platform.FillDisk)), []check.Effect{check.Chokes, check.Halts}},
	schedule.MinorityCut: {cutHubs, []check.Effect{check.Severs}},
	schedule.HubPart:     {partHubs, []check.Effect{check.Severs}},
	schedule.MajorityCut: {cutMajority, []check.Effect{check.Severs}},
	schedule.Restore:     {restoreHubs, []check.Effect{check.Rewinds, check.Halts}},

	schedule.EdgeKill:    {onEdges(killEdge), []check.Effect{check.Halts}},
	schedule.EdgePause:   {onEdges(callPlatform(Platform.PauseEdge)), []check.Effect{check.Halts}},
	schedule.EdgeRestart: {onEdges(restartEdge), []check.Effect{check.Halts}},
	schedule.EdgeReboot:  {onEdges(rebootEdge), []check.Effect{check.Halts, check.Reboots}},
	schedule.PowerCut:    {onEdges(cutPower), []check.Effect{check.Halts, check.Reboots}},
	schedule.TornPage:    {onEdges(damageEdge), []check.Effect{check.Halts, check.Reboots, check.Damages}},
	schedule.BitFlip:     {onEdges(damageEdge), []check.Effect{check.Halts, check.Damages}},
	schedule.DiskFull:    {onEdges(callPlatform(Platform.FillDisk)), []check.Effect{check.Chokes}},
	schedule.SlowDisk:    {slowDisks, []check.Effect{check.Chokes}},
	schedule.ClockJump:   {onEdges(jumpClock), []check.Effect{check.MovesTime}},
	schedule.Clock1970:   {onEdges(wakeIn1970), []check.Effect{check.MovesTime, check.Halts, check.Reboots}},
	schedule.Clone:       {onEdges(callPlatform(Platform.CloneEdge)), []check.Effect{check.Clones, check.Halts}},
	schedule.CrashLoop:   {onEdges(callPlatform(Platform.CrashTasks)), []check.Effect{check.EndsTasks}},
	schedule.DriverDead:  {onEdges(callPlatform(Platform.KillDriver)), []check.Effect{check.EndsTasks}},

	schedule.DaemonKill:      {onEdges(callPlatform(Platform.BreakDaemon)), []check.Effect{check.EndsTasks}},
	schedule.DaemonPause:     {onEdges(callPlatform(Platform.BreakDaemon)), []check.Effect{check.EndsTasks}},
	schedule.DaemonRestart:   {onEdges(callPlatform(Platform.BreakDaemon)), []check.Effect{check.EndsTasks}},
	schedule.ContainersLost:  {onEdges(callPlatform(Platform.BreakDaemon)), []check.Effect{check.EndsTasks}},
	schedule.ContainerKill:   {onEdges(callPlatform(Platform.BreakDaemon)), []check.Effect{check.EndsTasks}},
	schedule.ContainerRemove: {onEdges(callPlatform(Platform.BreakDaemon)), []check.Effect{check.EndsTasks}},

	schedule.Drain:       {onEdges(drainEdge), nil},
	schedule.KeyRotate:   {rotateKeys, nil},
	schedule.CARotate:    {rotateCA, nil},
	schedule.TokenRevoke: {revokeToken, nil},
	schedule.NodeRevoke: {onEdges(revokeEdge), []check.Effect{
		check.Revokes, check.Severs, check.Damages, check.Halts, check.Reboots,
	}},
	schedule.SiteCode:     {onEdges(useSiteCode), nil},
	schedule.LocalStop:    {onEdges(stopOnSite), nil},
	schedule.LocalRestart: {onEdges(restartOnSite), nil},
}

// effectsOf returns the effects of a kind of fault on this platform.
func (p *Faults) effectsOf(k schedule.Kind) []check.Effect {
	if here, ok := p.Effects[k]; ok {
		return here
	}
	return kinds[k].effects
}

// injectFault injects a fault of any kind. After an error the result may still have a part to heal.
func (p *Faults) injectFault(ctx context.Context, f schedule.Fault) (Active, error) {
	k, ok := kinds[f.Kind]
	if !ok {
		return Active{}, fmt.Errorf("inject %s: unknown kind of fault", f.Kind)
	}
	a, err := k.inject(ctx, p, f)
	if err != nil {
		err = fmt.Errorf("inject %s on %v: %w", f.Kind, f.Targets, err)
	}
	return a, err
}

// injectOne injects a fault on the member with a name.
type injectOne func(ctx context.Context, p *Faults, name string, f schedule.Fault) (Active, error)

// callPlatform returns an injectOne that calls a method of the platform.
func callPlatform(method func(Platform, context.Context, string, schedule.Fault) (Active, error)) injectOne {
	return func(ctx context.Context, p *Faults, name string, f schedule.Fault) (Active, error) {
		return method(p.Platform, ctx, name, f)
	}
}

// onEdges returns a function that injects a fault on each edge that the fault names.
func onEdges(inject injectOne) func(context.Context, *Faults, schedule.Fault) (Active, error) {
	return func(ctx context.Context, p *Faults, f schedule.Fault) (Active, error) {
		return p.injectEach(ctx, f, p.Topology.EdgesOf(f), inject)
	}
}

// onHubs returns a function that injects a fault on each hub that the fault names. The leader is the one at
// that time; without a leader it is left out.
func onHubs(inject injectOne) func(context.Context, *Faults, schedule.Fault) (Active, error) {
	return func(ctx context.Context, p *Faults, f schedule.Fault) (Active, error) {
		return p.injectEach(ctx, f, p.hubsOf(ctx, f), inject)
	}
}

// injectEach injects a fault on each named member, one after another, and combines the results. It stops at the
// first error, and then returns what was injected so far.
func (p *Faults) injectEach(ctx context.Context, f schedule.Fault, names []string, inject injectOne) (Active, error) {
	var all []Active
	for _, name := range names {
		a, err := inject(ctx, p, name, f)
		if a.Evidence != nil {
			all = append(all, a)
		}
		if err != nil {
			return Combine(all), err
		}
	}
	return Combine(all), nil
}

// hubsOf returns the names of the hubs that a fault affects, with the present leader in place of TargetLeader.
// It calls the platform to find it.
func (p *Faults) hubsOf(ctx context.Context, f schedule.Fault) []string {
	var names []string
	for _, name := range p.Topology.HubsOf(f) {
		if name == schedule.TargetLeader {
			name = p.LeadingHub(ctx)
		}
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// randomOf returns the source of a fault's random choices, the same for the same fault and Seed.
func (p *Faults) randomOf(f schedule.Fault) *rand.Rand { return Random(p.Seed, f) }

// Random returns a source for the random choices of a fault. It depends only on the run's seed and on the
// fault's kind, time and targets.
func Random(seed uint64, f schedule.Fault) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprint(h, f.Kind, f.At, f.Targets)
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// cutLinks cuts the fault's edges off from the hubs, in the direction that its parameters have.
func cutLinks(_ context.Context, p *Faults, f schedule.Fault) (Active, error) {
	return p.CutEdges(p.Topology.EdgesOf(f), f.Params)
}

// flapLinks cuts and heals the links of the fault's edges by turns, in a goroutine that runs until Heal.
// OfflineOn has fixed phases, other kinds random ones.
func flapLinks(ctx context.Context, p *Faults, f schedule.Fault) (Active, error) {
	edges := p.Topology.EdgesOf(f)
	ctx, stop := context.WithCancel(ctx)
	var hits atomic.Uint64
	ended := make(chan error, 1)
	rng := p.randomOf(f)
	phase := func(fixed time.Duration) time.Duration {
		if f.Kind == schedule.OfflineOn {
			return fixed
		}
		return f.Params.Phases.Shortest + time.Duration(rng.Int64N(int64(f.Params.Phases.Longest-f.Params.Phases.Shortest)+1))
	}
	go func() {
		var err error
		for ctx.Err() == nil && err == nil {
			var cut Active
			if cut, err = p.CutEdges(edges, schedule.Params{Way: schedule.WayBoth}); err != nil {
				break
			}
			Pause(ctx, phase(f.Params.Off))
			err = cut.Heal(context.WithoutCancel(ctx))
			n, _ := cut.Evidence()
			hits.Add(n)
			Pause(ctx, phase(f.Params.On))
		}
		ended <- err
	}()
	return Active{
		Heal:     func(context.Context) error { stop(); return <-ended },
		Evidence: Counted(hits.Load),
	}, nil
}

// shapeLinks gives the links of the fault's edges a profile: delay, loss, bandwidth.
func shapeLinks(_ context.Context, p *Faults, f schedule.Fault) (Active, error) {
	return p.ShapeEdges(p.Topology.EdgesOf(f), f.Params.Profile)
}

// cutHubs cuts the fault's hubs off from everyone.
func cutHubs(ctx context.Context, p *Faults, f schedule.Fault) (Active, error) {
	return p.CutHubs(p.hubsOf(ctx, f))
}

// partHubs cuts the fault's hubs off from the other hubs only.
func partHubs(ctx context.Context, p *Faults, f schedule.Fault) (Active, error) {
	return p.PartHubs(p.hubsOf(ctx, f))
}

// cutMajority cuts links between hubs until no hub reaches a majority.
func cutMajority(_ context.Context, p *Faults, _ schedule.Fault) (Active, error) {
	return p.CutMajority()
}
