package consensus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"skerry/fleet"
	"skerry/hub/state"
)

// Config of a Node.
type Config struct {
	ID    fleet.HubID
	Addr  string // the QUIC address that other hubs reach this one at
	Dir   string // made where it is not there; one process at a time
	Store *state.Store
	// Bootstrap makes this hub the only voter of a new cluster, where Dir has no
	// state yet.
	Bootstrap bool

	// Dial opens a stream of ALPN skerry-raft/1 to a hub. Incoming connections
	// come by Serve.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Forward takes an encoded command to the leader's ApplyEncoded and brings its
	// answer. An error that has a method NotSent() bool which gives true says that
	// the leader surely never saw the command.
	Forward func(ctx context.Context, addr string, cmd []byte) ([]byte, error)

	HeartbeatTimeout time.Duration // 0: 1 s
	ElectionTimeout  time.Duration // 0: 1 s
	LeaderLease      time.Duration // 0: 500 ms, at most HeartbeatTimeout
	CommitTimeout    time.Duration // until followers hear of a commit on which nothing follows. 0: 50 ms

	SnapshotInterval  time.Duration // how often to see whether one is due. 0: 10 s
	SnapshotThreshold uint64        // entries since the last one. 0: 65,536
	SnapshotBytes     int64         // or bytes of them, at least those of the last snapshot. 0: 16 MiB
	TrailingLogs      uint64        // entries kept behind a snapshot, at most. 0: 4,096
	// SegmentBytes is the size of the log's files: each is made at its full size, and
	// only whole ones are given back after a snapshot. 0: 16 MiB.
	SegmentBytes int

	// Applied is told of every command that was applied, in order, by raft's own
	// goroutine: it must not block. nil: nobody is.
	Applied func(Applied)
	// DiskStep is called before each labelled step of the log's disk protocol (see
	// DiskSteps), so that a test can fail it there. nil: nothing.
	DiskStep func(label string) error

	Log *slog.Logger // nil: discard
}

// Applied is a command that was applied, and what came of it.
type Applied struct {
	Index   fleet.Index
	Term    uint64
	Command state.Command
	Result  state.Result
	View    *state.View // right after it
}

const (
	// maxAppend is how many entries raft writes with one fsync and sends in one
	// message. It knows no bound in bytes, hence not more.
	maxAppend = 64
	// rpcTimeout bounds one of raft's messages to a hub that is connected but does
	// not answer; one that is gone is noticed by its connection.
	rpcTimeout = 5 * time.Second
	// streamsPerPeer is how many idle streams raft keeps to a hub.
	streamsPerPeer = 3
)

// Node is this hub's part in the agreement.
type Node struct {
	cfg     Config
	log     *slog.Logger
	raftLog hclog.Logger
	layer   *streamLayer
	machine *machine
	lead    chan bool
	ready   chan struct{}
	failed  chan error // what makes Run return; the first one counts

	raft           atomic.Pointer[raft.Raft] // nil before Run has opened it
	disk           atomic.Pointer[disk]
	leaderNotifier *changeNotifier // of changes of the leader

	leaderChanges atomic.Uint64
	barrierTerm   atomic.Uint64 // newest term in which everything before it is applied here

	// Who gives a command to raft has one turn of order until it is applied; one that goes
	// alone has all of them, and begins another era. It is no mutex: raft may take long.
	applyTurns *semaphore.Weighted
	generation atomic.Uint64

	mu       sync.Mutex
	stopping bool           // no new calls into raft
	calls    sync.WaitGroup // those in progress
}

// New checks the configuration. It touches no disk and starts nothing.
func New(cfg Config) (*Node, error) {
	if cfg.ID == "" || cfg.Addr == "" || cfg.Dir == "" || cfg.Store == nil || cfg.Dial == nil || cfg.Forward == nil {
		return nil, errors.New("make a consensus node: id, address, directory, store, dial and forward are required")
	}
	cfg.HeartbeatTimeout = orDefault(cfg.HeartbeatTimeout, time.Second)
	cfg.ElectionTimeout = orDefault(cfg.ElectionTimeout, time.Second)
	cfg.LeaderLease = orDefault(cfg.LeaderLease, cfg.HeartbeatTimeout/2)
	cfg.CommitTimeout = orDefault(cfg.CommitTimeout, 50*time.Millisecond)
	cfg.SnapshotInterval = orDefault(cfg.SnapshotInterval, 10*time.Second)
	cfg.SnapshotThreshold = orDefault(cfg.SnapshotThreshold, 65_536)
	cfg.SnapshotBytes = orDefault(cfg.SnapshotBytes, 16<<20)
	cfg.TrailingLogs = orDefault(cfg.TrailingLogs, 4_096)
	cfg.SegmentBytes = orDefault(cfg.SegmentBytes, 16<<20)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	n := &Node{
		applyTurns: semaphore.NewWeighted(allTurns),
		cfg:        cfg, log: cfg.Log, raftLog: newRaftLog(cfg.Log),
		layer: newStreamLayer(cfg.Addr, cfg.Dial),
		lead:  make(chan bool), ready: make(chan struct{}), failed: make(chan error, 1),
		leaderNotifier: newChangeNotifier(),
	}
	n.machine = &machine{store: cfg.Store, fail: n.failRun, applied: cfg.Applied}
	if err := raft.ValidateConfig(n.raftConfig()); err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "check the raft settings: %w", err)
	}
	return n, nil
}

// Run opens the log and takes part until ctx ends (nil), or the hub cannot go
// on. It is called once.
func (n *Node) Run(ctx context.Context) (err error) {
	defer n.layer.Close()
	if n.cfg.Bootstrap {
		if err := n.bootstrapLog(); err != nil {
			return fmt.Errorf("bootstrap consensus: %w", err)
		}
	}
	d, err := n.openDisk(n.cfg.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	// A leader reads what it just wrote once for each follower, and each hub to apply it.
	recent, err := raft.NewLogCache(maxAppend, d.log)
	if err != nil {
		return fmt.Errorf("cache the log: %w", err)
	}
	trans := newCoveredSnapshots(raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: n.layer, MaxPool: streamsPerPeer, Timeout: rpcTimeout, Logger: n.raftLog,
	}))
	r, err := raft.NewRaft(n.raftConfig(), n.machine, recent, d.log, d.snapshots, trans)
	if err != nil {
		return errors.Join(fmt.Errorf("start raft in %s: %w", n.cfg.Dir, err), trans.Close())
	}
	defer func() { err = errors.Join(err, n.stopRaft(r, trans)) }()

	observed := make(chan raft.Observation, 16)
	observer := raft.NewObserver(observed, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	})
	r.RegisterObserver(observer)
	defer r.DeregisterObserver(observer)
	n.disk.Store(d)
	n.raft.Store(r)
	close(n.ready)
	n.log.Info("consensus is open", "hub", n.cfg.ID, "last_index", r.LastIndex(), "term", r.CurrentTerm())

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return trans.serveRequests(ctx, trans.NetworkTransport.Consumer(), r.CurrentTerm, recent)
	})
	g.Go(func() error { return n.followLeadership(ctx, r) })
	g.Go(func() error { return n.observeLeaderChanges(ctx, observed) })
	g.Go(func() error { return n.runSnapshotLoop(ctx, r, d) })
	g.Go(func() error {
		select {
		case err := <-n.failed:
			return err
		case <-ctx.Done():
			return nil
		}
	})
	return g.Wait()
}

// Ready is closed when Run has opened the log and restored the newest snapshot.
// Before, everything that asks answers unavailable.
func (n *Node) Ready() <-chan struct{} { return n.ready }

// failRun makes Run return err.
func (n *Node) failRun(err error) {
	select {
	case n.failed <- err:
	default: // something else did it already
	}
}

// stopRaft ends raft. A leader hands over first, so that the others need not wait for
// its silence to be noticed. Calls in progress end, too: raft answers none of
// them afterwards. They do end: what is committed is applied, and a leader without
// a majority steps down by its lease.
func (n *Node) stopRaft(r *raft.Raft, trans *coveredSnapshots) error {
	if r.State() == raft.Leader {
		if err := r.LeadershipTransfer().Error(); err != nil {
			n.log.Debug("nobody takes the lead", "error", err)
		}
	}
	n.mu.Lock()
	n.stopping = true
	n.mu.Unlock()
	n.calls.Wait()
	if err := n.layer.Close(); err != nil {
		n.log.Debug("streams were over already", "error", err)
	}
	err := r.Shutdown().Error()
	trans.CloseStreams()
	if err != nil {
		return fmt.Errorf("stop raft: %w", err)
	}
	return nil
}

// observeLeaderChanges counts changes of the leader and tells those who wait for one.
func (n *Node) observeLeaderChanges(ctx context.Context, observed <-chan raft.Observation) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case o := <-observed:
			leader := o.Data.(raft.LeaderObservation)
			if leader.LeaderID != "" {
				n.leaderChanges.Add(1)
				n.log.Info("a leader is known", "leader", leader.LeaderID, "addr", leader.LeaderAddr)
			}
			n.leaderNotifier.notifyWaiters()
		}
	}
}

func (n *Node) raftConfig() *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(n.cfg.ID)
	c.Logger = n.raftLog
	c.HeartbeatTimeout = n.cfg.HeartbeatTimeout
	c.ElectionTimeout = n.cfg.ElectionTimeout
	c.LeaderLeaseTimeout = n.cfg.LeaderLease
	c.CommitTimeout = n.cfg.CommitTimeout
	c.MaxAppendEntries = maxAppend
	c.TrailingLogs = n.cfg.TrailingLogs
	c.SnapshotInterval = time.Hour // compact decides when
	c.SnapshotThreshold = 1 << 62
	c.ShutdownOnRemove = false // Run's to decide
	c.NoLegacyTelemetry = true
	return c
}

// changeNotifier wakes everybody who waits for the next event.
type changeNotifier struct {
	mu   sync.Mutex
	next chan struct{}
}

func newChangeNotifier() *changeNotifier { return &changeNotifier{next: make(chan struct{})} }

func (a *changeNotifier) nextChange() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.next
}

func (a *changeNotifier) notifyWaiters() {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.next)
	a.next = make(chan struct{})
}

func orDefault[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}
