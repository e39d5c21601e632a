// Package liveness knows which edges are still there. The leader holds a deadline
// for every node that has a session, in memory alone: a beat is never written to
// Raft. A deadline that passes makes one NodeStatus command for all nodes that
// are due with it, and so do nodes whose last allocation has been given up
// (disconnected becomes down).
//
// Package hub/gateway calls Beat on the hub that terminates a session. Run hands
// beats on to the leader, in batches, while this hub does not lead; Lead holds
// the deadlines while it does. hub.Open calls both; each is one goroutine. It
// persists nothing: after an election every deadline starts again, with time for
// the longest TTL that was given.
package liveness

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// What bounds a NodeStatus command and how it is made.
const (
	maxMissed         = 1000                   // nodes in one command
	minCommitInterval = 200 * time.Millisecond // between two commands, so that few entries say it
	retryAfter        = time.Second            // after a command that was not committed
	applyTimeout      = 10 * time.Second
	forwardTimeout    = 5 * time.Second // for one batch of beats on its way to the leader
)

// Config of a Liveness. All but Log and the durations are required.
type Config struct {
	Hub    fleet.HubID // this hub
	Policy Policy
	State  *state.Store
	Apply  state.Applier
	// Hubs is how many hubs share the edges.
	Hubs func() int
	// Forward hands beats to the leader.
	Forward func(ctx context.Context, beats []Heartbeat) error
	// ForwardEvery is how long a follower gathers beats. 0: 250 ms.
	ForwardEvery time.Duration
	// SweepEvery is how often the leader looks for nodes that it holds no deadline
	// of and for disconnected ones that nothing waits for any more. 0: half of
	// Policy.MinTTL, at most 5 s.
	SweepEvery time.Duration
	Log        *slog.Logger
}

// Heartbeat says that a node was heard in the session of that epoch, and was then
// given TTL until it beats again.
type Heartbeat struct {
	Node  fleet.NodeID  `cbor:"1,keyasint"`
	Epoch fleet.Epoch   `cbor:"2,keyasint"`
	TTL   time.Duration `cbor:"3,keyasint"`
}

// Liveness is one hub's part.
type Liveness struct {
	cfg Config

	mu           sync.Mutex
	leading      bool
	deadlines    *deadlines
	heard        map[fleet.NodeID]time.Time // last beats, while leading
	outbox       map[fleet.NodeID]Heartbeat // while not leading
	leadingSince time.Time                  // of this leadership
	leases       map[fleet.HubID]time.Time  // last renewals, while leading
	longestTTL   time.Duration              // TTL given, of what is known here
	nodes        int                        // fleet's size, as counted at counted
	hubs         int                        // likewise
	counted      time.Time
	stats        Stats

	lastActive time.Time // when Lead last did something; its goroutine's alone

	wake   chan struct{} // a deadline may have become the earliest; capacity 1
	gather chan struct{} // the outbox may not be empty; capacity 1
}

// Stats counts since the hub started, but for Deadlines, which is how many it
// holds: none while it does not lead.
type Stats struct {
	Deadlines int
	Beats     uint64 // taken from this hub's edges, and as the leader from other hubs
	Missed    uint64 // deadlines, as the leader
}

// Stats may be called at any time.
func (l *Liveness) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Deadlines = len(l.deadlines.byNode)
	return s
}

// New returns a Liveness that holds nothing yet.
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
		heard:     make(map[fleet.NodeID]time.Time),
		outbox:    make(map[fleet.NodeID]Heartbeat),
		leases:    make(map[fleet.HubID]time.Time),
		wake:      make(chan struct{}, 1),
		gather:    make(chan struct{}, 1),
	}
}

// TTL returns what a node of a pool is given at its next beat.
func (l *Liveness) TTL(pool string) time.Duration {
	view := l.cfg.State.View()
	l.mu.Lock()
	defer l.mu.Unlock()
	ttl := l.ttlLocked(view, pool)
	l.longestTTL = max(l.longestTTL, ttl)
	return ttl
}

// ttlLocked counts the fleet at most once a second: beats ask often.
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

// RecordHeartbeat takes a beat of a session of this hub's. It never blocks.
func (l *Liveness) RecordHeartbeat(node fleet.NodeID, epoch fleet.Epoch, ttl time.Duration) {
	l.RecordHeartbeats(Heartbeat{Node: node, Epoch: epoch, TTL: ttl})
}

// RecordHeartbeats takes beats: of this hub's sessions, or those that another hub forwarded.
// It never blocks.
func (l *Liveness) RecordHeartbeats(beats ...Heartbeat) {
	now := time.Now()
	l.mu.Lock()
	for _, b := range beats {
		l.longestTTL = max(l.longestTTL, b.TTL)
		if l.leading {
			l.heard[b.Node] = now
			l.deadlines.setDeadline(b.Node, b.Epoch, l.cfg.Policy.Deadline(now, b.TTL))
		} else if b.Epoch >= l.outbox[b.Node].Epoch {
			l.outbox[b.Node] = b
		}
	}
	l.stats.Beats += uint64(len(beats))
	to := l.gather
	if l.leading {
		to = l.wake
	}
	l.mu.Unlock()
	wakeChannel(to)
}

func wakeChannel(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is about to look
	}
}

// LastHeard tells when each node last beat, of those that did since this hub
// leads; ok is false where it does not lead.
func (l *Liveness) LastHeard() (heard map[fleet.NodeID]time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.leading {
		return nil, false
	}
	return maps.Clone(l.heard), true
}

// Run forwards beats to the leader until ctx ends. What could not be handed over
// is tried again with the next batch.
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
		beats := l.takeOutbox()
		if len(beats) == 0 {
			continue
		}
		err := l.forwardToLeader(ctx, beats)
		if err != nil {
			l.requeueOutbox(beats)
			if !failing && ctx.Err() == nil {
				l.cfg.Log.Warn("beats cannot be forwarded", "count", len(beats), "error", err)
			}
		}
		failing = err != nil
	}
}

func (l *Liveness) forwardToLeader(ctx context.Context, beats []Heartbeat) error {
	ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
	defer cancel()
	return l.cfg.Forward(ctx, beats)
}

func (l *Liveness) takeOutbox() []Heartbeat {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leading || len(l.outbox) == 0 {
		return nil
	}
	beats := make([]Heartbeat, 0, len(l.outbox))
	for _, b := range l.outbox {
		beats = append(beats, b)
	}
	clear(l.outbox)
	return beats
}

// requeueOutbox returns beats that were not delivered, behind any that came since.
func (l *Liveness) requeueOutbox(beats []Heartbeat) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leading {
		return // it holds fresh deadlines for all of them
	}
	for _, b := range beats {
		if _, newer := l.outbox[b.Node]; !newer {
			l.outbox[b.Node] = b
		}
	}
	wakeChannel(l.gather)
}

func hasSession(n *fleet.Node) bool {
	return n.Epoch > 0 && (n.Status == fleet.NodeReady || n.Status == fleet.NodeInitializing)
}
