package hub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"skerry/fleet"
	"skerry/hub/access"
	"skerry/hub/api"
	"skerry/hub/audit"
	"skerry/hub/bootstrap"
	"skerry/hub/broker"
	"skerry/hub/collector"
	"skerry/hub/consensus"
	"skerry/hub/drainer"
	"skerry/hub/gateway"
	"skerry/hub/httpserver"
	"skerry/hub/liveness"
	"skerry/hub/members"
	"skerry/hub/periodic"
	"skerry/hub/pki"
	"skerry/hub/planner"
	"skerry/hub/rollout"
	"skerry/hub/rpc"
	"skerry/hub/scheduler"
	"skerry/hub/secrets"
	"skerry/hub/snapshot"
	"skerry/hub/state"
	"skerry/internal/datadir"
	"skerry/internal/logtap"
	"skerry/syncproto/transport"
)

// Hub is one hub of a cluster.
type Hub struct {
	// Set by Open.
	cfg      Config
	log      *slog.Logger
	logTap   *logtap.Monitor // copies the records of log to listeners
	dir      *datadir.Dir
	creds    pki.Credentials
	own      *pki.OwnCertificate // creds.Identity with its renewals
	endpoint *transport.Endpoint
	listener net.Listener
	https    *httpserver.TLS // nil: HTTP is served in clear
	addr     state.HubAddr   // where others reach this hub
	raftPool *rpc.Pool
	hubPool  *rpc.Pool

	store     *state.Store
	peers     *rpc.Peers
	node      *consensus.Node
	bootstrap *bootstrap.Bootstrap
	members   *members.Members
	rotation  pki.Rotation
	stateKeys *pki.StateKeys
	keyring   *pki.Keyring
	enrolment *pki.Enrolment
	secrets   *secrets.Secrets
	locks     *secrets.Locks
	liveness  *liveness.Liveness
	gateway   *gateway.Gateway
	remote    *gateway.Remote // sessions of all hubs
	broker    *broker.Broker
	planner   *planner.Planner
	scheduler *scheduler.Scheduler
	drainer   *drainer.Drainer
	collector *collector.Collector
	periodic  *periodic.Launcher
	rollouts  *rollout.Watcher
	restorer  *snapshot.Restorer
	audit     *audit.Log
	auditTo   []audit.Destination
	access    *access.Resolver
	api       *api.API

	closing sync.Once
	closed  error
}

// Open opens the data directory, loads or creates the hub's identity, and binds its sockets. A hub that joins asks
// the hubs of Config.Join for its identity, until ctx ends. Errors that a person can fix are *fleet.Error.
func Open(ctx context.Context, cfg Config) (*Hub, error) {
	h := &Hub{cfg: cfg}
	if err := h.openFromConfig(ctx); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// Run serves until ctx ends (then it returns nil) or a component fails, and returns the first failure. It may be
// called once.
func (h *Hub) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	// Calls that wait for another hub end at once, not with their timeouts.
	defer context.AfterFunc(ctx, h.closePools)()
	runs := map[string]func(context.Context) error{
		"consensus": h.node.Run,
		"members":   h.members.Run,
		"gossip":    h.followGossipKeys,
		"gateway":   h.gateway.Run,
		"liveness":  h.liveness.Run,
		"scheduler": h.scheduler.Run,
		"accept":    h.acceptConnections,
		"http":      h.serveHTTP,
		"lead":      h.runLeaderLoop,
		"bootstrap": h.bootstrap.Run,
		"identity":  pki.Renewal{Own: h.own, Registry: h.stateRegistry(), Ready: h.Ready()}.Run,
		"streams":   h.serveStreams,
		"access":    h.rememberAccessControl,
		"joined":    h.learnAccessControl,
		"audit":     h.audit.Run,
		"edges":     func(ctx context.Context) error { return h.audit.FollowEdges(ctx, h.store) },
	}
	if h.https != nil {
		runs["certificate"] = h.https.Run
	}
	for _, to := range h.auditTo {
		runs["audit to "+to.Name()] = func(ctx context.Context) error { return h.audit.Forward(ctx, to) }
	}
	for name, run := range runs {
		group.Go(func() error {
			if err := run(ctx); err != nil {
				return fmt.Errorf("run %s: %w", name, err)
			}
			return nil
		})
	}
	h.log.Info("hub starts", "quic", h.addr.QUIC, "http", h.addr.HTTP, "gossip", h.addr.Gossip, "data_dir", h.dir.File())
	err := group.Wait()
	h.log.Info("hub stopped")
	return err
}

// Close releases everything that Open acquired, after Run has returned or instead of it. It may be called more than
// once.
func (h *Hub) Close() error {
	h.closing.Do(func() {
		var errs []error
		if h.members != nil {
			errs = append(errs, h.members.Close())
		}
		h.closePools()
		errs = append(errs, h.closeSockets())
		if h.audit != nil {
			errs = append(errs, h.audit.Close())
		}
		if h.dir != nil {
			errs = append(errs, h.dir.Close())
		}
		h.closed = errors.Join(errs...)
	})
	return h.closed
}

// closePools closes the connections to other hubs. Failures are only logged: the other hubs notice the loss by
// themselves.
func (h *Hub) closePools() {
	for _, p := range []*rpc.Pool{h.hubPool, h.raftPool} {
		if p == nil {
			continue
		}
		if err := p.Close(); err != nil {
			h.log.Debug("connections to other hubs not closed", "error", err)
		}
	}
}

// closeSockets closes the sockets of QUIC and HTTP, and those of Config, also if Open failed before it used them.
func (h *Hub) closeSockets() error {
	var errs []error
	if h.endpoint != nil {
		errs = append(errs, h.endpoint.Close())
	} else if h.cfg.Packets != nil {
		errs = append(errs, h.cfg.Packets.Close())
	}
	if h.listener == nil {
		h.listener = h.cfg.Listener
	}
	listeners := []net.Listener{h.listener}
	if s := h.cfg.RaftStreams; s != nil {
		listeners = append(listeners, s.Listen)
	}
	for _, l := range listeners {
		if l == nil {
			continue
		}
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Ready returns a channel that is closed once the hub serves: the cluster knows its addresses, and its state has
// everything that was committed by then.
func (h *Hub) Ready() <-chan struct{} { return h.bootstrap.Ready() }

// HTTPAddr returns the address (host:port) of the HTTP API.
func (h *Hub) HTTPAddr() string { return h.addr.HTTP }

// QUICAddr returns the address (host:port) at which edges and other hubs reach this hub.
func (h *Hub) QUICAddr() string { return h.addr.QUIC }

// GossipAddr returns the address (host:port) of this hub's gossip.
func (h *Hub) GossipAddr() string { return h.addr.Gossip }

// State returns the hub's replica of the cluster's state, for tests and checkers.
func (h *Hub) State() *state.Store { return h.store }

// Leads reports whether this hub is the leader.
func (h *Hub) Leads() bool { return h.node.IsLeader() }

// JoinToken returns the token for edges that this hub created when it bootstrapped the cluster; "": it created none,
// or the file is gone.
func (h *Hub) JoinToken() string { return h.tokenIn(pki.JoinTokenFile) }

// HubJoinToken returns the token for hubs that this hub created when it bootstrapped the cluster, or "".
func (h *Hub) HubJoinToken() string { return h.tokenIn(pki.HubJoinTokenFile) }

// tokenIn reads a join token from a file of the data directory; "": it cannot be read.
func (h *Hub) tokenIn(file string) string {
	b, err := os.ReadFile(h.dir.File(file))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (h *Hub) hubID() fleet.HubID { return fleet.HubID(h.cfg.Name) }
