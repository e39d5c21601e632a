package real

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"skerry/edge/swarm"
)

// withSwarm runs simulated edges in this process, connected to the fleet's hubs, while play runs. If
// an edge fails, the context of play is cancelled.
func (s *fleetRun) withSwarm(ctx context.Context, cfg swarm.Config, play func(context.Context, *swarm.Swarm) error) error {
	cfg.Dir = filepath.Join(s.Dir, "edges")
	cfg.Hubs, cfg.TokenFile = s.fleet.JoinAddresses()
	began := time.Now()
	edges, err := swarm.Open(cfg)
	if err != nil {
		return err
	}
	s.sayDuration("edges opened", began)
	running, stop := context.WithCancel(ctx)
	defer stop()
	g, running := errgroup.WithContext(running)
	g.Go(func() error { return edges.Run(running) })
	g.Go(func() error { defer stop(); return play(running, edges) })
	return errors.Join(g.Wait(), edges.Close())
}

// awaitSwarm waits up to bound until done holds for the swarm's totals, and prints the time since
// `since`.
func (g Ground) awaitSwarm(ctx context.Context, edges *swarm.Swarm, bound time.Duration, what string, since time.Time, done func(swarm.Totals) bool) error {
	if err := waitForSwarm(ctx, edges, bound, what, done); err != nil {
		return err
	}
	g.sayDuration(what, since)
	return nil
}

// waitForSwarm waits up to bound until done holds for the swarm's totals.
func waitForSwarm(ctx context.Context, edges *swarm.Swarm, bound time.Duration, what string, done func(swarm.Totals) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, bound, fmt.Errorf("not within %s", bound))
	defer cancel()
	_, err := edges.Await(ctx, what, done)
	return err
}

// allReady reports whether all edges of a swarm are ready.
func allReady(t swarm.Totals) bool { return t.Ready == t.Edges }

// sayDuration prints the time since `since`, with `what` as its label.
func (g Ground) sayDuration(what string, since time.Time) {
	g.printLine("  %-44s %9s", what, time.Since(since).Round(time.Millisecond))
}
