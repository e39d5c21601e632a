package virtual

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"

	"skerry/chaos/fabric"
	"skerry/drivers"
	"skerry/drivers/sim"
	"skerry/edge"
	"skerry/edge/journal"
	"skerry/edge/runner"
	"skerry/fleet"
)

// localPort takes the place of the local API's unix socket.
const localPort = 1

// Edge is one edge's machine.
type Edge struct {
	Name  string
	Host  *fabric.Host
	Clock clock
	Disk  disk
	Dir   string

	c     *Cluster
	cfg   EdgeConfig
	world *sim.World
	log   *logFile

	synced atomic.Int64 // size of the journal's write-ahead log when it was last synced

	mu      sync.Mutex
	boot    int
	life    *life
	running *edge.Edge // nil: it is down
}

// NewEdge makes an edge that is neither started nor among Edges; i numbers its
// address.
func (c *Cluster) NewEdge(cfg EdgeConfig, i int) (*Edge, error) {
	e := &Edge{Name: cfg.Name, c: c, cfg: cfg, world: sim.NewWorld(), boot: 1, Dir: c.dir(cfg.Name)}
	e.Host = c.Net.Host(cfg.Name, fmt.Sprintf("10.1.%d.%d", i/250, i%250+1))
	var err error
	e.log, err = openLog(e.Dir+".log", c.cfg.LogLevel)
	return e, err
}

// Start starts the agent in the machine's current boot.
func (e *Edge) Start() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.life != nil {
		return fmt.Errorf("start %s: it runs", e.Name)
	}
	l := &life{}
	d, err := edge.Open(e.config(l))
	if err != nil {
		return fmt.Errorf("start %s: %w", e.Name, err)
	}
	e.running, e.life = d, l
	l.begin(func(ctx context.Context) error {
		err := errors.Join(d.Run(ctx), d.Close())
		e.mu.Lock()
		defer e.mu.Unlock()
		e.running = nil
		return err
	})
	return nil
}

func (e *Edge) config(l *life) edge.Config {
	return edge.Config{
		DataDir: e.Dir, Hubs: e.c.hubAddrs(), TokenFile: e.c.tokenFile(),
		Name: e.Name, Datacenter: e.cfg.Datacenter, NodePool: e.cfg.NodePool, Meta: e.cfg.Meta, Version: "virtual",
		Runners: e.runners, Describe: e.describe,
		ListenPacket: func(context.Context) (net.PacketConn, error) { return e.Host.ListenPacket(0) },
		ListenLocal:  func(string) (net.Listener, error) { return e.Host.Listen(localPort) },
		BackoffCap:   e.c.cfg.BackoffCap,
		BootID:       fleet.BootID(fleet.DeriveUUID("boot", e.Name, fmt.Sprint(e.boot))),
		Now:          e.Clock.Now,
		Step: func(label string) error {
			err := e.Disk.step(label, l)
			if err == nil && label == journal.StepAfterCommit {
				e.synced.Store(size(e.wal()))
			}
			return err
		},
		Log: e.log.log,
	}
}

// runners makes the runners that production has, with the driver sim.
func (e *Edge) runners(m edge.Machine) (edge.NewRunner, error) {
	factory := &runner.Factory{
		Drivers: map[string]drivers.Driver{sim.Name: sim.New(e.world)},
		Node:    m.Node, BootID: m.BootID, Mono: m.Mono, Now: m.Now, Log: m.Log,
		Dirs: runner.Dirs{Allocs: filepath.Join(m.DataDir, "allocs"), State: filepath.Join(m.DataDir, "tasks")},
	}
	return func(a fleet.Alloc, last edge.LastState, rec edge.Recorder) (edge.Runner, error) {
		return factory.New(a, runner.LastState(last), rec)
	}, nil
}

// Agent is the running agent, nil where it is down.
func (e *Edge) Agent() *edge.Edge {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.running
}

// description is a machine that does not change.
type description struct{ node fleet.Node }

func (d description) Read(context.Context) (fleet.Node, error) { return d.node, nil }
func (d description) Run(ctx context.Context) error            { <-ctx.Done(); return nil }
func (d description) Node() fleet.Node                         { return d.node }
func (d description) Changed() <-chan struct{}                 { return nil }

func (e *Edge) describe(n fleet.Node) (edge.Describer, error) {
	n.Resources = fleet.Resources{CPU: orDefault(e.cfg.CPU, 4000), MemoryMB: orDefault(e.cfg.MemoryMB, 4096), DiskMB: 10_000}
	n.Attributes = map[string]string{"kernel.name": "linux", "unique.hostname": e.Name}
	n.Drivers = map[string]fleet.DriverInfo{sim.Name: {Detected: true, Healthy: true}}
	n.DescriptionHash = fleet.DeriveUUID("description", e.Name)
	return description{n}, nil
}

func orDefault(v, fallback int) int {
	if v == 0 {
		return fallback
	}
	return v
}
