package real

import (
	"context"
	"fmt"
	"time"

	"skerry/chaos/cluster"
	"skerry/chaos/engine"
	"skerry/chaos/faultnet"
	"skerry/client"
	"skerry/fleet"
)

// Healed measures the cost of an edge that reconnects after its link was cut: time, evaluations,
// Raft entries and bytes.
type Healed struct {
	Ground
	Proxy  *faultnet.Proxy // the ground's network; it counts the bytes
	Cut    time.Duration
	Allocs int
	// Cap is the edge's longest back-off; 0: the default.
	Cap time.Duration
}

// Limits of the measured costs, from the design's targets.
const (
	healedSettle  = 2 * time.Second // time from the first packet until the fleet is settled
	healedEvals   = 1               // of one job
	healedEntries = 6
	healedBytes   = 20_000
	defaultCap    = 60 * time.Second
	// firstPacketPoll is the interval of checks for the first packet.
	firstPacketPoll = 5 * time.Millisecond
)

// Run cuts one edge's link for h.Cut, heals it, measures until the fleet is settled, and prints the
// results. The error is ErrViolated if a limit is exceeded.
func (h Healed) Run(ctx context.Context) error {
	cfg := cluster.Config{Hubs: 3, Edges: 1}
	wait := defaultCap
	if h.Cap > 0 {
		cfg.EdgeFlags = []string{"--backoff-cap", h.Cap.String()}
		wait = h.Cap
	}
	if h.Cut < 40*time.Second { // shorter than the default deadline: the fleet has to notice sooner
		cfg.HubFlags = FastHub
	}
	return h.measureTasks(ctx, cfg, h.Allocs, func(s *fleetRun) error {
		e := s.fleet.Edges[0]
		cut, err := e.Cut()
		if err != nil {
			return err
		}
		if !engine.Pause(ctx, h.Cut) {
			return ctx.Err()
		}
		f, err := s.fleet.Hubs[0].Fleet(ctx)
		if err != nil {
			return err
		}
		if unknown := f.Allocs[fleet.ClientUnknown]; unknown != h.Allocs {
			return fmt.Errorf("%w: %d of %d allocations were unknown before the link came back", ErrVoid, unknown, h.Allocs)
		}
		return h.measureHeal(ctx, s, cut, wait)
	})
}

// measureHeal lifts the cut and measures until the fleet is settled. wait is the edge's longest
// back-off, which the first packet may take.
func (h Healed) measureHeal(ctx context.Context, s *fleetRun, cut *faultnet.Imposed, wait time.Duration) error {
	before, err := s.fleet.Hubs[0].Fleet(ctx)
	if err != nil {
		return err
	}
	edge := s.fleet.Edges[0].Name
	bytes := h.Proxy.Traffic(edge)
	cut.Lift()
	healed := time.Now()
	waiting, stop := context.WithTimeout(ctx, wait+quietBound)
	defer stop()
	for h.Proxy.Traffic(edge) == bytes && engine.Pause(waiting, firstPacketPoll) {
	}
	first := time.Now()
	err = cluster.Eventually(ctx, wait+quietBound, "the edge is settled", func(ctx context.Context) string {
		return firstUnsettled(ctx, s.fleet)
	})
	if err != nil {
		return err
	}
	settled, total := time.Since(first), time.Since(healed)
	after, err := s.fleet.Hubs[0].Fleet(ctx)
	if err != nil {
		return err
	}
	evals, err := s.fleet.Hubs[0].Own.Evals(ctx, client.List{})
	if err != nil {
		return err
	}
	perJob := map[fleet.JobID]int{}
	most := 0
	for _, ev := range evals {
		if ev.CreateIndex > before.Index {
			perJob[ev.JobID]++
			most = max(most, perJob[ev.JobID])
		}
	}
	entries, sent := int(after.Index-before.Index), h.Proxy.Traffic(edge)-bytes
	h.printLine("link healed after %s, %d allocations: settled %s after the first packet (%s after the heal; back-off cap %s), %d evaluations a job, %d Raft entries, %d bytes",
		h.Cut, h.Allocs, settled.Round(time.Millisecond), total.Round(time.Millisecond), wait, most, entries, sent)
	err = judgeFigures([]figure{
		inSeconds("settled after the first packet", settled, healedSettle),
		inSeconds("settled after the heal", total, wait+healedSettle),
		{"evaluations of one job", float64(most), healedEvals, ""},
		{"Raft entries", float64(entries), healedEntries, ""},
		{"bytes on the link", float64(sent), healedBytes, ""},
	})
	if err != nil {
		return err
	}
	if _, err := s.waitUntilQuiet(ctx); err != nil {
		return err
	}
	return reconnectedOnce(ctx, s)
}

// reconnectedOnce checks that each allocation has exactly one reconnected event.
func reconnectedOnce(ctx context.Context, s *fleetRun) error {
	hub, err := lookHub(ctx, s.fleet.Hubs[0])
	if err != nil {
		return err
	}
	for id, history := range hub.AllocHistory {
		said := 0
		for _, entry := range history {
			if t := entry.Transition; t != nil && t.Event != nil && t.Event.Type == fleet.TaskReconnected {
				said++
			}
		}
		if said != 1 {
			return fmt.Errorf("%w: allocation %s has %d events %q", ErrViolated, fleet.Short(id), said, fleet.TaskReconnected)
		}
	}
	return nil
}
