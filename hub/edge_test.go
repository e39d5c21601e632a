package hub_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/syncproto"
	"skerry/syncproto/enroll"
	"skerry/syncproto/identity"
	"skerry/syncproto/transport"
)

// edge is an edge's side of the protocol, driven by hand: it does only what the
// test does, but for beating.
type edge struct {
	tb       testing.TB
	id       fleet.NodeID
	endpoint *transport.Endpoint
	identity *identity.Identity
	conn     *transport.Conn
	streams  [3]*transport.Stream
	readers  [3]*syncproto.Reader
	session  uint64
	seq      fleet.Seq
	chain    []byte
}

// mustEnroll gets an edge its certificate.
func mustEnroll(tb testing.TB, h *runningHub, token string) *edge {
	tb.Helper()
	e, err := enrolEdge(tb, h, token)
	if err != nil {
		tb.Fatalf("enrol an edge: %v", err)
	}
	return e
}

// tryEnroll returns why a hub gives an edge no certificate.
func tryEnroll(tb testing.TB, h *runningHub, token string) error {
	tb.Helper()
	_, err := enrolEdge(tb, h, token)
	return err
}

func enrolEdge(tb testing.TB, h *runningHub, token string) (*edge, error) {
	tb.Helper()
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	e := &edge{tb: tb, id: fleet.NodeID(fleet.NewUUID(nil))}
	if e.endpoint, err = transport.New(transport.Config{Conn: socket}); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = e.endpoint.Close() }) // a test may have closed it
	parsed, err := identity.ParseToken(token)
	if err != nil {
		tb.Fatal(err)
	}
	key, err := identity.NewKey()
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(tb.Context(), testTimeout)
	defer cancel()
	e.identity, _, err = enroll.Enroll(ctx, e.endpoint, mustAddr(tb, h.QUICAddr()), enroll.Applicant{
		Token: parsed, Role: fleet.RoleEdge, ID: string(e.id), Name: "edge-1", Key: key, Now: time.Now,
	})
	return e, err
}

func mustAddr(tb testing.TB, addr string) net.Addr {
	tb.Helper()
	a, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

// mustConnect opens a session with a hub and beats until the connection ends.
func (e *edge) mustConnect(h *runningHub) syncproto.Desired {
	e.tb.Helper()
	ctx, cancel := context.WithTimeout(e.tb.Context(), testTimeout)
	defer cancel()
	var err error
	if e.conn, err = e.endpoint.Dial(ctx, transport.DialConfig{
		Addr: mustAddr(e.tb, h.QUICAddr()), ALPN: syncproto.ALPNEdge, TLS: e.identity.ClientTLS(time.Now),
	}); err != nil {
		e.tb.Fatalf("dial hub %s: %v", h.cfg.Name, err)
	}
	for s := range e.streams {
		if e.streams[s], err = e.conn.Open(ctx); err == nil {
			err = syncproto.WriteStream(e.streams[s], syncproto.Stream(s))
		}
		if err != nil {
			e.tb.Fatalf("open the streams: %v", err)
		}
		e.readers[s] = syncproto.NewReader(e.streams[s])
	}
	e.session++
	e.sendFrame(syncproto.StreamControl, syncproto.Hello{
		Versions: []uint16{syncproto.Version}, Node: e.id, Boot: "boot-1", Instance: "agent-1",
		Session: e.session, First: 1, Last: e.seq, ChainHash: e.chain,
	})
	welcome := expect[syncproto.Welcome](e, syncproto.StreamControl)
	e.sendFrame(syncproto.StreamControl, syncproto.Heartbeat{Number: 1, Node: &fleet.Node{
		ID: e.id, Name: "edge-1", Datacenter: "dc1", NodePool: "default", DescriptionHash: "h",
		Attributes: map[string]string{"kernel.name": "linux"},
		Resources:  fleet.Resources{CPU: 4000, MemoryMB: 4096, DiskMB: 10000},
		Drivers:    map[string]fleet.DriverInfo{"raw_exec": {Detected: true, Healthy: true}},
	}})
	expect[syncproto.HeartbeatAck](e, syncproto.StreamControl)
	go e.sendHeartbeats(e.conn, e.streams[syncproto.StreamControl], welcome.TTL/2)
	return expect[syncproto.Desired](e, syncproto.StreamDesired)
}

// sendHeartbeats keeps the session's deadline away until the connection ends.
func (e *edge) sendHeartbeats(conn *transport.Conn, control *transport.Stream, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := uint64(2); ; n++ {
		select {
		case <-conn.Done():
			return
		case <-tick.C:
		}
		if syncproto.NewWriter(control).Write(syncproto.Heartbeat{Number: n}) != nil {
			return
		}
	}
}

func (e *edge) sendFrame(on syncproto.Stream, m syncproto.Message) {
	e.tb.Helper()
	if err := syncproto.NewWriter(e.streams[on]).Write(m); err != nil {
		e.tb.Fatalf("send %s: %v", m.FrameType(), err)
	}
}

func expect[M syncproto.Message](e *edge, on syncproto.Stream) M {
	e.tb.Helper()
	var none M
	if err := e.streams[on].SetReadDeadline(time.Now().Add(testTimeout)); err != nil {
		e.tb.Fatal(err)
	}
	m, err := e.readers[on].Read()
	if err != nil {
		e.tb.Fatalf("expected %s: %v", none.FrameType(), err)
	}
	got, ok := m.(M)
	if !ok {
		e.tb.Fatalf("expected %s, got %s: %+v", none.FrameType(), m.FrameType(), m)
	}
	return got
}

// expectRun reads desired state until it names something to run.
func (e *edge) expectRun(first syncproto.Desired) syncproto.DesiredAlloc {
	e.tb.Helper()
	for d := first; ; d = expect[syncproto.Desired](e, syncproto.StreamDesired) {
		e.sendFrame(syncproto.StreamDesired, syncproto.Received{Index: d.Index})
		if len(d.Run) > 0 {
			return d.Run[0]
		}
	}
}

// reportTransition sends a row and waits until the cluster has it.
func (e *edge) reportTransition(t fleet.Transition) {
	e.tb.Helper()
	e.seq++
	t.Seq, t.BootID, t.Wall = e.seq, "boot-1", time.Now().UnixNano()
	row, err := syncproto.EncodeRow(t)
	if err != nil {
		e.tb.Fatal(err)
	}
	e.sendFrame(syncproto.StreamUpdates, syncproto.Updates{First: e.seq, Prev: e.chain, Rows: [][]byte{row}})
	e.chain = syncproto.ChainHash(e.chain, row)
	if a := expect[syncproto.Applied](e, syncproto.StreamUpdates); a.Last != e.seq {
		e.tb.Fatalf("applied up to %d, want %d", a.Last, e.seq)
	}
}

func runningTransition(alloc fleet.AllocID) fleet.Transition {
	return fleet.Transition{
		Kind: fleet.TransitionAlloc, Alloc: alloc, ClientStatus: fleet.ClientRunning, Task: "server",
		TaskState: &fleet.TaskState{State: fleet.TaskRunning},
	}
}

// serveLogs answers every request for logs with text, until the connection ends.
func (e *edge) serveLogs(text string) {
	for {
		stream, err := e.conn.Accept(context.Background())
		if err != nil {
			return
		}
		if _, err := syncproto.NewReader(stream).Read(); err != nil {
			return
		}
		if syncproto.NewWriter(stream).Write(syncproto.Reply{}) != nil {
			return
		}
		if _, err := io.WriteString(stream, text); err != nil || stream.CloseWrite() != nil {
			return
		}
	}
}

// A job from its registration to a task's output, over one edge that a follower
// serves; the leader and the other follower are asked, too.
func TestJobRunsOnAnEdge(t *testing.T) {
	hubs := mustCluster(t, 3)
	leader := mustLeader(t, hubs)
	var followers []*runningHub
	for _, h := range hubs {
		if h != leader {
			followers = append(followers, h)
		}
	}
	e := mustEnroll(t, followers[0], hubs[0].JoinToken())
	first := e.mustConnect(followers[0])
	followers[1].mustRegister(job("shop"))
	alloc := e.expectRun(first)
	if alloc.JobID != "shop" || alloc.TaskGroup != "web" {
		t.Errorf("told to run %+v", alloc)
	}
	e.reportTransition(runningTransition(alloc.ID))
	go e.serveLogs("out of the task\n")
	for _, h := range hubs {
		var a struct{ ClientStatus, NodeName string }
		h.mustRequest("GET", "/v1/allocation/"+string(alloc.ID), nil, &a)
		if a.ClientStatus != fleet.ClientRunning || a.NodeName != "edge-1" {
			t.Errorf("hub %s says %+v, want it running on edge-1", h.cfg.Name, a)
		}
		res, err := http.Get(fmt.Sprintf("http://%s/v1/client/fs/logs/%s?task=server&type=stdout&plain=true", h.HTTPAddr(), alloc.ID))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || string(text) != "out of the task\n" {
			t.Errorf("logs through hub %s: %q (%v)", h.cfg.Name, text, err)
		}
	}

	leader.mustRequest("DELETE", "/v1/job/shop", nil, nil)
	if d := expect[syncproto.Desired](e, syncproto.StreamDesired); len(d.Stop) != 1 || d.Stop[0].ID != alloc.ID {
		t.Errorf("desired %+v, want the allocation stopped", d)
	}
	e.reportTransition(fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: alloc.ID, ClientStatus: fleet.ClientComplete})
	waitUntil(t, "the job is dead", leader.describeState, func() bool {
		j, ok := leader.State().View().Job(fleet.DefaultNamespace, "shop")
		return ok && j.Status == fleet.JobStatusDead
	})
}

// The link breaks, and comes back: unknown, then running again, settled once.
func TestEdgeAwayAndBack(t *testing.T) {
	hubs := mustCluster(t, 3)
	e := mustEnroll(t, hubs[1], hubs[0].JoinToken())
	first := e.mustConnect(hubs[1])
	hubs[0].mustRegister(job("shop"))
	alloc := e.expectRun(first)
	e.reportTransition(runningTransition(alloc.ID))
	if err := e.conn.CloseWith(nil); err != nil {
		t.Fatal(err)
	}
	status := func(want fleet.NodeStatus, client string) func() bool {
		return func() bool {
			v := hubs[2].State().View()
			n, _ := v.Node(e.id)
			a, ok := v.Alloc(alloc.ID)
			return ok && n.Status == want && a.ClientStatus == client
		}
	}
	waitUntil(t, "the node is disconnected, its allocation unknown", hubs[2].describeState, status(fleet.NodeDisconnected, fleet.ClientUnknown))

	started := time.Now()
	e.mustConnect(hubs[2])
	waitUntil(t, "the node is ready, its allocation running", hubs[2].describeState, status(fleet.NodeReady, fleet.ClientRunning))
	t.Logf("back and settled after %s", time.Since(started).Round(time.Millisecond))
	waitUntil(t, "settled: the allocation has nothing left to reconnect", hubs[2].describeState, func() bool {
		a, _ := hubs[2].State().View().Alloc(alloc.ID)
		return !a.NeedsToReconnect()
	})
	v := hubs[2].State().View()
	n := 0
	for a := range v.AllocsByJob(fleet.DefaultNamespace, "shop") {
		if a.DesiredStatus == fleet.DesiredRun {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d allocations of the job are to run, want 1:\n%s", n, hubs[2].describeState())
	}
}
