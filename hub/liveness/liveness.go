// Package liveness detects which edges are gone. The leader holds a heartbeat deadline for every node that
// has a session, in memory: heartbeats are not written to Raft. One NodeStatus command is committed for
// all nodes that have missed their deadline, and for disconnected nodes without live allocations, which
// become down.
//
// Package hub/gateway calls RecordHeartbeat on the hub that terminates a session. Run forwards heartbeats
// to the leader, in batches, while this hub does not lead; Lead maintains the deadlines while it does.
// hub.Open runs both; each is one goroutine. It persists nothing: after an election every deadline starts
// again, with time for the longest TTL that was given.
package liveness

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// Bounds of NodeStatus commands and of the calls that forward heartbeats.
const (
	maxMissed         = 1000                   // nodes in one command
	minCommitInterval = 200 * time.Millisecond // between two commands, so that nodes share them
	retryAfter        = time.Second            // after a command that was not committed
	applyTimeout      = 10 * time.Second
	forwardTimeout    = 5 * time.Second // for forwarding one batch of heartbeats
)

// Config configures a Liveness. All fields but Log and the durations are required.
type Config struct {
	Hub    fleet.HubID // this hub
	Policy Policy
	State  *state.Store
	Apply  state.Applier
	// Hubs returns how many hubs share the edges.
	Hubs func() int
	// Forward sends heartbeats to the leader: see ForwardToLeader.
	Forward func(ctx context.Context, heartbeats []Heartbeat) error
	// ForwardEvery is how long a follower collects heartbeats for one batch. 0: 250 ms.
	ForwardEvery time.Duration
	// SweepEvery is how often the leader checks for nodes without a deadline, and for
	// disconnected nodes without live allocations. 0: half of Policy.MinTTL, at most 5 s.
	SweepEvery time.Duration
	// SessionLease is how long a hub that has lost the leader answers heartbeats. 0: hubs answer none then.
	SessionLease time.Duration
	Log          *slog.Logger
}

// Heartbeat is a heartbeat of a node in the session of that epoch. TTL is the time that the node was given
// until its next one.
type Heartbeat struct {
	Node  fleet.NodeID  `cbor:"1,keyasint"`
	Epoch fleet.Epoch   `cbor:"2,keyasint"`
	TTL   time.Duration `cbor:"3,keyasint"`
}

// contact is a heartbeat that was received in the session of that epoch.
type contact struct {
	epoch fleet.Epoch
	at    time.Time
}

// Liveness records heartbeats on one hub, and holds the deadlines while that hub leads.
type Liveness struct {
	cfg Config

	mu           sync.Mutex
	leading      bool
	deadlines    *deadlines
	heard        map[fleet.NodeID]contact   // last heartbeats: while not leading, of this hub's sessions
	outbox       map[fleet.NodeID]Heartbeat // to be forwarded, while not leading
	leadingSince time.Time                  // when the deadlines were last restarted
	leases       map[fleet.HubID]time.Time  // last renewals by hub, while leading
	longestTTL   time.Duration              // the longest TTL that this hub gave or received
	nodes        int                        // nodes with a session, at the time counted
	hubs         int                        // hubs, at the time counted
	counted      time.Time
	stats        Stats

	lastActive time.Time // when Lead last ran; only its goroutine uses it

	wake   chan struct{} // wakes Lead: the earliest deadline may have changed; capacity 1
	gather chan struct{} // wakes Run: the outbox may not be empty; capacity 1
}

// Stats has counters since the hub started. Deadlines is the current number of deadlines: none while this
// hub does not lead.
type Stats struct {
	Deadlines int
	Beats     uint64 // heartbeats recorded, of this hub's edges and forwarded ones
	Missed    uint64 // nodes whose status changed after a missed deadline, while leading
}

// Stats returns the current counters.
func (l *Liveness) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Deadlines = len(l.deadlines.byNode)
	return s
}

// New returns a Liveness and fills in the defaults of its configuration. It starts nothing.
func New(cfg Config) *Liveness {
	if cfg.ForwardEvery <= 0 {
		cfg.ForwardEvery = 250 * time.Millisecond
	}
	if cfg.SweepEvery <= 0 {
		cfg.SweepEvery = min(max(cfg.Policy.MinTTL/2, 100*time.Millisecond), 5*time.Second)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Liveness{
		cfg:       cfg,
		deadlines: newDeadlines(),
		heard:     make(map[fleet.NodeID]contact),
		outbox:    make(map[fleet.NodeID]Heartbeat),
		leases:    make(map[fleet.HubID]time.Time),
		wake:      make(chan struct{}, 1),
		gather:    make(chan struct{}, 1),
	}
}

// TTL returns the TTL to give to a node of a pool with its next heartbeat.
func (l *Liveness) TTL(pool string) time.Duration {
	view := l.cfg.State.View()
	l.mu.Lock()
	defer l.mu.Unlock()
	ttl := l.ttlLocked(view, pool)
	l.longestTTL = max(l.longestTTL, ttl)
	return ttl
}

// ttlLocked computes the TTL for a pool. It counts the nodes at most once a second, because each heartbeat
// asks. The caller holds mu.
func (l *Liveness) ttlLocked(view *state.View, pool string) time.Duration {
	if now := time.Now(); l.counted.IsZero() || now.Sub(l.counted) >= time.Second {
		l.nodes, l.hubs, l.counted = 0, l.cfg.Hubs(), now
		for n := range view.Nodes("") {
			if hasSession(n) {
				l.nodes++
			}
		}
	}
	var own time.Duration
	if p, ok := view.Pool(pool); ok {
		own = p.HeartbeatTTL
	}
	return l.cfg.Policy.TTL(l.nodes, l.hubs, own)
}

// RecordHeartbeat records a heartbeat in a session of this hub: see RecordHeartbeats.
func (l *Liveness) RecordHeartbeat(node fleet.NodeID, epoch fleet.Epoch, ttl time.Duration) {
	l.RecordHeartbeats(Heartbeat{Node: node, Epoch: epoch, TTL: ttl})
}

// RecordHeartbeats records heartbeats of this hub's sessions, or forwarded ones. On the leader they move
// the nodes' deadlines; on another hub they are queued for the leader. It never blocks.
func (l *Liveness) RecordHeartbeats(heartbeats ...Heartbeat) {
	now := time.Now()
	l.mu.Lock()
	for _, b := range heartbeats {
		l.longestTTL = max(l.longestTTL, b.TTL)
		l.heard[b.Node] = contact{epoch: b.Epoch, at: now}
		if l.leading {
			l.deadlines.setDeadline(b.Node, b.Epoch, l.cfg.Policy.Deadline(now, b.TTL))
		} else if b.Epoch >= l.outbox[b.Node].Epoch {
			l.outbox[b.Node] = b
		}
	}
	l.stats.Beats += uint64(len(heartbeats))
	to := l.gather
	if l.leading {
		to = l.wake
	}
	l.mu.Unlock()
	wakeChannel(to)
}

// wakeChannel puts a token into c unless there is one. It does not block.
func wakeChannel(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // the receiver has not taken the last token yet
	}
}

// LastHeard returns the time of each node's last heartbeat, since this hub leads or in a session of its
// own; ok is false if it does not lead.
func (l *Liveness) LastHeard() (heard map[fleet.NodeID]time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.leading {
		return nil, false
	}
	heard = make(map[fleet.NodeID]time.Time, len(l.heard))
	for node, c := range l.heard {
		heard[node] = c.at
	}
	return heard, true
}

// Run forwards queued heartbeats to the leader until ctx ends. Heartbeats that could not be forwarded are
// part of the next batch.
func (l *Liveness) Run(ctx context.Context) error {
	every := time.NewTimer(0)
	defer every.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.gather:
		}
		every.Reset(l.cfg.ForwardEvery)
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		}
		heartbeats := l.takeOutbox()
		if len(heartbeats) == 0 {
			continue
		}
		err := l.forwardToLeader(ctx, heartbeats)
		if err != nil {
			l.requeueOutbox(heartbeats)
			if !failing && ctx.Err() == nil {
				l.cfg.Log.Warn("heartbeats cannot be forwarded", "count", len(heartbeats), "error", err)
			}
		}
		failing = err != nil
	}
}

// forwardToLeader calls Config.Forward with a timeout.
func (l *Liveness) forwardToLeader(ctx context.Context, heartbeats []Heartbeat) error {
	ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
	defer cancel()
	return l.cfg.Forward(ctx, heartbeats)
}

// takeOutbox removes and returns the queued heartbeats; none while this hub leads.
func (l *Liveness) takeOutbox() []Heartbeat {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leading || len(l.outbox) == 0 {
		return nil
	}
	heartbeats := make([]Heartbeat, 0, len(l.outbox))
	for _, b := range l.outbox {
		heartbeats = append(heartbeats, b)
	}
	clear(l.outbox)
	return heartbeats
}

// requeueOutbox queues heartbeats again that were not forwarded. A newer heartbeat of the same node stays.
func (l *Liveness) requeueOutbox(heartbeats []Heartbeat) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leading {
		return // all nodes have new deadlines on this hub
	}
	for _, b := range heartbeats {
		if _, newer := l.outbox[b.Node]; !newer {
			l.outbox[b.Node] = b
		}
	}
	wakeChannel(l.gather)
}

// hasSession reports whether a node has a session, according to its status.
func hasSession(n *fleet.Node) bool {
	return n.Epoch > 0 && (n.Status == fleet.NodeReady || n.Status == fleet.NodeInitializing)
}
