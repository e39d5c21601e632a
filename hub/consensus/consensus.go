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

// Config configures a Node.
type Config struct {
	ID    fleet.HubID
	Addr  string // the QUIC address that other hubs reach this one at
	Dir   string // created if missing; only one process may use it
	Store *state.Store
	// Bootstrap makes this hub the only voter of a new cluster, if Dir has no log yet.
	Bootstrap bool

	// Dial opens a stream of ALPN skerry-raft/1 to a hub. Serve handles incoming connections.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Forward sends an encoded command to the leader at addr, and returns the answer of its
	// ApplyEncoded. If the error has a method NotSent() bool that returns true, the leader
	// surely never received the command.
	Forward func(ctx context.Context, addr string, cmd []byte) ([]byte, error)

	HeartbeatTimeout time.Duration // 0: 1 s
	ElectionTimeout  time.Duration // 0: 1 s
	LeaderLease      time.Duration // 0: 500 ms, at most HeartbeatTimeout
	CommitTimeout    time.Duration // until followers learn of a commit without a next entry. 0: 50 ms

	SnapshotInterval  time.Duration // how often to check whether a snapshot is due. 0: 10 s
	SnapshotThreshold uint64        // a snapshot is due after this many entries. 0: 65,536
	SnapshotBytes     int64         // or this many bytes, if the last snapshot is not larger. 0: 16 MiB
	TrailingLogs      uint64        // entries kept behind a snapshot, at most. 0: 4,096
	// SegmentBytes is the size of the log's files. Each is created at its full size, and deleted
	// as a whole after a snapshot. 0: 16 MiB.
	SegmentBytes int

	// Applied is called after each applied command, in order, from raft's goroutine. It must not
	// block. nil: no call.
	Applied func(Applied)
	// DiskStep is called before each labelled step of the log's disk protocol (see DiskSteps). A
	// test can return an error, which fails the step. nil: no call.
	DiskStep func(label string) error

	Log *slog.Logger // nil: discard
}

// Applied is an applied command with its result.
type Applied struct {
	Index   fleet.Index
	Term    uint64
	Command state.Command
	Result  state.Result
	View    *state.View // the state right after the command
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

// Node is this hub's member of the Raft cluster.
type Node struct {
	cfg     Config
	log     *slog.Logger
	raftLog hclog.Logger
	layer   *streamLayer
	machine *machine
	lead    chan bool     // see Leadership
	ready   chan struct{} // see Ready
	failed  chan error    // holds the first error that makes Run return

	raft           atomic.Pointer[raft.Raft] // nil before Run has opened it
	disk           atomic.Pointer[disk]
	leaderNotifier *changeNotifier // wakes Apply when the leader changes

	leaderChanges atomic.Uint64
	barrierTerm   atomic.Uint64 // newest term for which ReadIndex has waited for a barrier
	catchUps      *sharedCatchUp

	// Each command holds one turn until raft has applied it. Alone holds all turns, and increments
	// generation. It is not a mutex, because waiting for it must end with the caller's context.
	applyTurns *semaphore.Weighted
	generation atomic.Uint64

	mu       sync.Mutex
	stopping bool           // no new calls into raft
	calls    sync.WaitGroup // calls into raft that are in progress
	// abandoned is closed when calls no longer wait for what a later leader decides.
	abandoned chan struct{}
}

// New validates the configuration and fills in its defaults. It touches no disk and starts nothing.
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
		lead:  make(chan bool), ready: make(chan struct{}), failed: make(chan error, 1), abandoned: make(chan struct{}),
		leaderNotifier: newChangeNotifier(), catchUps: newSharedCatchUp(),
	}
	n.machine = &machine{store: cfg.Store, fail: n.failRun, applied: cfg.Applied}
	if err := raft.ValidateConfig(n.raftConfig()); err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "check the raft settings: %w", err)
	}
	return n, nil
}

// Run opens the log, and takes part in the cluster until ctx ends (it returns nil) or the hub cannot go on
// (it returns the reason). It may be called only once.
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
	// A leader reads new entries again for each follower, and every hub reads them to apply them.
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
	// It serves other hubs until raft has stopped: a leader that stops waits for the entries of the next one.
	serving, endServing := context.WithCancel(context.WithoutCancel(ctx))
	var served sync.WaitGroup
	served.Go(func() { trans.serveRequests(serving, trans.NetworkTransport.Consumer(), r.CurrentTerm, recent) })
	defer func() {
		err = errors.Join(err, n.stopRaft(r, trans))
		endServing()
		served.Wait()
	}()

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

// Ready is closed when Run has opened the log and restored the newest snapshot. Before that, calls fail
// with unavailable.
func (n *Node) Ready() <-chan struct{} { return n.ready }

// failRun makes Run return err, unless another error came first. It does not block.
func (n *Node) failRun(err error) {
	select {
	case n.failed <- err:
	default: // another error makes Run return already
	}
}

// stopRaft stops raft. A leader transfers its leadership first, so that the cluster need not wait for an election
// timeout. It waits for the calls in progress, which raft would never answer afterwards. They end: a command is applied,
// or the lease of a leader without a majority ends, and an election timeout later the wait for the outcome.
func (n *Node) stopRaft(r *raft.Raft, trans *coveredSnapshots) error {
	if r.State() == raft.Leader {
		if err := r.LeadershipTransfer().Error(); err != nil {
			n.log.Debug("nobody takes the lead", "error", err)
		}
	}
	n.mu.Lock()
	n.stopping = true
	n.mu.Unlock()
	// The next leader has been chosen, if there is one, and decides about what is in the log within a moment.
	giveUp := time.AfterFunc(n.cfg.ElectionTimeout, func() { close(n.abandoned) })
	n.calls.Wait()
	giveUp.Stop()
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

// observeLeaderChanges counts changes of the leader and wakes the waiters of leaderNotifier, until ctx
// ends.
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

// raftConfig returns raft's own configuration. Raft's automatic snapshots are off: runSnapshotLoop takes
// them.
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
	c.SnapshotInterval = time.Hour // runSnapshotLoop decides when
	c.SnapshotThreshold = 1 << 62
	c.ShutdownOnRemove = false // Run decides
	c.NoLegacyTelemetry = true
	return c
}

// changeNotifier wakes all waiters at the next event.
type changeNotifier struct {
	mu   sync.Mutex
	next chan struct{}
}

func newChangeNotifier() *changeNotifier { return &changeNotifier{next: make(chan struct{})} }

// nextChange returns a channel that is closed at the next event.
func (a *changeNotifier) nextChange() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.next
}

// notifyWaiters wakes all waiters.
func (a *changeNotifier) notifyWaiters() {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.next)
	a.next = make(chan struct{})
}

// orDefault returns v, or fallback if v is zero.
func orDefault[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}
