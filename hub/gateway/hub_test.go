package gateway_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/gateway"
	"skerry/hub/pki"
	"skerry/hub/state"
	"skerry/syncproto"
	"skerry/syncproto/identity"
	"skerry/syncproto/transport"
	"skerry/syncproto/transport/transporttest"
)

const (
	node1 = fleet.NodeID("11111111-1111-4111-8111-111111111111")
	node2 = fleet.NodeID("22222222-2222-4222-8222-222222222222")
)

const (
	alloc1 = fleet.AllocID("aaaaaaaa-0000-4000-8000-000000000001")
	alloc2 = fleet.AllocID("aaaaaaaa-0000-4000-8000-000000000002")
)

// fixedTTLTracker is liveness without deadlines.
type fixedTTLTracker struct{ ttl time.Duration }

func (b fixedTTLTracker) TTL(string) time.Duration                                 { return b.ttl }
func (b fixedTTLTracker) RecordHeartbeat(fleet.NodeID, fleet.Epoch, time.Duration) {}

// formerSessionFunc is the other hubs: a function.
type formerSessionFunc func(hub fleet.HubID, node fleet.NodeID) (gateway.Former, error)

func (e formerSessionFunc) FormerSession(_ context.Context, hub fleet.HubID, node fleet.NodeID) (gateway.Former, error) {
	return e(hub, node)
}

// otherHubs answers about other hubs; all sessions are those of hub.
type otherHubs struct {
	formerSessionFunc
	hub *hub
}

func (o otherHubs) Logs(ctx context.Context, node fleet.NodeID, req syncproto.Request) (io.ReadCloser, error) {
	return o.hub.gateway.Logs(ctx, node, req)
}

// hub is a gateway behind a socket.
type hub struct {
	*cluster
	listen    func(tb testing.TB) net.PacketConn // makes the socket of an edge
	gateway   *gateway.Gateway
	addr      net.Addr
	authority *pki.Authority
	cas       atomic.Pointer[state.AcceptedCAs] // that edges are told of
}

type options struct {
	// net is the simulated network of a test in virtual time, and path the way of its edges; nil: loopback.
	net   *transporttest.Net
	path  *transporttest.Path
	ttl   time.Duration
	probe formerSessionFunc
	// leaderless: the hub knows of no leader, though commands are applied.
	leaderless bool
	lease      time.Duration // 0: as in production
	// lags: the hub's state may be older than the cluster's.
	lags bool
	sign gateway.Signer // nil: identities are not delivered
	// local says what policies allow on site; nil: no site codes are delivered.
	local func(v *state.View, policies []string) []string
	log   *slog.Logger // nil: nothing is logged
}

func newHub(tb testing.TB, opts options) *hub {
	tb.Helper()
	if opts.ttl == 0 {
		opts.ttl = time.Minute
	}
	if opts.probe == nil {
		opts.probe = func(hub fleet.HubID, _ fleet.NodeID) (gateway.Former, error) {
			return gateway.Former{}, fmt.Errorf("no hub %s", hub)
		}
	}
	now := time.Now()
	made, err := pki.NewCluster("global", now)
	if err != nil {
		tb.Fatal(err)
	}
	authority, err := pki.NewAuthority(made)
	if err != nil {
		tb.Fatal(err)
	}
	h := &hub{cluster: newCluster(tb, opts.lags), authority: authority, listen: listenOnLoopback}
	socket := listenOnLoopback
	if opts.net != nil {
		socket = func(tb testing.TB) net.PacketConn { return opts.net.Listen(tb, "10.0.0.1:4647") }
		h.listen = func(testing.TB) net.PacketConn { return opts.path.Socket() }
	}
	own := h.Store
	if opts.lags {
		own = h.own
	}
	h.mustApply(state.ClusterInit{Cluster: made})
	h.mustApply(state.Hub{Hub: state.HubAddr{ID: "hub-1", QUIC: "127.0.0.1:4647"}})
	h.gateway, err = gateway.New(gateway.Config{
		Hub: "hub-1", State: own, Apply: h.cluster, Beats: fixedTTLTracker{opts.ttl},
		Hubs: func() []string { return []string{"127.0.0.1:4647"} }, Term: func() uint64 { return 7 }, Elsewhere: otherHubs{opts.probe, h},
		Sign: opts.sign, LocalCapabilities: opts.local,
		Decrypt: func(v *state.Variable) (fleet.VariableItems, error) {
			return fleet.VariableItems{"k": string(v.Sealed.Data)}, nil
		},
		CAs: h.cas.Load, Log: opts.log,
		Led: func() bool { return !opts.leaderless }, RefuseAfter: time.Second, LeaseFor: opts.lease,
		Renew: func(context.Context) error {
			if opts.leaderless {
				return errors.New("no leader")
			}
			return nil
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	id := h.mustIssue(fleet.RoleHub, "hub-1")
	endpoint := mustEndpoint(tb, socket(tb), pki.ServerTLS(func() *identity.Identity { return id }, time.Now))
	h.addr = endpoint.Addr()
	h.serveGateway(tb, endpoint)
	return h
}

// serveGateway runs the gateway until the test ends.
func (h *hub) serveGateway(tb testing.TB, endpoint *transport.Endpoint) {
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		if err := h.gateway.Run(ctx); err != nil {
			tb.Errorf("run the gateway: %v", err)
		}
	})
	work.Go(func() {
		for {
			conn, err := endpoint.Accept(ctx)
			if err != nil {
				return
			}
			work.Go(func() { _ = h.gateway.Serve(ctx, conn) }) // its error is the session's, which the edge is told
		}
	})
	tb.Cleanup(func() {
		cancel()
		work.Wait()
		if err := endpoint.Close(); err != nil {
			tb.Errorf("close the endpoint: %v", err)
		}
	})
}

func listenOnLoopback(tb testing.TB) net.PacketConn {
	tb.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	return conn
}

func mustEndpoint(tb testing.TB, conn net.PacketConn, serve func([]string) (*tls.Config, error)) *transport.Endpoint {
	tb.Helper()
	e, err := transport.New(transport.Config{Conn: conn, TLS: serve})
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

func (h *hub) mustIssue(role, name string) *identity.Identity {
	h.tb.Helper()
	id, _, err := h.authority.Issue(role, name, time.Now())
	if err != nil {
		h.tb.Fatal(err)
	}
	return id
}

func describe(node fleet.NodeID) *fleet.Node {
	return &fleet.Node{
		ID: node, Name: "edge-" + fleet.Short(node), Datacenter: "dc1", NodePool: "default", DescriptionHash: "h1",
		Resources: fleet.Resources{CPU: 4000, MemoryMB: 4096, DiskMB: 10000},
		Drivers:   map[string]fleet.DriverInfo{"raw_exec": {Detected: true, Healthy: true}},
	}
}

func (h *hub) mustDescribe(node fleet.NodeID) {
	h.tb.Helper()
	h.mustApply(state.NodeRegister{Node: *describe(node), Now: time.Now().UnixNano()})
}

// mustPlace registers a job and places an allocation of it on a node, as a plan
// would.
func (h *hub) mustPlace(node fleet.NodeID, id fleet.AllocID) {
	h.tb.Helper()
	job := &fleet.Job{
		Namespace: fleet.DefaultNamespace, ID: fleet.JobID("job-" + fleet.Short(id)), Name: "job", Type: fleet.JobTypeService,
		Datacenters: []string{"dc1"}, NodePool: fleet.DefaultPool, Priority: 50,
		TaskGroups: []fleet.TaskGroup{{Name: "g", Count: 1, Tasks: []fleet.Task{{Name: "t", Driver: "raw_exec"}}}},
	}
	h.mustApply(state.JobRegister{Job: job, Now: time.Now().UnixNano()})
	stored, ok := h.View().Job(job.Namespace, job.ID)
	if !ok {
		h.tb.Fatalf("job %s is not in the state", job.ID)
	}
	h.mustPlan(node, fleet.Alloc{
		ID: id, Namespace: job.Namespace, Name: string(job.ID) + ".g[0]", NodeID: node, JobID: job.ID, Job: stored,
		JobVersion: stored.Version, JobHash: stored.SpecHash, TaskGroup: "g",
		DesiredStatus: fleet.DesiredRun, ClientStatus: fleet.ClientPending,
	})
}

// mustPlaceLarge places an allocation whose job is about 30 KB.
func (h *hub) mustPlaceLarge(node fleet.NodeID, i int) {
	h.tb.Helper()
	id := fleet.AllocID(fmt.Sprintf("bbbb%04d-0000-4000-8000-000000000000", i))
	noise := make(map[string]string)
	for k := range 30 {
		noise[fmt.Sprint("k", k)] = fmt.Sprintf("%0*d", 1000, i*k)
	}
	job := &fleet.Job{
		Namespace: fleet.DefaultNamespace, ID: fleet.JobID(fmt.Sprint("large-", i)), Name: "large", Type: fleet.JobTypeService, Meta: noise,
		Datacenters: []string{"dc1"}, NodePool: fleet.DefaultPool, Priority: 50,
		TaskGroups: []fleet.TaskGroup{{Name: "g", Count: 1, Tasks: []fleet.Task{{Name: "t", Driver: "raw_exec"}}}},
	}
	h.mustApply(state.JobRegister{Job: job, Now: time.Now().UnixNano()})
	stored, _ := h.View().Job(job.Namespace, job.ID)
	h.mustPlan(node, fleet.Alloc{
		ID: id, Namespace: job.Namespace, Name: string(job.ID) + ".g[0]", NodeID: node, JobID: job.ID, Job: stored,
		JobVersion: stored.Version, JobHash: stored.SpecHash, TaskGroup: "g",
		DesiredStatus: fleet.DesiredRun, ClientStatus: fleet.ClientPending,
	})
}

func (h *hub) mustPlan(node fleet.NodeID, a fleet.Alloc) {
	h.tb.Helper()
	h.mustApply(state.Plan{
		Result: fleet.PlanResult{NodeAllocation: map[fleet.NodeID][]fleet.Alloc{node: {a}}},
		Jobs:   []*fleet.Job{a.Job}, Now: time.Now().UnixNano(),
	})
}

func (h *hub) mustStop(id fleet.AllocID, why string) {
	h.tb.Helper()
	a, ok := h.View().Alloc(id)
	if !ok {
		h.tb.Fatalf("allocation %s is not in the state", id)
	}
	stopped := *a
	stopped.DesiredStatus, stopped.DesiredDescription = fleet.DesiredStop, why
	h.mustApply(state.Plan{
		Result: fleet.PlanResult{NodeUpdate: map[fleet.NodeID][]fleet.Alloc{a.NodeID: {stopped}}},
		Jobs:   []*fleet.Job{a.Job}, Now: time.Now().UnixNano(),
	})
}
