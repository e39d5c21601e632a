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

	"skerry/chaos/engine"
	"skerry/chaos/fabric"
	"skerry/hub"
	"skerry/hub/state"
)

// Ports of every hub; each hub has its own address.
const (
	httpPort   = 4646
	quicPort   = 4647
	gossipPort = 4648
)

// aftermath is the time after Close in which goroutines of libraries end by themselves: timers and
// back-offs that cannot be cancelled. The longest is memberlist's wait for an answer to a probe:
// up to eight times GossipProbe, if a hub was cut off for long.
const aftermath = 3 * time.Minute

// epoch is the time at which a run begins. A bubble's clock starts in 2000, which certificates
// do not allow.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Config configures a Cluster.
type Config struct {
	Dir    string   // the directory of all files; fastest on a file system in memory
	Hubs   []string // names
	Edges  []EdgeConfig
	Seed   uint64
	Taps   Observers
	Tuning HubTuning
	// RaftStreams lets Raft use plain streams of the network in place of QUIC. It saves
	// time: most of the cost of an hour is the heartbeats of three hubs.
	RaftStreams bool
	// MinTTL and Grace of heartbeats, and BackoffCap of edges; 0: the production defaults.
	MinTTL, Grace, BackoffCap time.Duration
	// Prepare is called after the hubs have started and before the edges start; may be nil.
	Prepare          func(ctx context.Context, c *Cluster) error
	EdgeCertValidity time.Duration // 0: the hubs' default
	// TemplatePoll is the interval at which edges look at the sources of templates that report no change. 0: a minute.
	TemplatePoll time.Duration
	// LogLevel is the level of the log files, which lie beside the data directories.
	LogLevel slog.Level
}

// HubTuning sets the timers of hubs for Raft, connections and gossip, and the size of Raft's
// log. Zero: the hub's defaults.
type HubTuning struct {
	Raft                  hub.Raft
	PeerIdle, GossipProbe time.Duration
}

// Stretched has timers at four times their defaults. A run takes a quarter of the time: with
// the defaults most of it goes into the heartbeats of three hubs.
var Stretched = HubTuning{
	Raft: hub.Raft{
		HeartbeatTimeout: 4 * time.Second, ElectionTimeout: 4 * time.Second, LeaderLease: 2 * time.Second, CommitTimeout: time.Second,
	},
	PeerIdle: 10 * time.Second, GossipProbe: 4 * time.Second,
}

// Drawn is for drawn runs, which have no expectations to the second: timers at eight times their
// defaults, and a Raft log so short that a hub that was down needs a snapshot.
var Drawn = HubTuning{
	Raft: hub.Raft{
		HeartbeatTimeout: 8 * time.Second, ElectionTimeout: 8 * time.Second, LeaderLease: 4 * time.Second, CommitTimeout: 2 * time.Second,
		SnapshotInterval: 3 * time.Minute, SnapshotThreshold: 256, TrailingLogs: 8, SegmentBytes: 16 << 10,
	},
	PeerIdle: 20 * time.Second, GossipProbe: 16 * time.Second,
}

// EdgeConfig configures one edge.
type EdgeConfig struct {
	Name       string
	Datacenter string
	Site       string
	TimeZone   string
	NodePool   string
	Meta       map[string]string
	Attributes map[string]string // in addition to those of every machine
	CPU        int               // MHz; 0: 4000
	MemoryMB   int               // 0: 4096
	// BackoffCap and JournalMaxBytes are settings of the edge. 0: the cluster's BackoffCap,
	// and the journal's default.
	BackoffCap      time.Duration
	JournalMaxBytes int64
}

// Cluster is a fleet of hubs and edges on a simulated network.
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

// Start sleeps until the epoch, starts the hubs one after the other, calls Config.Prepare, and
// starts the edges. Hubs are ready when it returns; edges may still be connecting. On an error it
// closes the cluster.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	time.Sleep(time.Until(epoch))
	c := &Cluster{cfg: cfg, Net: fabric.New(cfg.Seed), began: time.Now()}
	c.operator = c.Net.Host("operator", "10.9.0.1")
	if err := c.startMembers(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Elapsed returns the virtual time since Start.
func (c *Cluster) Elapsed() time.Duration { return time.Since(c.began) }

// startMembers starts the hubs and waits until each is ready, calls Prepare, and starts the edges.
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

// Hub returns the hub of that name; nil if there is none.
func (c *Cluster) Hub(name string) *Hub {
	for _, h := range c.Hubs {
		if h.Name == name {
			return h
		}
	}
	return nil
}

// Edge returns the edge of that name; nil if there is none.
func (c *Cluster) Edge(name string) *Edge {
	for _, e := range c.Edges {
		if e.Name == name {
			return e
		}
	}
	return nil
}

// Leader returns the first running hub that considers itself the leader; nil if none does.
func (c *Cluster) Leader() *Hub {
	for _, h := range c.Hubs {
		if d := h.runningDaemon(); d != nil && d.Leads() {
			return h
		}
	}
	return nil
}

// runningViews iterates over the running hubs with the current state of each.
func (c *Cluster) runningViews() iter.Seq2[*Hub, *state.View] {
	return func(yield func(*Hub, *state.View) bool) {
		for _, h := range c.Hubs {
			if d := h.runningDaemon(); d != nil && !yield(h, d.State().View()) {
				return
			}
		}
	}
}

// hubAddrs returns the QUIC addresses of all hubs.
func (c *Cluster) hubAddrs() []string {
	addrs := make([]string, len(c.Hubs))
	for i, h := range c.Hubs {
		addrs[i] = fmt.Sprintf("%s:%d", h.ip, quicPort)
	}
	return addrs
}

// Close kills all agents, tasks and hubs, closes the network, and sleeps for aftermath, so that no
// goroutine is left.
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

// openLog opens the log file of a member's daemon, dir.log, which Close closes.
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

// tokenFile and hubTokenFile are the paths of the join tokens for edges and for hubs, which the
// first hub writes.
func (c *Cluster) tokenFile() string {
	return filepath.Join(c.memberDir(c.cfg.Hubs[0]), engine.EdgeTokenFile)
}
func (c *Cluster) hubTokenFile() string {
	return filepath.Join(c.memberDir(c.cfg.Hubs[0]), engine.HubTokenFile)
}

func (c *Cluster) memberDir(name string) string { return filepath.Join(c.cfg.Dir, name) }
