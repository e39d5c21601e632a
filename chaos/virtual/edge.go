package virtual

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"skerry/chaos/fabric"
	"skerry/drivers"
	"skerry/drivers/sim"
	"skerry/edge"
	"skerry/edge/artifacts"
	"skerry/edge/contract"
	"skerry/edge/identities"
	"skerry/edge/identities/files"
	"skerry/edge/journal"
	"skerry/edge/runner"
	"skerry/edge/templates"
	"skerry/fleet"
)

// localPort is the port of the local API, in place of its unix socket.
const localPort = 1

// natIdle is the idle time after which an edge's NAT drops its mapping, as with many real NATs.
const natIdle = 2 * time.Minute

// reserveSize is the size of the agent's reserve file for a full disk: enough for a few starts,
// and not enough for a disk that stays full under load.
const reserveSize = 128 << 10

// storeSize bounds the edge's store of artifacts.
const storeSize = 16 << 20

// Edge is the machine of one edge.
type Edge struct {
	Name   string
	Host   *fabric.Host
	siteIP string // of Host, behind its NAT
	Clock  clock
	Disk   disk
	Dir    string

	c         *Cluster
	cfg       EdgeConfig
	observers Observers
	world     *sim.SimMachine
	driver    *driver
	log       *slog.Logger

	synced atomic.Int64 // size of the journal's write-ahead log at its last sync

	mu       sync.Mutex
	boot     int
	booted   time.Time
	life     *life
	running  *edge.Edge // nil: the agent is down
	variable func(namespace, path string) (map[string]string, bool)
	tokens   *identities.Keeper
	firstKey []byte // see keepFirstKey
}

// NewEdge returns the machine of an edge behind a NAT. The agent is not started, and the edge is
// not added to Edges. i is the number of its address, from 0.
func (c *Cluster) NewEdge(cfg EdgeConfig, i int) (*Edge, error) {
	return c.newEdge(cfg, i, c.cfg.Taps)
}

// newEdge is NewEdge with other observers than the cluster's.
func (c *Cluster) newEdge(cfg EdgeConfig, i int, taps Observers) (*Edge, error) {
	e := &Edge{Name: cfg.Name, c: c, cfg: cfg, observers: taps, world: taps.newSimWorld(cfg.Name), boot: 1, booted: time.Now(), Dir: c.memberDir(cfg.Name)}
	e.Disk.reserve = filepath.Join(e.Dir, "reserve")
	e.driver = &driver{Driver: sim.New(e.world), starting: taps.taskObserver(cfg.Name)}
	e.siteIP = fmt.Sprintf("10.1.%d.%d", i/250, i%250+1)
	e.Host = c.Net.Host(cfg.Name, e.siteIP)
	e.Host.BehindNAT(fmt.Sprintf("198.18.%d.%d", i/250, i%250+1), natIdle)
	var err error
	e.log, err = c.openLog(e.Dir)
	return e, err
}

// Start opens the agent and runs it in a goroutine, in the machine's current boot. It returns an
// error if the agent has been started and not been stopped since, or cannot be opened.
func (e *Edge) Start() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.life != nil {
		return fmt.Errorf("start %s: it runs", e.Name)
	}
	l := &life{}
	d, err := edge.Open(e.agentConfig(l))
	if err != nil {
		return fmt.Errorf("start %s: %w", e.Name, err)
	}
	e.running, e.life = d, l
	e.keepFirstKey()
	l.runProcess(func(ctx context.Context) error {
		err := errors.Join(d.Run(ctx), d.Close())
		e.mu.Lock()
		defer e.mu.Unlock()
		e.running = nil
		return err
	})
	return nil
}

// agentConfig returns the configuration of the agent for the life l of its process.
func (e *Edge) agentConfig(l *life) edge.Config {
	booted := e.booted
	return edge.Config{
		DataDir: e.Dir, Hubs: e.c.hubAddrs(), TokenFile: e.c.tokenFile(),
		Name: e.Name, Datacenter: e.cfg.Datacenter, Site: e.cfg.Site, TimeZone: e.cfg.TimeZone, NodePool: e.cfg.NodePool, Meta: e.cfg.Meta, Version: "virtual",
		Runners: e.newRunnerFactory, Describe: e.describeNode,
		ListenPacket: e.openDialSocket,
		DialCheck:    e.dialOnSite,
		ListenLocal:  func(string) (net.Listener, error) { return e.Host.Listen(localPort) },
		BackoffCap:   cmp.Or(e.cfg.BackoffCap, e.c.cfg.BackoffCap), JournalMaxBytes: e.cfg.JournalMaxBytes,
		BootID: e.bootID(),
		Mono:   func() time.Duration { return time.Since(booted) },
		Now:    e.Clock.Now, Reserve: reserveSize, StoreBytes: storeSize, FreeSpace: e.Disk.Free,
		FreeInodes: func(string) (free, total int64, err error) { return 0, 0, nil },
		Step: func(label string) error {
			if label == journal.StepAfterCommit { // the commit is on the disk, also if the disk is full from now on
				e.synced.Store(size(e.journalWALPath()))
			}
			return e.Disk.beforeDiskStep(label, l)
		},
		Received: e.observers.messageObserver(e.Name),
		Log:      e.observers.observedLogger(e.Name, e.log),
	}
}

// openDialSocket opens the UDP socket for a round of attempts to reach a hub, and calls the
// Dial observer.
func (e *Edge) openDialSocket(context.Context) (net.PacketConn, error) {
	if dial := e.observers.Dial; dial != nil {
		dial(e.Name)
	}
	return e.Host.ListenPacket(0)
}

// dialOnSite connects to a port of an edge as in a network on site: without a NAT, and whatever is cut between edges and hubs.
func (e *Edge) dialOnSite(ctx context.Context, _, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	for _, other := range e.c.Edges {
		if other.siteIP == host {
			return other.Host.Dial(ctx, address)
		}
	}
	return nil, fmt.Errorf("dial %s: no edge has this address", address)
}

// newRunnerFactory returns a factory of the production runners with their artifacts and templates, and the driver sim.
func (e *Edge) newRunnerFactory(m edge.Machine) (contract.New, error) {
	dirs := runner.Dirs{Allocs: filepath.Join(m.DataDir, "allocs"), State: filepath.Join(m.DataDir, "tasks")}
	fetch, err := artifacts.NewHook(artifacts.NewFetcher(artifacts.Config{Store: m.Store, Hidden: m.DataDir, Now: m.Now, Log: m.Log}), dirs.State)
	if err != nil {
		return nil, err
	}
	e.variable, e.tokens = m.Variable, m.Identities // Start holds e.mu
	render := templates.NewHook(templates.Config{
		Services: m.Services, Variable: m.Variable, Key: m.Key, Poll: cmp.Or(e.c.cfg.TemplatePoll, time.Minute),
		Now: m.Now, Jitter: func() float64 { return 0.5 }, Log: m.Log,
	})
	factory := &runner.Factory{
		Drivers: map[string]drivers.Driver{sim.Name: e.driver}, Hooks: []runner.Hook{fetch, &files.Hook{Keeper: m.Identities, Log: m.Log}, render},
		Node: m.Node, BootID: m.BootID, Mono: m.Mono, Now: m.Now, Log: m.Log, Dirs: dirs,
	}
	return factory.NewRunner, nil
}

// BootID returns the id of the machine's current boot.
func (e *Edge) BootID() fleet.BootID {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.bootID()
}

// bootID is BootID for callers that hold e.mu.
func (e *Edge) bootID() fleet.BootID {
	return fleet.BootID(fleet.DeriveUUID("boot", e.Name, fmt.Sprint(e.boot)))
}

// Agent returns the running agent; nil if it is down.
func (e *Edge) Agent() *edge.Edge {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.running
}

// description is an edge.Describer of a machine that never changes.
type description struct{ node fleet.Node }

func (d description) Read(context.Context) (fleet.Node, error) { return d.node, nil }
func (d description) Run(ctx context.Context) error            { <-ctx.Done(); return nil }
func (d description) Node() fleet.Node                         { return d.node }
func (d description) Changed() <-chan struct{}                 { return nil }

// describeNode adds the machine's resources, attributes, devices and driver to the node n.
func (e *Edge) describeNode(n fleet.Node) (edge.Describer, error) {
	n.Resources = fleet.Resources{CPU: orDefault(e.cfg.CPU, 4000), MemoryMB: orDefault(e.cfg.MemoryMB, 4096), DiskMB: 10_000, Cores: cores}
	n.Attributes = map[string]string{"kernel.name": "linux", "unique.hostname": e.Name, fleet.AttributeIdentities: fleet.OfflineIdentities}
	maps.Copy(n.Attributes, e.cfg.Attributes)
	for i := range sticks {
		n.Devices = append(n.Devices, fleet.Device{Kind: "usb", Vendor: "sim", Type: "usb", Name: "stick", ID: fmt.Sprintf("stick-%d", i)})
	}
	n.Drivers = map[string]fleet.DriverInfo{sim.Name: {Detected: true, Healthy: true}}
	n.DescriptionHash = fleet.DeriveUUID("description", e.Name)
	return description{n}, nil
}

// Numbers of cores, and of devices with schedule.DeviceName, in each machine.
const cores, sticks = 4, 4

func orDefault(v, fallback int) int {
	if v == 0 {
		return fallback
	}
	return v
}
