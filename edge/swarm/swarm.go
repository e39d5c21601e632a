// Package swarm runs many virtual edges in one process, for scale tests. Each is an edge.Edge with its own data
// directory, journal, identity and connection; only its runners, its machine and its network are simulated.
// Package chaos uses it.
//
// A simulated task runs from its start until it is stopped. It records what the real runner records. GenerateRows
// makes tasks crash and restart. A cut drops packets at an edge's sockets, silently, in both directions.
//
// Run starts the goroutines of edge.Edge.Run for each edge, and one for each allocation; DESIGN.md of package
// edge says how many these are and what they cost. The edges store their data below Config.Dir. The local APIs
// have no socket: use Edge.Agent.
package swarm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"skerry/fleet"
)

// defaultPrefix is the prefix of the edges' names if none is configured.
const defaultPrefix = "edge"

// Config of a Swarm. Dir, Hubs, TokenFile and Edges are required.
type Config struct {
	Dir       string   // each edge has a folder in it
	Hubs      []string // HOST:PORT; each edge dials another one first
	TokenFile string
	Edges     int

	Prefix     string // of the edges' names; "": "edge"
	Datacenter string // "": the edge's default
	NodePool   string // "": the edge's default
	// Resources of each machine; zero: 4,000 MHz, 4,096 MB of memory, 32,768 MB of disk.
	Resources  fleet.Resources
	BackoffCap time.Duration // 0: the edge's default
	// ListenPacket opens the sockets that edges dial from; nil: UDP.
	ListenPacket func(ctx context.Context) (net.PacketConn, error)
	Log          *slog.Logger // nil: discards
}

// checkAndFillDefaults returns the configuration with its defaults, or an error if it is invalid.
func (c Config) checkAndFillDefaults() (Config, error) {
	if c.Dir == "" || len(c.Hubs) == 0 || c.TokenFile == "" || c.Edges < 1 {
		return c, errors.New("make a swarm: a folder, hubs, a token file and at least one edge are required")
	}
	if c.Resources == (fleet.Resources{}) {
		c.Resources = fleet.Resources{CPU: 4000, MemoryMB: 4096, DiskMB: 32768}
	}
	if c.ListenPacket == nil {
		c.ListenPacket = func(context.Context) (net.PacketConn, error) { return net.ListenUDP("udp", nil) }
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return c, nil
}

// Swarm is a set of virtual edges.
type Swarm struct {
	edges []*Edge
}

// Open opens all edges, and makes those that Config.Dir does not have yet. It starts none of them.
func Open(cfg Config) (*Swarm, error) {
	cfg, err := cfg.checkAndFillDefaults()
	if err != nil {
		return nil, err
	}
	if err := raiseFileLimit(cfg.Edges); err != nil {
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

// maxParallelEdges returns how many edges are opened, closed or made to generate rows at a time. Each mostly
// waits for its disk.
func maxParallelEdges() int { return 8 * runtime.GOMAXPROCS(0) }

// Run runs all edges until ctx ends, and then returns nil. If one of them fails, it ends the others and returns
// that error.
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

// Edges returns all edges, in order.
func (s *Swarm) Edges() []*Edge { return s.edges }

// Cut drops every packet of every edge, silently, until Heal.
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

// GenerateRows makes every edge record so many rows, spread over its running allocations. It returns
// when they are durable.
func (s *Swarm) GenerateRows(ctx context.Context, rows int) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxParallelEdges())
	for _, e := range s.edges {
		g.Go(func() error { return e.GenerateRows(ctx, rows) })
	}
	return g.Wait()
}

// Totals is the sum of the status of all edges.
type Totals struct {
	Edges     int
	Connected int // edges with a committed session
	Ready     int // connected edges whose node is ready
	Replayed  int // ready edges whose rows are all acknowledged
	Running   int // allocations whose tasks all run

	Rows, Acknowledged uint64 // rows ever recorded, and acknowledged ones
}

// String returns the totals on one line, for a log.
func (t Totals) String() string {
	return fmt.Sprintf("%d edges, %d connected, %d ready, %d replayed, %d allocations run, %d of %d rows acknowledged",
		t.Edges, t.Connected, t.Ready, t.Replayed, t.Running, t.Acknowledged, t.Rows)
}

// Totals returns the status of all edges. It reads memory only.
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

// pollInterval is how often Await checks.
const pollInterval = 50 * time.Millisecond

// Await waits until done returns true for the totals, and returns the last totals. If ctx ends first, the error
// names what it waited for.
func (s *Swarm) Await(ctx context.Context, what string, done func(Totals) bool) (Totals, error) {
	tick := time.NewTicker(pollInterval)
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

// Close releases everything. Run must have returned.
func (s *Swarm) Close() error {
	errs := make([]error, len(s.edges))
	var g errgroup.Group
	g.SetLimit(maxParallelEdges())
	for i, e := range s.edges {
		if e != nil {
			g.Go(func() error { errs[i] = e.edge.Close(); return nil })
		}
	}
	_ = g.Wait() // the errors are in errs
	return errors.Join(errs...)
}

// hubsFor rotates the hubs, so that each edge dials another one first.
func hubsFor(hubs []string, i int) []string {
	n := i % len(hubs)
	return slices.Concat(hubs[n:], hubs[:n])
}
