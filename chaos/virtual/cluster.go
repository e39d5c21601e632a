package virtual

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"skerry/chaos/fabric"
	"skerry/hub"
	"skerry/hub/state"
)

// Ports of every hub: each has an address of its own.
const (
	httpPort   = 4646
	quicPort   = 4647
	gossipPort = 4648
)

// aftermath is how long goroutines of the libraries go on after what they worked for is
// closed: timers and back-offs that nobody waits for. The longest is memberlist's wait for
// the answer to a probe: up to eight times GossipProbe, where a hub was long cut off.
const aftermath = 3 * time.Minute

// epoch is when a run begins. A bubble's clock starts in 2000, before any
// certificate of ours may.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Config of a Cluster.
type Config struct {
	Dir    string   // of all its files; on a file system in memory it is fastest
	Hubs   []string // names
	Edges  []EdgeConfig
	Seed   uint64
	Taps   Observers
	Tuning HubTuning
	// RaftStreams has Raft speak over plain streams of the network, not over QUIC: most
	// of what an hour costs is three hubs that ask each other whether they live.
	RaftStreams bool
	// MinTTL and Grace of heartbeats; 0: those of a hub. BackoffCap of edges; 0: an
	// edge's.
	MinTTL, Grace, BackoffCap time.Duration
	// Prepare is called when the hubs serve, and no edge is there yet.
	Prepare          func(ctx context.Context, c *Cluster) error
	EdgeCertValidity time.Duration // 0: the hubs' default
	// LogLevel of the log files beside the data directories.
	LogLevel slog.Level
}

// HubTuning stretches the timers by which hubs know of each other, and bounds Raft's log.
// Zero: the hub's defaults.
type HubTuning struct {
	Raft                  hub.Raft
	PeerIdle, GossipProbe time.Duration
}

// Stretched are timers at four times their length, which costs a quarter of the time:
// three hubs that tick by the defaults are most of what an hour costs.
var Stretched = HubTuning{
	Raft: hub.Raft{
		HeartbeatTimeout: 4 * time.Second, ElectionTimeout: 4 * time.Second, LeaderLease: 2 * time.Second, CommitTimeout: time.Second,
	},
	PeerIdle: 10 * time.Second, GossipProbe: 4 * time.Second,
}

// Drawn is for runs that nobody expects anything of by the second: timers at eight times
// their length, and a log that is short enough for a hub that was away to need a snapshot.
var Drawn = HubTuning{
	Raft: hub.Raft{
		HeartbeatTimeout: 8 * time.Second, ElectionTimeout: 8 * time.Second, LeaderLease: 4 * time.Second, CommitTimeout: 2 * time.Second,
		SnapshotInterval: 3 * time.Minute, SnapshotThreshold: 256, TrailingLogs: 8, SegmentBytes: 16 << 10,
	},
	PeerIdle: 20 * time.Second, GossipProbe: 16 * time.Second,
}

// EdgeConfig of one edge.
type EdgeConfig struct {
	Name       string
	Datacenter string
	Site       string
	TimeZone   string
	NodePool   string
	Meta       map[string]string
	Attributes map[string]string // beside those that every machine has
	CPU        int               // MHz; 0: 4000
	MemoryMB   int               // 0: 4096
	// BackoffCap and JournalMaxBytes are the edge's settings. 0: Config's, and the
	// journal's default.
	BackoffCap      time.Duration
	JournalMaxBytes int64
}

// Cluster is a running fleet.
type Cluster struct {
	Net   *fabric.Net
	Hubs  []*Hub
	Edges []*Edge

	cfg      Config
	began    time.Time
	operator *fabric.Host

	mu   sync.Mutex
	logs []*os.File // guarded by mu
}

// Start waits until the run's epoch, starts hubs, waits until they agree, and starts
// edges.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	time.Sleep(time.Until(epoch))
	c := &Cluster{cfg: cfg, Net: fabric.New(cfg.Seed), began: time.Now()}
	c.operator = c.Net.Host("operator", "10.9.0.1")
	if err := c.startMembers(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Elapsed is how long the run has lasted, in its own time.
func (c *Cluster) Elapsed() time.Duration { return time.Since(c.began) }

func (c *Cluster) startMembers(ctx context.Context) error {
	for i, name := range c.cfg.Hubs {
		h, err := c.newHub(name, i)
		if err != nil {
			return err
		}
		c.Hubs = append(c.Hubs, h)
		if err := h.Start(ctx); err != nil {
			return err
		}
		if err := h.awaitReady(ctx); err != nil {
			return err
		}
	}
	if c.cfg.Prepare != nil {
		if err := c.cfg.Prepare(ctx, c); err != nil {
			return err
		}
	}
	for i, ec := range c.cfg.Edges {
		e, err := c.NewEdge(ec, i)
		if err != nil {
			return err
		}
		c.Edges = append(c.Edges, e)
		if err := e.Start(); err != nil {
			return err
		}
	}
	return nil
}

// Hub returns the hub of a name.
func (c *Cluster) Hub(name string) *Hub {
	for _, h := range c.Hubs {
		if h.Name == name {
			return h
		}
	}
	return nil
}

// Edge returns the edge of a name.
func (c *Cluster) Edge(name string) *Edge {
	for _, e := range c.Edges {
		if e.Name == name {
			return e
		}
	}
	return nil
}

// Leader is the hub that leads, as the one with the highest term says; nil: none.
func (c *Cluster) Leader() *Hub {
	for _, h := range c.Hubs {
		if d := h.runningDaemon(); d != nil && d.Leads() {
			return h
		}
	}
	return nil
}

// runningViews are what the hubs that run know now.
func (c *Cluster) runningViews() iter.Seq2[*Hub, *state.View] {
	return func(yield func(*Hub, *state.View) bool) {
		for _, h := range c.Hubs {
			if d := h.runningDaemon(); d != nil && !yield(h, d.State().View()) {
				return
			}
		}
	}
}

// hubAddrs are the QUIC addresses of all hubs.
func (c *Cluster) hubAddrs() []string {
	addrs := make([]string, len(c.Hubs))
	for i, h := range c.Hubs {
		addrs[i] = fmt.Sprintf("%s:%d", h.ip, quicPort)
	}
	return addrs
}

// Close stops everything that runs.
func (c *Cluster) Close() error {
	var errs []error
	for _, e := range c.Edges {
		errs = append(errs, e.Kill())
		e.world.Reboot()
	}
	for _, h := range c.Hubs {
		errs = append(errs, h.Crash())
	}
	c.Net.Close()
	time.Sleep(aftermath)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.logs {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// openLog opens the log of a member's daemon, beside its data directory.
func (c *Cluster) openLog(dir string) (*slog.Logger, error) {
	f, err := os.OpenFile(dir+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open a log: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.logs = append(c.logs, f)
	return slog.New(slog.NewTextHandler(f, &slog.HandlerOptions{Level: c.cfg.LogLevel})), nil
}

// tokenFile is the join token for edges that the first hub made, hubTokenFile the one
// for hubs.
func (c *Cluster) tokenFile() string { return filepath.Join(c.memberDir(c.cfg.Hubs[0]), "join-token") }
func (c *Cluster) hubTokenFile() string {
	return filepath.Join(c.memberDir(c.cfg.Hubs[0]), "hub-join-token")
}

func (c *Cluster) memberDir(name string) string { return filepath.Join(c.cfg.Dir, name) }
