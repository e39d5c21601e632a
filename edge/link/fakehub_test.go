package link_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/syncproto"
	"skerry/syncproto/transport"
	"skerry/syncproto/transport/transporttest"
)

// cluster is the state that the hubs share about one node.
type cluster struct {
	mu       sync.Mutex
	id       string
	index    fleet.Index
	restored fleet.Index // index of a restored snapshot
	ttl      time.Duration
	epoch    fleet.Epoch
	session  uint64 // newest committed session
	applied  fleet.Seq
	// restoreInSession has the cluster put back to a state without rows after the next Welcome.
	restoreInSession bool
	chain            []byte
	rows             []fleet.Transition
	batches          []syncproto.Updates
	hash             []byte
	needNode         bool
	hubs             []string // sent in the Welcome
	newHubs          []string // sent in the next acknowledgement
	hellos           []syncproto.Hello
	beats            []syncproto.Heartbeat
	received         []fleet.Index
	holdings         []fleet.AllocID
	moreHoldings     []bool // More of each Holdings
	// refuse may return the answer to a Hello instead of Accept.
	refuse func(h syncproto.Hello) *syncproto.Refused
	// upTo bounds the rows that one Updates may apply; 0: all.
	upTo int
	// alone is the address of a hub without a quorum: it refuses every Hello.
	alone string
	// stuck leaves heartbeats unanswered.
	stuck bool
	// status is the node status in acknowledgements; "": ready.
	status fleet.NodeStatus
	// rowStatus is the node status in answers to rows; "": none.
	rowStatus fleet.NodeStatus
	// oldRelease has hubs that name their index only in the Welcome.
	oldRelease bool
	// fast is how far the hubs' clocks are ahead.
	fast time.Duration
}

func (c *cluster) withLock(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// clusterSnapshot has the messages that a cluster has received.
type clusterSnapshot struct {
	hellos   []syncproto.Hello
	beats    []syncproto.Heartbeat
	batches  []syncproto.Updates
	rows     []fleet.Transition
	received []fleet.Index
	holdings []fleet.AllocID

	moreHoldings []bool
}

func (c *cluster) takeSnapshot() (s clusterSnapshot) {
	c.withLock(func() {
		s = clusterSnapshot{
			slices.Clone(c.hellos), slices.Clone(c.beats), slices.Clone(c.batches), slices.Clone(c.rows),
			slices.Clone(c.received), slices.Clone(c.holdings), slices.Clone(c.moreHoldings),
		}
	})
	return s
}

// applyUpdates applies rows as a cluster does: in order, once, and only if they extend the chain.
func (c *cluster) applyUpdates(u syncproto.Updates) (syncproto.Applied, *syncproto.Refused) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.batches = append(c.batches, u)
	if u.Base {
		c.applied, c.chain = u.First-1, u.Prev
	}
	hash, n := u.Prev, 0
	for i, b := range u.Rows {
		seq := u.First + fleet.Seq(i)
		prev := hash
		hash = syncproto.ChainHash(hash, b)
		if seq <= c.applied {
			continue
		}
		if seq != c.applied+1 {
			return syncproto.Applied{}, &syncproto.Refused{Code: fleet.CodeGap, Message: "gap", Applied: c.applied}
		}
		if !bytes.Equal(prev, c.chain) {
			return syncproto.Applied{}, &syncproto.Refused{Code: fleet.CodeFork, Message: "fork", Applied: c.applied}
		}
		if n++; c.upTo > 0 && n > c.upTo {
			break
		}
		t, err := syncproto.DecodeRow(b)
		if err != nil || t.Seq != seq {
			return syncproto.Applied{}, &syncproto.Refused{Code: fleet.CodeInvalid, Message: fmt.Sprint("row ", seq, ": ", t.Seq, err)}
		}
		c.rows, c.applied, c.chain = append(c.rows, t), seq, hash
	}
	c.index++
	return syncproto.Applied{Last: c.applied, Status: c.rowStatus}, nil
}

// hub serves the edge for a cluster, with a HubSession.
type hub struct {
	tb       testing.TB
	name     string
	addr     string
	c        *cluster
	endpoint *transport.Endpoint
	tls      *tls.Config
	wg       sync.WaitGroup

	mu       sync.Mutex
	conns    []*transport.Conn
	controls []*transport.Stream // of each connection
	steps    []chan func(*syncproto.HubSession) []syncproto.Output
}

func startHub(tb testing.TB, n *transporttest.Net, server *tls.Config, c *cluster, addr string) *hub {
	tb.Helper()
	h := &hub{tb: tb, addr: addr, name: addr, c: c, tls: server}
	h.listenForEdges(n)
	tb.Cleanup(h.stopHub)
	return h
}

func (h *hub) listenForEdges(n *transporttest.Net) {
	e, err := transport.New(transport.Config{Conn: n.Listen(h.tb, h.addr), TLS: func([]string) (*tls.Config, error) { return h.tls, nil }})
	if err != nil {
		h.tb.Fatalf("start a hub: %v", err)
	}
	h.endpoint = e
	h.wg.Go(func() {
		for {
			conn, err := e.Accept(context.Background())
			if err != nil {
				return
			}
			h.wg.Go(func() { h.serveConnection(conn) })
		}
	})
}

// stopHub stops the hub and tells its edges.
func (h *hub) stopHub() {
	if err := h.endpoint.Close(); err != nil {
		h.tb.Errorf("close a hub: %v", err)
	}
	h.wg.Wait()
}

type hubFrame struct {
	stream syncproto.Stream
	msg    syncproto.Message
	err    error
}

// serveConnection runs one session.
func (h *hub) serveConnection(conn *transport.Conn) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var streams [3]*transport.Stream
	in := make(chan hubFrame, 1)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer func() { _ = conn.CloseWith(nil) }()
	for range streams {
		s, err := conn.Accept(ctx)
		if err != nil {
			return
		}
		name, err := syncproto.ReadStream(s)
		if err != nil {
			return
		}
		streams[name] = s
		readers.Go(func() {
			r := syncproto.NewReader(s)
			for {
				m, err := r.Read()
				select {
				case in <- hubFrame{name, m, err}:
				case <-conn.Done():
					return
				}
				if err != nil {
					return
				}
			}
		})
	}
	steps := make(chan func(*syncproto.HubSession) []syncproto.Output, 8)
	h.mu.Lock()
	h.conns, h.steps = append(h.conns, conn), append(h.steps, steps)
	h.controls = append(h.controls, streams[syncproto.StreamControl])
	h.mu.Unlock()
	h.runSessionLoop(conn, &streams, in, steps)
}

func (h *hub) runSessionLoop(conn *transport.Conn, streams *[3]*transport.Stream, in chan hubFrame, steps chan func(*syncproto.HubSession) []syncproto.Output) {
	start := time.Now()
	_, node := conn.Peer()
	p := syncproto.NewHubSession(0, fleet.NodeID(node))
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		var outs []syncproto.Output
		now := time.Since(start)
		select {
		case <-conn.Done():
			return
		case f := <-in:
			var e *fleet.Error
			switch {
			case f.err == nil:
				outs = p.Frame(now, f.stream, f.msg)
			case errors.As(f.err, &e) && (e.Code == fleet.CodeFrameBad || e.Code == fleet.CodeFrameTooLarge):
				outs = p.Bad(e)
			default:
				return
			}
		case step := <-steps:
			outs = step(p)
		case <-tick.C:
			outs = p.Tick(now)
		}
		for len(outs) > 0 {
			o := outs[0]
			outs = outs[1:]
			if o.Send != nil {
				if err := syncproto.NewWriter(streams[o.Stream]).Write(o.Send); err != nil {
					return
				}
			}
			outs = append(outs, h.handleSessionEvent(time.Since(start), p, o.Event)...)
			if _, over := o.Event.(syncproto.EventEnd); over {
				select { // lets the refusal arrive
				case <-conn.Done():
				case <-time.After(time.Second):
				}
				return
			}
		}
	}
}

func (h *hub) handleSessionEvent(now time.Duration, p *syncproto.HubSession, event any) []syncproto.Output {
	c := h.c
	switch e := event.(type) {
	case syncproto.EventHello:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.hellos = append(c.hellos, e.Hello)
		if c.refuse != nil {
			if r := c.refuse(e.Hello); r != nil {
				return p.Refuse(*r)
			}
		}
		if c.alone == h.addr {
			return p.Refuse(syncproto.Refused{Code: fleet.CodeUnavailable, Message: "no leader"})
		}
		if e.Hello.Session <= c.session {
			return p.Refuse(syncproto.Refused{Code: fleet.CodeStaleSession, Message: "stale", Session: c.session})
		}
		c.session = e.Hello.Session
		return p.Accept(now, syncproto.Welcome{Epoch: c.epoch + 1, Applied: c.applied, TTL: c.ttl, Cluster: c.id, Index: c.index, Term: 1, Hub: fleet.HubID(h.name), Hubs: c.hubs})
	case syncproto.EventHeartbeat:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.beats = append(c.beats, e.Heartbeat)
		if c.stuck {
			return nil
		}
		if e.Heartbeat.Node != nil {
			c.hash = e.Heartbeat.Hash
		}
		if c.restoreInSession {
			c.restoreInSession, c.applied, c.chain, c.rows, c.index, c.restored = false, 0, nil, nil, 600, 500
		}
		ack := syncproto.HeartbeatAck{Status: cmp.Or(c.status, fleet.NodeReady), TTL: c.ttl, HubTime: time.Now().Add(c.fast).UnixNano(), Applied: c.applied, NeedNode: c.needNode, Hubs: c.newHubs}
		c.needNode, c.newHubs = false, nil
		if e.First {
			c.epoch++
			c.index++
			ack.Epoch, ack.Index, ack.Term, ack.ChainHash, ack.Restored = c.epoch, c.index, 1, c.chain, c.restored
			if c.oldRelease {
				ack.Index, ack.Term, ack.ChainHash = 0, 0, nil
			}
		}
		return p.Acknowledge(ack)
	case syncproto.EventUpdates:
		a, r := c.applyUpdates(e.Updates)
		if r != nil {
			return p.Refuse(*r)
		}
		return p.AppliedTo(a)
	case syncproto.EventReceived:
		c.withLock(func() { c.received = append(c.received, e.Received.Index) })
	case syncproto.EventHoldings:
		c.withLock(func() {
			c.holdings, c.moreHoldings = append(c.holdings, e.Holdings.Allocs...), append(c.moreHoldings, e.Holdings.More)
		})
	}
	return nil
}

// runInSession runs f in the newest session.
func (h *hub) runInSession(f func(*syncproto.HubSession) []syncproto.Output) {
	h.mu.Lock()
	steps := h.steps[len(h.steps)-1]
	h.mu.Unlock()
	steps <- f
}

// newestConn is the newest connection.
func (h *hub) newestConn() *transport.Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.conns[len(h.conns)-1]
}
