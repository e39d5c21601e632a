package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"skerry/cmd/console"
	"skerry/cmd/edged"
	"skerry/drivers/builtin"
	"skerry/edge"
	"skerry/edge/local"
	"skerry/edge/secretdirs"
	"skerry/fleet"
	"skerry/hub"
	"skerry/internal/tmpfs"
)

// devEdge is the name of the edge in skerry dev.
const devEdge = "dev-edge"

func devCommand() *cobra.Command {
	cfg := hub.Config{Bootstrap: true, Name: "dev-hub", Bind: "127.0.0.1"}
	var flags edged.Flags
	cmd := &cobra.Command{
		Use: "dev", Short: "Run one hub and one edge in one process, to try it out", Args: cobra.NoArgs,
		Example: `  skerry dev
  skerry dev --data-dir /tmp/skerry --meta rack=r1`,
		PreRunE: func(cmd *cobra.Command, _ []string) error { return console.CompleteFlags(cmd.Flags(), os.Environ()) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := flags.Log.NewLog()
			if err != nil {
				return err
			}
			return dev(cmd.Context(), cfg, flags, log, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.DataDir, "data-dir", "", "data directory, which is kept (default: a temporary one, removed at the end)")
	f.IntVar(&cfg.HTTPPort, "http-port", hub.DefaultHTTPPort, "TCP port of the HTTP API")
	f.IntVar(&cfg.QUICPort, "quic-port", hub.DefaultQUICPort, "UDP port of the hub")
	f.IntVar(&cfg.GossipPort, "gossip-port", hub.DefaultGossipPort, "TCP and UDP port of gossip")
	f.StringToStringVar(&flags.Config.Meta, "meta", nil, "metadata KEY=VALUE of the edge; may be repeated")
	flags.Log.AddLogFlags(f)
	f.Lookup("log-level").DefValue = "warn"
	flags.Log.Level = "warn"
	console.AddConfigFlag(f)
	return cmd
}

// dev runs a hub and an edge below one directory until ctx ends.
func dev(ctx context.Context, cfg hub.Config, flags edged.Flags, log *slog.Logger, out io.Writer) (err error) {
	dir, keep := cfg.DataDir, cfg.DataDir != ""
	if !keep {
		if dir, err = os.MkdirTemp("", "skerry-dev-"); err != nil {
			return fmt.Errorf("make a temporary directory: %w", err)
		}
		defer func() { err = errors.Join(err, tmpfs.DetachBelow(dir, secretdirs.SourcePrefix), os.RemoveAll(dir)) }()
	}
	var started startedEdge
	cfg.Drivers = builtin.Known()
	cfg.DataDir, cfg.Log, cfg.Version, cfg.EdgeHealth = filepath.Join(dir, "hub"), log, version, started.checkHealth
	h, err := hub.Open(ctx, cfg)
	if err != nil {
		return err
	}
	flags.Config.DataDir = filepath.Join(dir, "edge")
	flags.Config.Name = devEdge
	flags.Config.Hubs = []string{h.QUICAddr()}
	flags.Config.TokenFile = filepath.Join(cfg.DataDir, "join-token")
	group, ctx := errgroup.WithContext(ctx)
	hubEnded := make(chan struct{})
	group.Go(func() error {
		defer close(hubEnded)
		return h.Run(ctx)
	})
	group.Go(func() error {
		select {
		case <-h.Ready():
		case <-ctx.Done():
			return nil
		}
		edgeConfig, err := flags.EdgeConfig(log, version)
		if err != nil {
			return err
		}
		e, err := edge.Open(edgeConfig)
		if err != nil {
			return err
		}
		started.edge.Store(e)
		return runDevEdge(ctx, e, devEnd{hubEnded: hubEnded, stopTasks: !keep}, h.HTTPURL(), out)
	})
	return errors.Join(group.Wait(), h.Close())
}

// startedEdge is the edge of skerry dev, for /v1/agent/health of the hub, which starts before it.
type startedEdge struct{ edge atomic.Pointer[edge.Edge] }

func (s *startedEdge) checkHealth() error {
	e := s.edge.Load()
	if e == nil {
		return errors.New("the edge has not started yet")
	}
	if link, _ := e.SyncStatus(); link.State != "connected" {
		return fmt.Errorf("the edge is %s", link.State)
	}
	return nil
}

// devEnd says how the edge of skerry dev ends.
type devEnd struct {
	hubEnded <-chan struct{}
	// stopTasks ends the tasks, too. They would outlive the edge, but not the
	// temporary directory that they are in.
	stopTasks bool
}

// devStopBound is how long tasks may take to end with skerry dev.
const devStopBound = 15 * time.Second

// runDevEdge runs the edge until ctx and the hub have ended: a hub that is there would
// replace what is stopped.
func runDevEdge(ctx context.Context, e *edge.Edge, end devEnd, http string, out io.Writer) error {
	fmt.Fprintf(out, `One hub and one edge run in this process. It ends with Ctrl-C, and keeps nothing unless --data-dir says so.

In another terminal:

  export SKERRY_ADDR=%s
  skerry fleet status
  skerry job run FILE
  skerry local status --socket %s

edge %s
`, http, e.Socket(), fleet.Short(e.NodeID()))
	edgeCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, groupCtx := errgroup.WithContext(edgeCtx)
	group.Go(func() error { return e.Run(groupCtx) })
	group.Go(func() error {
		select {
		case <-ctx.Done():
		case <-groupCtx.Done(): // the edge itself has failed
			return nil
		}
		defer stop()
		<-end.hubEnded
		if !end.stopTasks {
			return nil
		}
		bounded, cancel := context.WithTimeout(groupCtx, devStopBound)
		defer cancel()
		return stopAll(bounded, local.NewClient(e.Socket()))
	})
	return errors.Join(group.Wait(), e.Close())
}

// stopAll stops every allocation of an edge, and returns when they have ended.
func stopAll(ctx context.Context, c *local.Client) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	asked := map[fleet.AllocID]bool{}
	for {
		s, err := c.Status(ctx)
		if err != nil {
			return fmt.Errorf("stop the tasks: %w", err)
		}
		left := 0
		for _, a := range s.Allocs {
			if a.ClientStatus != fleet.ClientRunning && a.ClientStatus != fleet.ClientPending {
				continue
			}
			left++
			if asked[a.ID] {
				continue
			}
			asked[a.ID] = true
			if err := c.Stop(ctx, local.StopRequest{Alloc: a.ID, Reason: "skerry dev ends", MayReturn: true}); err != nil {
				return fmt.Errorf("stop allocation %s: %w", fleet.Short(a.ID), err)
			}
		}
		if left == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("stop the tasks: %d allocations run after %s", left, devStopBound)
		case <-tick.C:
		}
	}
}
