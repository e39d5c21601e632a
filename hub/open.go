package hub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"skerry/fleet"
	"skerry/hub/api"
	"skerry/hub/audit"
	"skerry/hub/bootstrap"
	"skerry/hub/broker"
	"skerry/hub/collector"
	"skerry/hub/consensus"
	"skerry/hub/drainer"
	"skerry/hub/events"
	"skerry/hub/gateway"
	"skerry/hub/liveness"
	"skerry/hub/login"
	"skerry/hub/members"
	"skerry/hub/periodic"
	"skerry/hub/pki"
	"skerry/hub/planner"
	"skerry/hub/rollout"
	"skerry/hub/rpc"
	"skerry/hub/scheduler"
	"skerry/hub/snapshot"
	"skerry/hub/state"
	"skerry/hub/workload"
	"skerry/internal/datadir"
	"skerry/internal/logtap"
	"skerry/syncproto"
)

// quicIdleTimeout is the silence after which a hub closes a connection that others dialed. Edges and hubs that dial
// choose a shorter time; sessions have their own deadlines.
const quicIdleTimeout = 2 * time.Hour

// peerIdleTimeout is the default of Config.PeerIdle. A call to a dead leader lasts that long, and the cluster must
// serve again within 5 s.
const peerIdleTimeout = 2500 * time.Millisecond

// openFromConfig does the work of Open. If it fails, Close releases what it has opened so far.
func (h *Hub) openFromConfig(ctx context.Context) error {
	cfg, err := h.cfg.withDefaults()
	if err != nil {
		return err
	}
	h.logTap = logtap.New()
	cfg.Log = h.logTap.WrapLogger(cfg.Log)
	h.cfg = cfg
	h.log = cfg.Log.With("self", cfg.Name)
	if h.dir, err = datadir.Open(cfg.DataDir, datadir.Kind{Owner: "a hub", Version: dataVersion, NeedsSpace: true}); err != nil {
		return err
	}
	creds, known, err := h.ownCredentials()
	if err != nil {
		return err
	}
	if err := h.openStateKeys(ctx); err != nil {
		return err
	}
	if err := errors.Join(h.openTLS(), h.listenHTTP()); err != nil {
		return err
	}
	h.store = state.New()
	serverTLS := new(atomic.Pointer[func([]string) (*tls.Config, error)])
	if err := h.openEndpoint(serverTLS); err != nil {
		return err
	}
	switch {
	case known:
	case cfg.Bootstrap:
		creds, err = pki.Bootstrap(ctx, cfg.Region, cfg.Name, h.dir, h.stateKeys, cfg.Now())
	default:
		creds, err = h.joinCluster(ctx)
	}
	if err == nil {
		err = pki.CheckClock(cfg.Now(), creds.Identity.CA)
	}
	if err != nil {
		return err
	}
	h.creds = creds
	h.own = pki.NewOwnCertificate(pki.OwnConfig{
		Dir: h.dir.File(pki.Folder), Identity: creds.Identity, Now: cfg.Now, Log: h.log, HTTPNames: h.httpNames(),
	})
	give := pki.ServerTLS(h.own.Identity, cfg.Now)
	serverTLS.Store(&give)
	return h.openComponents()
}

// joinCluster gets this hub's credentials from a hub of Config.Join, with the join token, and stores them.
func (h *Hub) joinCluster(ctx context.Context) (pki.Credentials, error) {
	token, err := h.cfg.joinToken()
	if err != nil {
		return pki.Credentials{}, err
	}
	return pki.Join(ctx, pki.JoinConfig{
		Name: h.cfg.Name, Hubs: h.cfg.Join, Token: token, Keys: h.stateKeys, Now: h.cfg.Now, Log: h.cfg.Log,
	}, h.dir, h.endpoint)
}

// ownCredentials reads the credentials in the data directory; known is false if there are none. It fails if the
// directory belongs to an edge or to another hub, or if it is empty and Config neither bootstraps nor joins.
func (h *Hub) ownCredentials() (creds pki.Credentials, known bool, err error) {
	if _, err := os.Stat(h.dir.File(edgeFile)); err == nil {
		return pki.Credentials{}, false, fleet.Errorf(fleet.CodeConflict, "open data directory %s: it belongs to an edge", h.dir.File()).
			WithHint("give the hub a data directory of its own")
	}
	creds, known, err = pki.LoadCredentials(h.dir.File(pki.Folder))
	switch {
	case err != nil:
		return pki.Credentials{}, false, err
	case known && creds.Identity.Name != h.cfg.Name:
		return pki.Credentials{}, false, fleet.Errorf(fleet.CodeConflict, "open data directory %s: it belongs to hub %q, not to %q", h.dir.File(), creds.Identity.Name, h.cfg.Name).
			WithHint("start it with --name %s", creds.Identity.Name)
	case known:
		if h.cfg.Bootstrap || len(h.cfg.Join) > 0 {
			h.log.Info("the data directory has an identity: bootstrap and join are done", "data_dir", h.dir.File())
		}
		return creds, true, nil
	case !h.cfg.Bootstrap && len(h.cfg.Join) == 0:
		return pki.Credentials{}, false, fleet.Errorf(fleet.CodeInvalid, "open data directory %s: it contains no identity", h.dir.File()).
			WithHint("create a new cluster with --bootstrap, or join one with --join and --token-file")
	}
	return pki.Credentials{}, false, pki.CheckClock(h.cfg.Now(), nil)
}

// openComponents creates the components, which need the hub's identity, in the order in which they need each other.
func (h *Hub) openComponents() error {
	for _, open := range []func() error{
		h.openPeers, h.openConsensus, h.openMembers, h.openBootstrap, h.openEdges, h.openScheduling, h.openLeaderComponents, h.openEnrolment, h.openSecrets, h.openAPI,
	} {
		if err := open(); err != nil {
			return err
		}
	}
	h.serveCalls()
	return nil
}

// serveCalls registers the methods that other hubs may call.
func (h *Hub) serveCalls() {
	h.node.ServeCalls(h.peers)
	h.broker.ServeCalls(h.peers)
	h.planner.ServeCalls(h.peers)
	h.liveness.ServeCalls(h.peers)
	h.remote.ServeCalls(h.gateway)
	methodRaftStatus.Handle(h.peers, func(context.Context, string, struct{}) (api.Standing, error) { return h.raftStatus(), nil })
	h.restorer.ServeCalls()
	h.keyring.ServeCalls()
	h.rotation.ServeCalls()
	h.locks.ServeCalls()
}

// openPeers sets this hub's addresses, and creates the connection pools for calls and for Raft.
func (h *Hub) openPeers() error {
	host, err := h.cfg.advertisedAddr()
	if err != nil {
		return err
	}
	h.addr.ID = h.hubID()
	if h.addr.QUIC, err = withPort(host, h.endpoint.Addr()); err != nil {
		return err
	}
	if h.addr.HTTP, err = h.httpAddr(host); err != nil {
		return err
	}
	clientTLS := func() *tls.Config { return h.own.Identity().ClientTLS(h.cfg.Now) }
	if h.hubPool, err = rpc.NewPool(rpc.PoolConfig{
		Dialer: h.endpoint, ALPN: syncproto.ALPNHub, TLS: clientTLS,
		IdleTimeout: h.cfg.PeerIdle, KeepAlive: h.cfg.PeerIdle / 3,
	}); err != nil {
		return err
	}
	if h.raftPool, err = rpc.NewPool(rpc.PoolConfig{Dialer: h.endpoint, ALPN: syncproto.ALPNRaft, TLS: clientTLS}); err != nil {
		return err
	}
	return nil
}

// httpAddr returns the address of the HTTP API: the listener's own IP address, or host if it listens on all
// addresses.
func (h *Hub) httpAddr(host string) (string, error) {
	if tcp, ok := h.listener.Addr().(*net.TCPAddr); ok && !tcp.IP.IsUnspecified() {
		return tcp.String(), nil
	}
	return withPort(host, h.listener.Addr())
}

// withPort returns host:port with the port of addr.
func withPort(host string, addr net.Addr) (string, error) {
	_, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return "", fmt.Errorf("find the port of %s: %w", addr, err)
	}
	return net.JoinHostPort(host, port), nil
}

// openConsensus opens the Raft log, and creates the calls to other hubs, which need to know the leader.
func (h *Hub) openConsensus() error {
	raft := h.cfg.Raft
	node, err := consensus.New(consensus.Config{
		ID: h.hubID(), Addr: h.addr.QUIC, Dir: h.dir.File(raftDir), Store: h.store,
		Bootstrap: h.creds.Pending != nil && h.creds.Pending.Cluster != nil,
		Dial:      h.dialRaft,
		Forward: func(ctx context.Context, addr string, cmd []byte) ([]byte, error) {
			return h.peers.Call(ctx, addr, consensus.MethodApply, cmd)
		},
		HeartbeatTimeout: raft.HeartbeatTimeout, ElectionTimeout: raft.ElectionTimeout, LeaderLease: raft.LeaderLease,
		CommitTimeout:    raft.CommitTimeout,
		SnapshotInterval: raft.SnapshotInterval, SnapshotThreshold: raft.SnapshotThreshold, TrailingLogs: raft.TrailingLogs,
		SegmentBytes: raft.SegmentBytes,
		Applied:      h.cfg.Applied, DiskStep: h.cfg.DiskStep,
		Log: h.log.With("component", "consensus"),
	})
	if err != nil {
		return err
	}
	h.node = node
	h.peers, err = rpc.New(rpc.Config{Pool: h.hubPool, Self: h.hubID(), Leadership: h.node, Log: h.log.With("component", "peers")})
	return err
}

// dialRaft opens a stream for Raft to the hub at addr.
func (h *Hub) dialRaft(ctx context.Context, addr string) (net.Conn, error) {
	if s := h.cfg.RaftStreams; s != nil {
		return s.Dial(ctx, addr)
	}
	stream, err := h.raftPool.Open(ctx, addr)
	if err != nil {
		return nil, err
	}
	return stream, nil
}

// openMembers binds the gossip port and sets the gossip address.
func (h *Hub) openMembers() error {
	host, err := h.cfg.advertisedAddr()
	if err != nil {
		return err
	}
	h.members, err = members.Open(members.Config{
		Self: members.Member{ID: h.hubID(), Region: h.cfg.Region, QUIC: h.addr.QUIC, HTTP: h.addr.HTTP, Build: h.cfg.Version},
		Bind: h.cfg.Bind, Port: h.cfg.GossipPort, Advertise: host, Key: h.creds.GossipKey,
		Seeds: func() []string {
			var out []string
			for _, a := range h.store.View().Hubs() {
				if a.ID != h.hubID() && a.Gossip != "" {
					out = append(out, a.Gossip)
				}
			}
			return out
		},
		Network: h.cfg.Gossip, Probe: h.cfg.GossipProbe,
		Log: h.log.With("component", "members"),
	})
	if err != nil {
		return err
	}
	h.addr.Gossip = h.members.Addr()
	return nil
}

// openBootstrap creates the component that makes or joins the cluster, and registers this hub's addresses.
func (h *Hub) openBootstrap() error {
	h.bootstrap = bootstrap.New(bootstrap.Config{
		Addr: h.addr, Pending: h.creds.Pending, Dir: h.dir, State: h.store, Raft: h.node, Peers: h.peers, Log: h.log,
	})
	return nil
}

// leaderApplier commits commands that this hub decides as the leader, and fails once another hub leads. A former
// leader that was suspended must not report lost nodes to the next one, nor bypass its planner.
func (h *Hub) leaderApplier() state.Applier { return state.ApplierFunc(h.node.Decide) }

// openEdges creates the components for edges: heartbeat deadlines, sessions, and calls to the sessions of other
// hubs.
func (h *Hub) openEdges() error {
	h.liveness = liveness.New(liveness.Config{
		Hub:    h.hubID(),
		Policy: h.cfg.Heartbeat,
		State:  h.store, Apply: h.leaderApplier(), Forward: h.forwardHeartbeats,
		Hubs: func() int { return len(h.store.View().Hubs()) }, SessionLease: gateway.SessionLease,
		Log: h.log.With("component", "liveness"),
	})
	h.remote = gateway.NewRemote(gateway.RemoteConfig{Hub: h.hubID(), State: h.store, Peers: h.peers, Leases: h.liveness, Raft: h.node})
	var err error
	h.gateway, err = gateway.New(gateway.Config{
		Hub: h.hubID(), State: h.store, Apply: h.node, Beats: h.liveness,
		Hubs: h.quicAddrs, Term: h.node.Term, Led: func() bool { _, _, ok := h.node.Leader(); return ok },
		Elsewhere: h.remote, Renew: h.remote.RenewLease, Now: h.cfg.Now, Decrypt: h.decryptVariable, CAs: h.own.Accepted,
		Sign:              &workload.Signer{Key: h.signingKey, Issuer: h.cfg.OIDCIssuer, Now: h.cfg.Now},
		LocalCapabilities: func(v *state.View, policies []string) []string { return h.access.LocalCapabilities(v, policies) },
		Log:               h.log.With("component", "gateway"),
	})
	return err
}

// forwardHeartbeats sends the heartbeats of this hub's edges to the leader.
func (h *Hub) forwardHeartbeats(ctx context.Context, beats []liveness.Heartbeat) error {
	return h.liveness.ForwardToLeader(ctx, h.peers, beats)
}

// quicAddrs returns the addresses that edges may dial, this hub's first, since it serves them now.
func (h *Hub) quicAddrs() []string {
	out := []string{h.addr.QUIC}
	for _, a := range h.store.View().Hubs() {
		if a.ID != h.hubID() {
			out = append(out, a.QUIC)
		}
	}
	return out
}

// openScheduling creates broker, planner and scheduler.
func (h *Hub) openScheduling() error {
	var err error
	if h.broker, err = broker.New(broker.Config{State: h.store, Applier: h.leaderApplier(), Logger: h.log.With("component", "broker")}); err != nil {
		return err
	}
	if h.planner, err = planner.New(planner.Config{
		State: h.store, Applier: h.leaderApplier(), Barrier: h.node.Barrier, Deliveries: h.broker, Logger: h.log.With("component", "planner"),
	}); err != nil {
		return err
	}
	h.scheduler, err = scheduler.New(scheduler.Config{
		State: h.store, Broker: broker.NewClient(h.broker, h.peers), Planner: planner.NewClient(h.planner, h.peers),
		Workers: h.cfg.Workers, Log: h.log.With("component", "scheduler"),
	})
	return err
}

// openLeaderComponents creates the components that only work on the leader: restore of snapshots, rollouts, drains,
// periodic jobs and garbage collection.
func (h *Hub) openLeaderComponents() error {
	h.restorer = snapshot.New(snapshot.Config{
		Hub: h.hubID(), State: h.store, Apply: h.node, Lead: h.leaderApplier(), Peers: h.peers, Log: h.log,
	})
	var err error
	if h.rollouts, err = rollout.New(rollout.Config{
		State: h.store, Apply: h.leaderApplier(), Suits: scheduler.SuitsFunc, Log: h.log.With("component", "rollout"),
	}); err != nil {
		return err
	}
	if h.drainer, err = drainer.New(drainer.Config{State: h.store, Apply: h.leaderApplier(), Log: h.log.With("component", "drainer")}); err != nil {
		return err
	}
	if h.periodic, err = periodic.New(periodic.Config{
		State: h.store, Apply: h.leaderApplier(), Now: h.cfg.Now, Log: h.log.With("component", "periodic"),
	}); err != nil {
		return err
	}
	h.collector, err = collector.New(collector.Config{
		State: h.store, Apply: h.leaderApplier(), Anywhere: cluster{h}, Log: h.log.With("component", "collector"),
	})
	return err
}

// openEnrolment creates the keyring of the state's secrets and the enrolment, which admits edges and hubs.
func (h *Hub) openEnrolment() error {
	h.keyring = pki.NewKeyring(pki.KeyringConfig{
		Keys: h.stateKeys, Hub: h.hubID(), State: h.store, Apply: h.node, Lead: h.leaderApplier(), Peers: h.peers,
		Others: h.bootstrap.OtherHubs, Voters: h.raftVoters, Bound: boundOfSecret, Now: h.cfg.Now, Log: h.log,
	})
	h.rotation = pki.Rotation{Registry: h.stateRegistry(), Hub: h.hubID(), Peers: h.peers, Now: h.cfg.Now}
	var err error
	h.enrolment, err = pki.NewEnrolment(pki.EnrolConfig{
		Registry: h.stateRegistry(),
		Hubs: func() (quic, gossip []string) {
			for _, a := range h.store.View().Hubs() {
				quic, gossip = append(quic, a.QUIC), append(gossip, a.Gossip)
			}
			return quic, gossip
		},
		CatchUp:      cluster{h}.CatchUp,
		EdgeValidity: h.cfg.EdgeCertValidity,
		Grace:        h.cfg.EdgeCertGrace,
		Now:          h.cfg.Now,
		Log:          h.log.With("component", "pki"),
	})
	return err
}

// stateRegistry gives package pki access to the join tokens and admissions in the state.
func (h *Hub) stateRegistry() pki.StateRegistry {
	return pki.StateRegistry{State: h.store, Apply: h.node, Keyring: h.keyring}
}

// openAPI creates the HTTP API over the other components.
func (h *Hub) openAPI() error {
	certified, needsCertificate := func(string) bool { return false }, false
	if h.https != nil {
		certified, needsCertificate = h.https.IsFor, h.https.NeedsClientCertificate()
	}
	var err error
	if h.audit, err = audit.Open(audit.Config{
		Dir: h.dir.File(auditDir), Hub: h.hubID(), Now: h.cfg.Now, Log: h.log.With("component", "audit"),
	}); err != nil {
		return err
	}
	if h.auditTo, err = h.cfg.auditDestinations(); err != nil {
		return err
	}
	if err := h.openAccess(); err != nil {
		return err
	}
	h.api, err = api.New(api.Config{
		State: h.store, Cluster: cluster{h}, Edges: h.remote, Jobs: jobs{h}, Garbage: h.collector, Events: events.New(h.store), Secrets: h.secrets, Locks: h.locks, Audit: h.audit, CA: h.rotation, StateKeys: h.keyring,
		Hosts: append([]string{h.addr.HTTP}, h.cfg.HTTPHosts...), Certified: certified, NeedsCertificate: needsCertificate,
		Logins: login.New(login.Config{State: h.store, Wrap: h.keyring, Now: h.cfg.Now, Log: h.log.With("component", "login")}),
		Access: h.access, Issuer: h.cfg.OIDCIssuer, ACLResetFile: h.dir.File("acl-bootstrap-reset"),
		Metrics: h.metricsGatherer(), Drivers: h.cfg.Drivers, Debug: h.cfg.Debug, Logs: h.logTap, EdgeHealth: h.cfg.EdgeHealth, Log: h.log.With("component", "api"),
	})
	return err
}
