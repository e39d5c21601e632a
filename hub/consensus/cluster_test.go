package consensus_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/consensus"
	"skerry/hub/pki"
	"skerry/hub/rpc"
	"skerry/hub/state"
	"skerry/syncproto"
	"skerry/syncproto/identity"
	"skerry/syncproto/transport"
)

const (
	methodApply = "apply"
	methodAdd   = "add"
	// testTimeout is how long a test waits for what should happen in a second.
	testTimeout = 30 * time.Second
)

// cluster makes hubs that trust each other.
type cluster struct {
	tb    testing.TB
	ca    *pki.Authority
	dir   string
	tweak func(*consensus.Config)
	hubs  map[fleet.HubID]*hub
}

func newCluster(tb testing.TB, tweak func(*consensus.Config)) *cluster {
	tb.Helper()
	c, err := pki.NewCluster("global", time.Now())
	if err != nil {
		tb.Fatal(err)
	}
	ca, err := pki.NewAuthority(c)
	if err != nil {
		tb.Fatal(err)
	}
	return &cluster{tb: tb, ca: ca, dir: tb.TempDir(), tweak: tweak, hubs: map[fleet.HubID]*hub{}}
}

// hub is a node on a real socket and a real disk.
type hub struct {
	*consensus.Node
	id    fleet.HubID
	addr  string
	store *state.Store
	ended chan struct{} // Run has returned
	err   error         // what it returned
	leads chan bool     // every signal of Leadership, in order
	stop  func()        // ends it in order
	peers *rpc.Peers
	*cuttableSocket
}

// cuttableSocket is a socket that can be cut, as by a kill -9 of its process, or in one direction.
type cuttableSocket struct {
	net.PacketConn
	mute, deaf atomic.Bool
}

// cut: from now on no packet comes or goes, and nobody is told.
func (w *cuttableSocket) cut() { w.mute.Store(true); w.deaf.Store(true) }

// mend ends a cut.
func (w *cuttableSocket) mend() { w.mute.Store(false); w.deaf.Store(false) }

func (w *cuttableSocket) WriteTo(b []byte, to net.Addr) (int, error) {
	if w.mute.Load() {
		return len(b), nil
	}
	return w.PacketConn.WriteTo(b, to)
}

func (w *cuttableSocket) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		n, from, err := w.PacketConn.ReadFrom(b)
		if err != nil || !w.deaf.Load() {
			return n, from, err
		}
	}
}

// mustStart starts a hub in a directory of its name; addr "" is any port.
func (c *cluster) mustStart(id fleet.HubID, addr string, bootstrap bool) *hub {
	c.tb.Helper()
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	udp, err := net.ListenPacket("udp", addr)
	if err != nil {
		c.tb.Fatal(err)
	}
	socket := &cuttableSocket{PacketConn: udp}
	who, _, err := c.ca.Issue(fleet.RoleHub, string(id), time.Now())
	if err != nil {
		c.tb.Fatal(err)
	}
	ep, err := transport.New(transport.Config{Conn: socket, TLS: pki.ServerTLS(func() *identity.Identity { return who }, time.Now)})
	if err != nil {
		c.tb.Fatal(err)
	}
	h := &hub{cuttableSocket: socket, id: id, addr: ep.Addr().String(), store: state.New(), ended: make(chan struct{}), leads: make(chan bool, 1024)}
	raftPool, hubPool := c.mustPool(ep, who, syncproto.ALPNRaft), c.mustPool(ep, who, syncproto.ALPNHub)
	if h.peers, err = rpc.New(rpc.Config{Pool: hubPool}); err != nil {
		c.tb.Fatal(err)
	}
	cfg := consensus.Config{
		ID: id, Addr: h.addr, Dir: filepath.Join(c.dir, string(id)), Store: h.store, Bootstrap: bootstrap,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) { return raftPool.Open(ctx, addr) },
		Forward: func(ctx context.Context, addr string, cmd []byte) ([]byte, error) {
			return h.peers.Call(ctx, addr, methodApply, cmd)
		},
		HeartbeatTimeout: 600 * time.Millisecond, ElectionTimeout: 600 * time.Millisecond, LeaderLease: 500 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(c.tb.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})).With("at", string(id)),
	}
	if c.tweak != nil {
		c.tweak(&cfg)
	}
	if h.Node, err = consensus.New(cfg); err != nil {
		c.tb.Fatal(err)
	}
	h.peers.Handle(methodApply, func(ctx context.Context, _ string, cmd []byte) ([]byte, error) {
		return h.ApplyEncoded(ctx, cmd)
	})
	h.peers.Handle(methodAdd, h.serveAdd)
	h.runHub(c.tb, ep, raftPool, hubPool)
	c.hubs[id] = h
	return h
}

func (c *cluster) mustPool(ep *transport.Endpoint, who *identity.Identity, alpn string) *rpc.Pool {
	c.tb.Helper()
	p, err := rpc.NewPool(rpc.PoolConfig{
		Dialer: ep, ALPN: alpn, TLS: func() *tls.Config { return who.ClientTLS(time.Now) },
		IdleTimeout: time.Second, KeepAlive: 300 * time.Millisecond, DialTimeout: time.Second,
	})
	if err != nil {
		c.tb.Fatal(err)
	}
	return p
}

// runHub starts the hub's goroutines, as hub.Open would.
func (h *hub) runHub(tb testing.TB, ep *transport.Endpoint, pools ...*rpc.Pool) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(h.ended)
		h.err = h.Run(ctx)
	})
	wg.Go(func() {
		for {
			select {
			case lead := <-h.Leadership():
				h.leads <- lead
			case <-ctx.Done():
				return
			}
		}
	})
	wg.Go(func() {
		for {
			conn, err := ep.Accept(ctx)
			if err != nil {
				return
			}
			wg.Go(func() {
				serve := h.peers.Serve
				if conn.ALPN() == syncproto.ALPNRaft {
					serve = h.Serve
				}
				serve(ctx, conn)
			})
		}
	})
	h.stop = sync.OnceFunc(func() {
		cancel()
		<-h.ended
		err := ep.Close()
		for _, p := range pools {
			err = errors.Join(err, p.Close())
		}
		if err != nil {
			tb.Error(err)
		}
		wg.Wait()
	})
	tb.Cleanup(h.stop)
}

// serveAdd is "hub.join" at the leader: id, address and "v" for a vote.
func (h *hub) serveAdd(ctx context.Context, _ string, body []byte) ([]byte, error) {
	var p state.HubPeer
	if _, err := fmt.Sscanf(string(body), "%s %s %t", &p.ID, &p.Addr, &p.Voter); err != nil {
		return nil, err
	}
	index, err := h.Add(ctx, p)
	return fmt.Append(nil, uint64(index)), err
}

// mustJoin makes h a voter, by way of a hub that it knows.
func (h *hub) mustJoin(tb testing.TB, via *hub) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), testTimeout)
	defer cancel()
	err := h.Join(ctx, func(ctx context.Context, p state.HubPeer) (fleet.Index, error) {
		_, addr, ok := via.Leader()
		if !ok {
			return 0, fleet.Errorf(fleet.CodeUnavailable, "no leader")
		}
		b, err := h.peers.Call(ctx, addr, methodAdd, fmt.Appendf(nil, "%s %s %t", p.ID, p.Addr, p.Voter))
		if err != nil {
			return 0, err
		}
		var index uint64
		_, err = fmt.Sscan(string(b), &index)
		return fleet.Index(index), err
	})
	if err != nil {
		tb.Fatal(err)
	}
}

// mustThree starts three hubs that are all voters.
func (c *cluster) mustThree() (one, two, three *hub) {
	c.tb.Helper()
	one = c.mustStart("one", "", true)
	two = c.mustStart("two", "", false)
	three = c.mustStart("three", "", false)
	two.mustJoin(c.tb, one)
	three.mustJoin(c.tb, one)
	return one, two, three
}

// mustLeader waits until one of the hubs leads, and has told so.
func (c *cluster) mustLeader(hubs ...*hub) *hub {
	c.tb.Helper()
	var leader *hub
	mustSoon(c.tb, func() error {
		for _, h := range hubs {
			if _, ok := h.Leads(); ok {
				leader = h
				return nil
			}
		}
		return fmt.Errorf("nobody leads: %s", describe(hubs))
	})
	return leader
}

// pool is a small command, and the way to see that it was applied.
func pool(name string) state.Command { return state.Pool{Pool: fleet.Pool{Name: name}} }

// mustApply applies pool(name).
func (h *hub) mustApply(tb testing.TB, name string) fleet.Index {
	tb.Helper()
	return h.mustApplyCommand(tb, name, pool(name))
}

// mustApplyCommand applies c, which may be done twice: on a busy machine a leader
// may be lost in between.
func (h *hub) mustApplyCommand(tb testing.TB, name string, c state.Command) fleet.Index {
	tb.Helper()
	var res state.Result
	mustSoon(tb, func() (err error) {
		if res, err = h.Apply(tb.Context(), c); err != nil {
			return fmt.Errorf("apply %s at %s: %w", name, h.id, err)
		}
		return nil
	})
	if res.Err != nil {
		tb.Fatalf("apply %s at %s: %v", name, h.id, res.Err)
	}
	if !h.hasPool(name) {
		tb.Fatalf("%s cannot read its own write %.20s", h.id, name)
	}
	return res.Index
}

func (h *hub) hasPool(name string) bool {
	_, ok := h.store.View().Pool(name)
	return ok
}

func mustHave(tb testing.TB, name string, hubs ...*hub) {
	tb.Helper()
	mustSoon(tb, func() error {
		for _, h := range hubs {
			if !h.hasPool(name) {
				return fmt.Errorf("%s does not have %s: %s", h.id, name, describe(hubs))
			}
		}
		return nil
	})
}

// mustSoon polls until ok gives nil, and fails with what it gave last.
func mustSoon(tb testing.TB, ok func() error) {
	tb.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	end := time.After(testTimeout)
	for {
		err := ok()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			tb.Fatal(err)
		}
	}
}

func describe(hubs []*hub) string {
	var s string
	for _, h := range hubs {
		id, addr, ok := h.Leader()
		st := h.Stats()
		peers, _ := h.Peers()
		s += fmt.Sprintf("\n  %s at %s: term %d, last %d, applied %d, leader %s %s %t, peers %v",
			h.id, h.addr, st.Term, st.LastIndex, st.AppliedIndex, id, addr, ok, peers)
	}
	return s
}
