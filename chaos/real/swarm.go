package real

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"skerry/edge/swarm"
)

// withSwarm runs simulated edges beside the fleet's hubs while play plays. An edge that
// fails ends it. took is told how long it took to open them.
func (s *fleetRun) withSwarm(ctx context.Context, cfg swarm.Config, took func(string, time.Duration), play func(context.Context, *swarm.Swarm) error) (err error) {
	cfg.Dir = filepath.Join(s.Dir, "edges")
	cfg.Hubs, cfg.TokenFile = s.fleet.JoinAddresses()
	began := time.Now()
	edges, err := swarm.Open(cfg)
	if err != nil {
		return err
	}
	took("edges opened", time.Since(began))
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- edges.Run(running) }()
	playing, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	played := make(chan error, 1)
	go func() { played <- play(playing, edges) }()
	select {
	case err = <-played:
		stop()
		err = errors.Join(err, <-ended)
	case err = <-ended:
		cancel(err)
		err = errors.Join(err, <-played)
		stop()
	}
	return errors.Join(err, edges.Close())
}

// awaitSwarm waits for a swarm, for a while.
func awaitSwarm(ctx context.Context, edges *swarm.Swarm, bound time.Duration, what string, done func(swarm.Totals) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, bound, fmt.Errorf("not within %s", bound))
	defer cancel()
	_, err := edges.Await(ctx, what, done)
	return err
}
