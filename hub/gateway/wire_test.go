package gateway_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/gateway"
	"skerry/hub/pki"
	"skerry/hub/state"
	"skerry/syncproto"
	"skerry/syncproto/identity"
	"skerry/syncproto/transport"
)

// patience is how long a test waits for what must come.
const patience = 10 * time.Second

const (
	node1 = fleet.NodeID("11111111-1111-4111-8111-111111111111")
	node2 = fleet.NodeID("22222222-2222-4222-8222-222222222222")
)

// cluster is a replicated state without Raft: commands apply at once, or fail
// while broken is set. Where applied is set, it is called before a command's
// caller hears of it. Where own is set, the hub shows that in place of it: what is
// applied while behind is set comes there when it is not any more.
type cluster struct {
	*state.Store
	tb  testing.TB
	own *state.Store

	mu      sync.Mutex
	behind  bool
	late    []func()
	index   fleet.Index
	broken  bool
	entries map[state.Kind]int
	applied func(state.Command)
}

func (c *cluster) Apply(_ context.Context, cmd state.Command) (state.Result, error) {
	res, err := c.apply(cmd)
	c.mu.Lock()
	applied := c.applied
	c.mu.Unlock()
	if applied != nil {
		applied(cmd)
	}
	return res, err
}

func (c *cluster) apply(cmd state.Command) (state.Result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken {
		return state.Result{}, fleet.Errorf(fleet.CodeUnavailable, "no leader")
	}
	// As Raft would: what is applied is what was decoded from the log.
	b, err := state.Encode(cmd)
	if err != nil {
		return state.Result{}, err
	}
	decoded, err := state.Decode(b)
	if err != nil {
		return state.Result{}, err
	}
	c.index++
	c.entries[cmd.Kind()]++
	if index := c.index; c.own != nil {
		c.late = append(c.late, func() { c.own.Apply(index, decoded) })
		c.catchUp()
	}
	return c.Store.Apply(c.index, decoded), nil
}

// catchUp brings the hub's own state to where the cluster is, unless that is to stay
// behind.
func (c *cluster) catchUp() {
	if c.behind {
		return
	}
	for _, apply := range c.late {
		apply()
	}
	c.late = nil
}

func (c *cluster) setBehind(behind bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.behind = behind
	c.catchUp()
}

// catchUpOne brings a hub's own state that stays behind one entry further.
func (c *cluster) catchUpOne() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late[0]()
	c.late = c.late[1:]
}

func (c *cluster) mustApply(cmd state.Command) state.Result {
	c.tb.Helper()
	res, err := c.Apply(c.tb.Context(), cmd)
	if err != nil || res.Err != nil {
		c.tb.Fatalf("apply %T: %v, %v", cmd, err, res.Err)
	}
	return res
}

func (c *cluster) setBroken(broken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = broken
}

func (c *cluster) setApplied(f func(state.Command)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.applied = f
}

func (c *cluster) count(k state.Kind) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries[k]
}

// describe is the whole state as text, but for how far the log is applied.
func (c *cluster) describe() string {
	c.tb.Helper()
	var b strings.Builder
	if err := c.View().Describe(&b); err != nil {
		c.tb.Fatalf("describe the state: %v", err)
	}
	var kept []string
	for line := range strings.Lines(b.String()) {
		if !strings.HasPrefix(line, `index "applied"`) {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// expectUnchanged fails with what is not as it was.
func (c *cluster) expectUnchanged(tb testing.TB, before string) {
	tb.Helper()
	was := strings.Split(before, "\n")
	for line := range strings.SplitSeq(c.describe(), "\n") {
		if !slices.Contains(was, line) {
			tb.Errorf("the state changed: %s", line)
		}
	}
}

// eventually waits for the state to be as wanted.
func (c *cluster) eventually(what string, ok func(v *state.View) bool) {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(c.tb.Context(), patience)
	defer cancel()
	for {
		if ok(c.View()) {
			return
		}
		// Tables change one after the other: look again soon as well.
		pause, done := context.WithTimeout(ctx, 10*time.Millisecond)
		<-pause.Done()
		done()
		if ctx.Err() != nil {
			c.tb.Fatalf("%s: not within %s; the state is\n%s", what, patience, c.describe())
		}
	}
}

func (c *cluster) mustNode(id fleet.NodeID) *fleet.Node {
	c.tb.Helper()
	n, ok := c.View().Node(id)
	if !ok {
		c.tb.Fatalf("node %s is not in the state:\n%s", id, c.describe())
	}
	return n
}

// steadyBeats is liveness without deadlines.
type steadyBeats struct{ ttl time.Duration }

func (b steadyBeats) TTL(string) time.Duration                       { return b.ttl }
func (b steadyBeats) Heard(fleet.NodeID, fleet.Epoch, time.Duration) {}

// elsewhere is the other hubs: a function.
type elsewhere func(hub fleet.HubID, node fleet.NodeID) (gateway.Former, error)

func (e elsewhere) Former(_ context.Context, hub fleet.HubID, node fleet.NodeID) (gateway.Former, error) {
	return e(hub, node)
}

// hub is a gateway behind a real socket.
type hub struct {
	*cluster
	gateway   *gateway.Gateway
	addr      net.Addr
	authority *pki.Authority
}

type options struct {
	ttl   time.Duration
	probe elsewhere
	// leaderless: the hub knows of no leader, though commands are applied.
	leaderless bool
	lease      time.Duration // 0: as in production
	// lags: the hub's state may be older than the cluster's.
	lags bool
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
	h := &hub{cluster: &cluster{Store: state.New(), tb: tb, entries: map[state.Kind]int{}}, authority: authority}
	own := h.Store
	if opts.lags {
		own = state.New()
		h.own = own
	}
	h.mustApply(state.ClusterInit{Cluster: made})
	h.mustApply(state.Hub{Hub: state.HubAddr{ID: "hub-1", QUIC: "127.0.0.1:4647"}})
	h.gateway, err = gateway.New(gateway.Config{
		Hub: "hub-1", State: own, Apply: h.cluster, Beats: steadyBeats{opts.ttl},
		Hubs: func() []string { return []string{"127.0.0.1:4647"} }, Term: func() uint64 { return 7 }, Elsewhere: opts.probe,
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
	id := h.mustIssue(syncproto.RoleHub, "hub-1")
	endpoint := mustEndpoint(tb, pki.ServerTLS(func() *identity.Identity { return id }, time.Now))
	h.addr = endpoint.Addr()
	h.serve(tb, endpoint)
	return h
}

// serve runs the gateway until the test ends.
func (h *hub) serve(tb testing.TB, endpoint *transport.Endpoint) {
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

func mustEndpoint(tb testing.TB, serve func([]string) (*tls.Config, error)) *transport.Endpoint {
	tb.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
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

// wire is an edge's side of one connection, driven by hand: nothing is sent that
// the test does not send.
type wire struct {
	tb       testing.TB
	node     fleet.NodeID
	endpoint *transport.Endpoint
	conn     *transport.Conn
	streams  [3]*transport.Stream
	readers  [3]*syncproto.Reader
	beats    uint64
	chain    []byte
}

// mustDial connects with the certificate of a node and opens the three streams.
func (h *hub) mustDial(tb testing.TB, node fleet.NodeID) *wire {
	tb.Helper()
	w := &wire{tb: tb, node: node, endpoint: mustEndpoint(tb, nil)}
	tb.Cleanup(func() { _ = w.endpoint.Close() }) // a test may have closed it
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	id := h.mustIssue(syncproto.RoleEdge, string(node))
	var err error
	w.conn, err = w.endpoint.Dial(ctx, transport.DialConfig{Addr: h.addr, ALPN: syncproto.ALPNEdge, TLS: id.ClientTLS(time.Now)})
	if err != nil {
		tb.Fatalf("dial the hub: %v", err)
	}
	for s := range w.streams {
		if w.streams[s], err = w.conn.Open(ctx); err == nil {
			err = syncproto.WriteStream(w.streams[s], syncproto.Stream(s))
		}
		if err != nil {
			tb.Fatalf("open the streams: %v", err)
		}
		w.readers[s] = syncproto.NewReader(w.streams[s])
	}
	return w
}

func (w *wire) send(on syncproto.Stream, m syncproto.Message) {
	w.tb.Helper()
	if err := syncproto.NewWriter(w.streams[on]).Write(m); err != nil {
		w.tb.Fatalf("send %s: %v", m.FrameType(), err)
	}
}

func (w *wire) read(on syncproto.Stream, within time.Duration) (syncproto.Message, error) {
	if err := w.streams[on].SetReadDeadline(time.Now().Add(within)); err != nil {
		return nil, err
	}
	return w.readers[on].Read()
}

// expect reads the next frame of a stream, which must be an M.
func expect[M syncproto.Message](w *wire, on syncproto.Stream) M {
	w.tb.Helper()
	m, err := w.read(on, patience)
	if err != nil {
		var none M
		w.tb.Fatalf("expected %s on the %s stream: %v", none.FrameType(), on, err)
	}
	got, ok := m.(M)
	if !ok {
		w.tb.Fatalf("expected %s on the %s stream, got %s: %+v", got.FrameType(), on, m.FrameType(), m)
	}
	return got
}

// expectRefused reads frames until the session is refused with a code.
func (w *wire) expectRefused(code fleet.Code) syncproto.Refused {
	w.tb.Helper()
	for {
		m, err := w.read(syncproto.StreamControl, patience)
		if err != nil {
			w.tb.Fatalf("expected to be refused with %s: %v", code, err)
		}
		r, ok := m.(syncproto.Refused)
		if !ok {
			continue
		}
		if r.Code != code {
			w.tb.Fatalf("refused with %s (%s), expected %s", r.Code, r.Message, code)
		}
		return r
	}
}

// expectNothing fails where a frame comes.
func (w *wire) expectNothing(on syncproto.Stream, within time.Duration) {
	w.tb.Helper()
	m, err := w.read(on, within)
	if err == nil {
		w.tb.Fatalf("expected nothing on the %s stream, got %s: %+v", on, m.FrameType(), m)
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		w.tb.Fatalf("expected silence on the %s stream: %v", on, err)
	}
}

func (w *wire) hello(session uint64, instance fleet.InstanceID) syncproto.Hello {
	return syncproto.Hello{
		Versions: []uint16{syncproto.Version}, Node: w.node, Boot: "boot-1", Instance: instance,
		Session: session, First: 1, Agent: "test",
	}
}

// welcomed says Hello and reads the Welcome.
func (w *wire) welcomed(h syncproto.Hello) syncproto.Welcome {
	w.tb.Helper()
	w.send(syncproto.StreamControl, h)
	return expect[syncproto.Welcome](w, syncproto.StreamControl)
}

// beat sends the next heartbeat and reads its acknowledgement.
func (w *wire) beat() syncproto.HeartbeatAck {
	w.tb.Helper()
	w.beats++
	w.send(syncproto.StreamControl, syncproto.Heartbeat{Number: w.beats, Uptime: time.Hour, Node: describe(w.node), Hash: []byte("h1")})
	return expect[syncproto.HeartbeatAck](w, syncproto.StreamControl)
}

// open brings a session to where updates may flow, and reads the first Desired.
func (w *wire) open(session uint64, instance fleet.InstanceID) (syncproto.HeartbeatAck, syncproto.Desired) {
	w.tb.Helper()
	w.welcomed(w.hello(session, instance))
	ack := w.beat()
	d := expect[syncproto.Desired](w, syncproto.StreamDesired)
	if !d.Full {
		w.tb.Fatalf("the first Desired is not full: %+v", d)
	}
	return ack, d
}

// updates makes a batch of rows that continues the wire's chain.
func (w *wire) updates(first fleet.Seq, ts ...fleet.Transition) syncproto.Updates {
	w.tb.Helper()
	u := syncproto.Updates{First: first, Prev: w.chain}
	for i, t := range ts {
		t.Seq, t.BootID, t.Wall = first+fleet.Seq(i), "boot-1", time.Now().UnixNano()
		row, err := syncproto.EncodeRow(t)
		if err != nil {
			w.tb.Fatal(err)
		}
		u.Rows = append(u.Rows, row)
		w.chain = syncproto.ChainHash(w.chain, row)
	}
	return u
}

// vanish lets everything of the wire vanish without a word.
func (w *wire) vanish() {
	w.tb.Helper()
	if err := w.endpoint.Close(); err != nil {
		w.tb.Fatal(err)
	}
}

func describe(node fleet.NodeID) *fleet.Node {
	return &fleet.Node{
		ID: node, Name: "edge-" + fleet.Short(node), Datacenter: "dc1", NodePool: "default", DescriptionHash: "h1",
		Resources: fleet.Resources{CPU: 4000, MemoryMB: 4096, DiskMB: 10000},
		Drivers:   map[string]fleet.DriverInfo{"raw_exec": {Detected: true, Healthy: true}},
	}
}

// running is the row of an allocation that runs.
func running(id fleet.AllocID) fleet.Transition {
	return fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: id, ClientStatus: fleet.ClientRunning}
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
