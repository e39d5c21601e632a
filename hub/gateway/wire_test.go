package gateway_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/syncproto"
	"skerry/syncproto/transport"
)

// patience is how long a test waits for an expected frame or state.
const patience = 10 * time.Second

// testEdge is an edge's side of one connection, driven by hand: nothing is sent that
// the test does not send.
type testEdge struct {
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
func (h *hub) mustDial(tb testing.TB, node fleet.NodeID) *testEdge {
	tb.Helper()
	w := &testEdge{tb: tb, node: node, endpoint: mustEndpoint(tb, h.listen(tb), nil)}
	tb.Cleanup(func() { _ = w.endpoint.Close() }) // a test may have closed it
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	id := h.mustIssue(fleet.RoleEdge, string(node))
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

func (w *testEdge) sendMessage(on syncproto.Stream, m syncproto.Message) {
	w.tb.Helper()
	if err := syncproto.NewWriter(w.streams[on]).Write(m); err != nil {
		w.tb.Fatalf("send %s: %v", m.FrameType(), err)
	}
}

func (w *testEdge) readMessage(on syncproto.Stream, within time.Duration) (syncproto.Message, error) {
	if err := w.streams[on].SetReadDeadline(time.Now().Add(within)); err != nil {
		return nil, err
	}
	return w.readers[on].Read()
}

// expect reads the next frame of a stream, which must be an M.
func expect[M syncproto.Message](w *testEdge, on syncproto.Stream) M {
	w.tb.Helper()
	m, err := w.readMessage(on, patience)
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
func (w *testEdge) expectRefused(code fleet.Code) syncproto.Refused {
	w.tb.Helper()
	for {
		m, err := w.readMessage(syncproto.StreamControl, patience)
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
func (w *testEdge) expectNothing(on syncproto.Stream, within time.Duration) {
	w.tb.Helper()
	m, err := w.readMessage(on, within)
	if err == nil {
		w.tb.Fatalf("expected nothing on the %s stream, got %s: %+v", on, m.FrameType(), m)
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		w.tb.Fatalf("expected silence on the %s stream: %v", on, err)
	}
}

func (w *testEdge) expectResync() syncproto.Resync {
	w.tb.Helper()
	for {
		m, err := w.readMessage(syncproto.StreamControl, patience)
		if err != nil {
			w.tb.Fatalf("expected a resync: %v", err)
		}
		if r, ok := m.(syncproto.Resync); ok {
			return r
		}
	}
}

func (w *testEdge) newHello(session uint64, instance fleet.InstanceID) syncproto.Hello {
	return syncproto.Hello{
		Versions: []uint16{syncproto.Version}, Node: w.node, Boot: "boot-1", Instance: instance,
		Session: session, First: 1, Agent: "test",
	}
}

// exchangeHello says Hello and reads the Welcome.
func (w *testEdge) exchangeHello(h syncproto.Hello) syncproto.Welcome {
	w.tb.Helper()
	w.sendMessage(syncproto.StreamControl, h)
	return expect[syncproto.Welcome](w, syncproto.StreamControl)
}

// sendHeartbeat sends the next heartbeat and reads its acknowledgement.
func (w *testEdge) sendHeartbeat() syncproto.HeartbeatAck {
	w.tb.Helper()
	w.beats++
	w.sendMessage(syncproto.StreamControl, syncproto.Heartbeat{Number: w.beats, Uptime: time.Hour, Node: describe(w.node), Hash: []byte("h1")})
	return expect[syncproto.HeartbeatAck](w, syncproto.StreamControl)
}

// keepBeating sends bare heartbeats, and leaves their answers to others.
func (w *testEdge) keepBeating(every time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			w.beats++
			if syncproto.NewWriter(w.streams[syncproto.StreamControl]).Write(syncproto.Heartbeat{Number: w.beats}) != nil {
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}

// openSession brings a session to where updates may flow, and reads the first Desired.
func (w *testEdge) openSession(session uint64, instance fleet.InstanceID) (syncproto.HeartbeatAck, syncproto.Desired) {
	w.tb.Helper()
	w.exchangeHello(w.newHello(session, instance))
	ack := w.sendHeartbeat()
	d := expect[syncproto.Desired](w, syncproto.StreamDesired)
	if !d.Full {
		w.tb.Fatalf("the first Desired is not full: %+v", d)
	}
	return ack, d
}

// newUpdates makes a batch of rows that continues the wire's chain.
func (w *testEdge) newUpdates(first fleet.Seq, ts ...fleet.Transition) syncproto.Updates {
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

// closeSilently lets everything of the wire vanish without a word.
func (w *testEdge) closeSilently() {
	w.tb.Helper()
	if err := w.endpoint.Close(); err != nil {
		w.tb.Fatal(err)
	}
}

// running is the row of an allocation that runs.
func running(id fleet.AllocID) fleet.Transition {
	return fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: id, ClientStatus: fleet.ClientRunning}
}
