// Package swarm runs many virtual edges in one process, for scale tests: each is an
// edge.Edge with its own data directory, journal, identity and connection, and only
// what runs its allocations, what describes its machine, and what its sockets go
// through is simulated. Package chaos/real is its user.
//
// A simulated task runs as soon as it is asked for and until it is stopped. It
// journals what the real runner would, through the Recorder that a runner is given;
// Happen makes tasks crash and start again on command. A cut takes packets away in
// front of an edge's sockets, silently, in both directions.
//
// Run starts what edge.Edge.Run starts, for each edge, and one goroutine for each
// allocation; see DESIGN.md of package edge for how many that are, and what they
// take. What the edges persist is below Config.Dir. The local APIs are not served:
// Edge.Agent is the same without a socket.
package swarm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"skerry/fleet"
)

// defaultPrefix is that of edges' names.
const defaultPrefix = "edge"

// Config of a Swarm. Dir, Hubs, TokenFile and Edges are required.
type Config struct {
	Dir       string   // each edge has a folder in it
	Hubs      []string // HOST:PORT; each edge begins with another one
	TokenFile string
	Edges     int

	Prefix     string // of the edges' names, "": "edge"
	Datacenter string // "": the edge's default
	NodePool   string // likewise
	// Resources of each machine; zero: 4,000 MHz, 4,096 MB of memory, 32,768 MB of disk.
	Resources  fleet.Resources
	BackoffCap time.Duration // 0: the edge's default
	// ListenPacket opens the sockets that edges dial from; nil: UDP.
	ListenPacket func(ctx context.Context) (net.PacketConn, error)
	Log          *slog.Logger // nil: discards
}

func (c Config) withDefaults() (Config, error) {
	if c.Dir == "" || len(c.Hubs) == 0 || c.TokenFile == "" || c.Edges < 1 {
		return c, errors.New("make a swarm: a folder, hubs, a token file and at least one edge are required")
	}
	if c.Resources == (fleet.Resources{}) {
		c.Resources = fleet.Resources{CPU: 4000, MemoryMB: 4096, DiskMB: 32768}
	}
	if c.ListenPacket == nil {
		c.ListenPacket = func(context.Context) (net.PacketConn, error) { return net.ListenUDP("udp", nil) }
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// Swarm is many edges.
type Swarm struct {
	edges []*Edge
}

// Open opens all edges, those that were there before and new ones.
func Open(cfg Config) (*Swarm, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := allowFiles(cfg.Edges); err != nil {
		return nil, err
	}
	s := &Swarm{edges: make([]*Edge, cfg.Edges)}
	var g errgroup.Group
	g.SetLimit(maxParallelEdges())
	for i := range s.edges {
		g.Go(func() (err error) {
			s.edges[i], err = openEdge(cfg, i)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// maxParallelEdges is how many edges are worked on at a time where each waits for its disk.
func maxParallelEdges() int { return 8 * runtime.GOMAXPROCS(0) }

// Run runs all edges until ctx ends (nil), or one of them fails.
func (s *Swarm) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, e := range s.edges {
		g.Go(func() error {
			if err := e.edge.Run(ctx); err != nil {
				return fmt.Errorf("run %s: %w", e.name, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// Edges are all edges, in order.
func (s *Swarm) Edges() []*Edge { return s.edges }

// Cut makes every packet of every edge vanish; Heal lets them pass again.
func (s *Swarm) Cut() {
	for _, e := range s.edges {
		e.Cut()
	}
}

// Heal ends a Cut, for all edges at once.
func (s *Swarm) Heal() {
	for _, e := range s.edges {
		e.Heal()
	}
}

// GenerateRows lets things happen on every edge that make it journal so many rows, spread
// over its running allocations. It returns when they are durable.
func (s *Swarm) GenerateRows(ctx context.Context, rows int) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxParallelEdges())
	for _, e := range s.edges {
		g.Go(func() error { return e.GenerateRows(ctx, rows) })
	}
	return g.Wait()
}

// Totals add up where edges stand.
type Totals struct {
	Edges     int
	Connected int // have a session that a hub committed
	Ready     int // and were told last that their node is ready
	Replayed  int // and have nothing that the cluster has not acknowledged
	Running   int // allocations all of whose tasks run

	Rows, Acknowledged uint64 // journaled ever, and known to the cluster
}

func (t Totals) String() string {
	return fmt.Sprintf("%d edges, %d connected, %d ready, %d replayed, %d allocations run, %d of %d rows acknowledged",
		t.Edges, t.Connected, t.Ready, t.Replayed, t.Running, t.Acknowledged, t.Rows)
}

// Totals looks at every edge. It reads memory alone.
func (s *Swarm) Totals() Totals {
	t := Totals{Edges: len(s.edges)}
	for _, e := range s.edges {
		st := e.SyncStatus()
		t.Running += st.Running
		t.Rows += uint64(st.Last)
		t.Acknowledged += uint64(st.Acknowledged)
		if !st.Connected {
			continue
		}
		t.Connected++
		if st.Node == fleet.NodeReady {
			t.Ready++
			if st.Last == st.Acknowledged {
				t.Replayed++
			}
		}
	}
	return t
}

// lookEvery is how often Await looks.
const lookEvery = 50 * time.Millisecond

// Await looks until done, or ctx ends; the totals are those that it saw last.
func (s *Swarm) Await(ctx context.Context, what string, done func(Totals) bool) (Totals, error) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		t := s.Totals()
		if done(t) {
			return t, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return t, fmt.Errorf("wait until %s: %w; %s", what, context.Cause(ctx), t)
		}
	}
}

// Close releases everything that Open opened; Run has returned.
func (s *Swarm) Close() error {
	errs := make([]error, len(s.edges))
	var g errgroup.Group
	g.SetLimit(maxParallelEdges())
	for i, e := range s.edges {
		if e != nil {
			g.Go(func() error { errs[i] = e.edge.Close(); return nil })
		}
	}
	_ = g.Wait() // they gather their errors
	return errors.Join(errs...)
}

// hubsFor lets each edge begin with another hub.
func hubsFor(hubs []string, i int) []string {
	n := i % len(hubs)
	return append(append([]string{}, hubs[n:]...), hubs[:n]...)
}

func folder(dir, name string) string { return filepath.Join(dir, name) }
