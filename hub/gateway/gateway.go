// Package gateway serves edges: the hub's half of syncproto, over the connections
// that hub.Open accepts with ALPN skerry-edge/1. It commits sessions, folds the
// edges' reports into few Raft entries, sends each edge its desired state, detects
// machines that share an identity, and carries requests (a task's logs) to edges
// over their own connections.
//
// Each session is served by Serve in its caller's goroutine, by one reader for
// each of its three streams and by one that pushes desired state; Run folds. No
// session waits for another: a slow edge delays only its own connection.
// The package persists nothing.
package gateway

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
	"skerry/syncproto/transport"
)

// Bounds of the data that all sessions hold together.
const (
	// MaxUpdates is how many bytes of rows may be on their way to the cluster;
	// beyond it, edges are not read from.
	MaxUpdates = 64 << 20
	// probeTimeout is how long a live edge may take to answer a probe.
	probeTimeout = time.Second
)

// Config of a Gateway. All but CAs, Decrypt, LocalCapabilities, Sign, Now, Log and the durations are required.
type Config struct {
	Hub   fleet.HubID
	State *state.Store
	Apply state.Applier
	Beats HeartbeatTracker
	Hubs  func() []string // addresses that edges may dial
	// CAs returns the CAs of which edges are to accept hubs; nil, or an answer of nil: they know it already.
	CAs       func() *state.AcceptedCAs
	Term      func() uint64 // of Raft
	Led       func() bool   // whether this hub knows of a leader
	Elsewhere RemoteSessions
	// Renew asks the leader to renew this hub's lease on its sessions.
	Renew func(ctx context.Context) error
	// Decrypt decrypts the items of a variable, for edges whose allocations may read it; nil: none are delivered.
	Decrypt func(v *state.Variable) (fleet.VariableItems, error)
	// LocalCapabilities returns what policies allow a person on site, sorted; nil: no site codes are delivered. What it
	// returned is not changed.
	LocalCapabilities func(v *state.View, policies []string) []string
	// Sign signs the identities of tasks, for the edges that have them; nil: none are delivered.
	Sign Signer
	Now  func() time.Time // wall clock, as edges are told it; nil: time.Now
	// A hub that knows of no leader sends edges to other hubs: new sessions after RefuseAfter, which
	// is longer than an election (0: 5 s), and its open sessions when its lease is over (LeaseFor;
	// 0: SessionLease, which is the same for all hubs).
	RefuseAfter, LeaseFor time.Duration
	Log                   *slog.Logger
}

// HeartbeatTracker keeps deadlines.
type HeartbeatTracker interface {
	// TTL returns how long the next heartbeat of a node of a pool is valid.
	TTL(pool string) time.Duration
	// RecordHeartbeat notes that a heartbeat of a node's session arrived, and the TTL that it got.
	RecordHeartbeat(node fleet.NodeID, epoch fleet.Epoch, ttl time.Duration)
}

// RemoteSessions reaches sessions that another hub terminates.
type RemoteSessions interface {
	// FormerSession asks a hub about a node's former session, and the leader if that hub does not
	// answer. It fails if neither answers.
	FormerSession(ctx context.Context, hub fleet.HubID, node fleet.NodeID) (Former, error)
	// Logs opens the answer to a request on the hub that has a node's session, which may be this one.
	Logs(ctx context.Context, node fleet.NodeID, req syncproto.Request) (io.ReadCloser, error)
}

// Gateway is the part of a hub that serves edges.
type Gateway struct {
	cfg           Config
	updateBatcher *updateBatcher
	budget        *semaphore.Weighted
	leader        *leadership
	lease         *lease
	allowances    *allowances
	siteCodes     *siteCodeCache

	mu       sync.Mutex
	sessions map[fleet.NodeID]*session // committed ones, the newest of each node
	probes   uint64
	served   Stats
}

// Stats counts sessions since the hub started. Open is the number of sessions now.
type Stats struct {
	Open, Opened, Refused, Fenced uint64
	Updates                       uint64 // journal rows applied
}

// New checks the configuration.
func New(cfg Config) (*Gateway, error) {
	if cfg.Hub == "" || cfg.State == nil || cfg.Apply == nil || cfg.Beats == nil ||
		cfg.Hubs == nil || cfg.Term == nil || cfg.Led == nil || cfg.Elsewhere == nil || cfg.Renew == nil {
		return nil, errors.New("make the gateway: hub, state, applier, beats, hubs, term, led, elsewhere and renew are required")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.RefuseAfter == 0 {
		cfg.RefuseAfter = 5 * time.Second
	}
	if cfg.LeaseFor == 0 {
		cfg.LeaseFor = SessionLease
	}
	return &Gateway{
		cfg:           cfg,
		updateBatcher: newUpdateBatcher(cfg.Apply, cfg.Log),
		budget:        semaphore.NewWeighted(MaxUpdates),
		leader:        &leadership{},
		lease:         newLease(cfg.LeaseFor, cfg.Renew),
		allowances:    newAllowances(),
		siteCodes:     newSiteCodeCache(cfg),
		sessions:      make(map[fleet.NodeID]*session),
	}, nil
}

// Run commits batches of updates, watches whether there is a leader, ends the sessions of revoked
// nodes, and renews the lease, until ctx ends. Sessions work only while it runs.
func (g *Gateway) Run(ctx context.Context) error {
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { return g.updateBatcher.runCommitLoop(ctx) })
	work.Go(func() error { g.leader.watchLeader(ctx, g.cfg.Led); return nil })
	work.Go(func() error { g.endRevokedSessions(ctx); return nil })
	work.Go(func() error { g.lease.renewUntilDone(ctx); return nil })
	return work.Wait()
}

// Serve serves the session on conn until either side ends it, or ctx ends; the
// connection is then closed. The error says why it ended.
func (g *Gateway) Serve(ctx context.Context, conn *transport.Conn) error {
	role, name := conn.Peer()
	if role != fleet.RoleEdge {
		err := fleet.Errorf(fleet.CodeForbidden, "serve an edge: the certificate is of a %q", role)
		return errors.Join(err, conn.CloseWith(err))
	}
	s := newSession(g, conn, fleet.NodeID(name))
	err := s.serveSession(ctx)
	g.removeSession(s)
	return err
}

// Probe reports whether the edge of a node's session here answers within a
// second.
func (g *Gateway) Probe(ctx context.Context, node fleet.NodeID) bool {
	s, number := g.sessionToProbe(node)
	if s == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return s.probeEdge(ctx, number)
}

// sessionToProbe returns a node's session here, nil for none, and the number of a probe.
func (g *Gateway) sessionToProbe(node fleet.NodeID) (s *session, number uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.probes++
	return g.sessions[node], g.probes
}

// Logs sends a request for a task's output, or another request, to a node with a session here, and opens the answer.
// Reading ends with the output or with ctx; the caller closes it. CodeUnavailable: the node has no session here.
func (g *Gateway) Logs(ctx context.Context, node fleet.NodeID, req syncproto.Request) (io.ReadCloser, error) {
	return g.Talk(ctx, node, req)
}

// Talk is Logs for a request whose edge keeps reading: bytes written to the stream reach the edge.
func (g *Gateway) Talk(ctx context.Context, node fleet.NodeID, req syncproto.Request) (io.ReadWriteCloser, error) {
	s, probe := g.sessionToProbe(node)
	if s == nil {
		return nil, fleet.Errorf(fleet.CodeUnavailable, "ask for %s: node %s has no session with hub %s", req.Kind, fleet.Short(node), g.cfg.Hub).
			WithHint("its link is down; ask again when it is back")
	}
	return s.requestFromEdge(ctx, req, probe)
}

// Stats returns the counters of now.
func (g *Gateway) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	st := g.served
	st.Open = uint64(len(g.sessions))
	return st
}

// registerSession makes a committed session the node's session on this hub, and ends the one with
// the older epoch. That may be s itself, as two committed sessions may get here in any order.
func (g *Gateway) registerSession(s *session, epoch fleet.Epoch) {
	g.mu.Lock()
	s.epoch = epoch
	older := g.sessions[s.node]
	if older != nil && older.epoch > s.epoch {
		older = s
	} else {
		g.sessions[s.node] = s
	}
	g.served.Opened++
	g.mu.Unlock()
	if older != nil {
		older.endWithRefusal(staleEpoch(s.node))
	}
	g.endIfRevoked(s) // endRevokedSessions may have checked before the session was registered
}

func (g *Gateway) removeSession(s *session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sessions[s.node] == s {
		delete(g.sessions, s.node)
	}
}

func (g *Gateway) updateStats(f func(*Stats)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f(&g.served)
}

func staleEpoch(node fleet.NodeID) syncproto.Refused {
	return syncproto.Refused{
		Code:    fleet.CodeStaleEpoch,
		Message: "a newer session of node " + fleet.Short(node) + " took its place",
	}
}
