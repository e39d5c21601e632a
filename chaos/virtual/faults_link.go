package virtual

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/fabric"
	"skerry/chaos/schedule"
)

// linkInjectors are what happens to links.
var linkInjectors = map[schedule.Kind]faultInjector{
	schedule.LinkCut:       {cutLink, []check.Effect{check.Severs}},
	schedule.Flapping:      {flap, []check.Effect{check.Impairs}},
	schedule.OfflineOn:     {flap, []check.Effect{check.Impairs}},
	schedule.NATRebind:     {onEdges(rebind), []check.Effect{check.Impairs}},
	schedule.AddressChange: {onEdges(move), []check.Effect{check.Impairs}},
	schedule.LinkProfile:   {shapeLink, []check.Effect{check.Impairs}},
	schedule.MinorityCut:   {cutHubsOff, []check.Effect{check.Severs}},
	schedule.HubPart:       {partHub, []check.Effect{check.Severs}},
	schedule.MajorityCut:   {partHubs, []check.Effect{check.Severs}},
	schedule.CertExpired:   {cutUntilExpired, []check.Effect{check.Severs}},
	schedule.MassRejoin:    {cutLink, []check.Effect{check.Severs}},
}

var ways = map[schedule.Way]fabric.Direction{
	schedule.WayBoth: fabric.Both, schedule.WayOut: fabric.AToB, schedule.WayIn: fabric.BToA,
}

// cutEdgesOff cuts edges off from all hubs.
func (r *run) cutEdgesOff(edges []*Edge, p schedule.Params) *fabric.Fault {
	mode := fabric.Silent
	if p.Refused {
		mode = fabric.Refused
	}
	return r.c.Net.Cut(fabric.Hosts(names(edges)...), fabric.Hosts(r.s.Topology.Hubs...), ways[p.Way], mode)
}

func cutLink(_ context.Context, r *run, f schedule.Fault) (activeFault, error) {
	return networkFault(r.cutEdgesOff(r.edgesOf(f), f.Params)), nil
}

// flap cuts and heals by turns until it is healed.
func flap(ctx context.Context, r *run, f schedule.Fault) (activeFault, error) {
	edges := r.edgesOf(f)
	ctx, stop := context.WithCancel(ctx)
	var hits atomic.Uint64
	ended := make(chan struct{})
	rng := r.randomForFault(f)
	phase := func(fixed time.Duration) time.Duration {
		if f.Kind == schedule.OfflineOn {
			return fixed
		}
		return f.Params.Phases.Shortest + time.Duration(rng.Int64N(int64(f.Params.Phases.Longest-f.Params.Phases.Shortest)+1))
	}
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			cut := r.cutEdgesOff(edges, schedule.Params{Way: schedule.WayBoth})
			pause(ctx, phase(f.Params.Off))
			cut.Heal()
			hits.Add(uint64(cut.Hits()))
			pause(ctx, phase(f.Params.On))
		}
	}()
	return activeFault{
		heal: func(context.Context) error { stop(); <-ended; return nil },
		hits: hits.Load,
	}, nil
}

func rebind(_ context.Context, _ *run, e *Edge, _ schedule.Fault) (activeFault, error) {
	return lateNetworkFault(e.Host.Rebind()), nil
}

func move(_ context.Context, r *run, e *Edge, _ schedule.Fault) (activeFault, error) {
	n := r.moves.Add(1)
	return lateNetworkFault(e.Host.Move(fmt.Sprintf("198.19.%d.%d", n/250, n%250+1))), nil
}

var profiles = map[schedule.Profile]fabric.Profile{
	schedule.Satellite:  fabric.Satellite,
	schedule.Cellular3G: fabric.Cellular3G,
	schedule.Lossy:      {Latency: 20 * time.Millisecond, Loss: 0.1, Reorder: 0.1, Duplicate: 0.05},
}

func shapeLink(_ context.Context, r *run, f schedule.Fault) (activeFault, error) {
	return networkFault(r.c.Net.Shape(fabric.Hosts(names(r.edgesOf(f))...), fabric.Hosts(r.s.Topology.Hubs...), profiles[f.Params.Profile])), nil
}

// cutHubsOff cuts hubs off from everyone.
func cutHubsOff(_ context.Context, r *run, f schedule.Fault) (activeFault, error) {
	off := hubNames(r.hubsOf(f))
	return networkFault(r.c.Net.Cut(fabric.Hosts(off...), fabric.Except(off...), fabric.Both, fabric.Silent)), nil
}

// partHub cuts hubs off from the others; edges reach them.
func partHub(_ context.Context, r *run, f schedule.Fault) (activeFault, error) {
	off := hubNames(r.hubsOf(f))
	others := slices.DeleteFunc(slices.Clone(r.s.Topology.Hubs), func(h string) bool { return slices.Contains(off, h) })
	return networkFault(r.c.Net.Cut(fabric.Hosts(off...), fabric.Hosts(others...), fabric.Both, fabric.Silent)), nil
}

// partHubs cuts every hub off from every other; edges reach them all.
func partHubs(_ context.Context, r *run, _ schedule.Fault) (activeFault, error) {
	hubs := r.s.Topology.Hubs
	var cuts []*fabric.Fault
	for i, h := range hubs {
		cuts = append(cuts, r.c.Net.Cut(fabric.Hosts(h), fabric.Hosts(hubs[i+1:]...), fabric.Both, fabric.Silent))
	}
	return networkFault(cuts...), nil
}

// cutUntilExpired cuts edges off, and heals them only when their certificates have ended.
func cutUntilExpired(_ context.Context, r *run, f schedule.Fault) (activeFault, error) {
	edges := r.edgesOf(f)
	cut := networkFault(r.cutEdgesOff(edges, schedule.Params{Way: schedule.WayBoth}))
	expired := 0
	heal := cut.heal
	cut.heal = func(ctx context.Context) error {
		for _, e := range edges {
			end, err := e.certificateEnd()
			if err != nil {
				return err
			}
			pause(ctx, time.Until(end)+time.Second)
			expired++
		}
		return heal(ctx)
	}
	hits := cut.hits
	cut.hits = func() uint64 {
		if expired == 0 {
			return 0
		}
		return hits()
	}
	return cut, nil
}
