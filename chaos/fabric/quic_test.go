package fabric_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"skerry/chaos/fabric"
	"skerry/syncproto/transport"
	"skerry/syncproto/transport/transporttest"
)

const alpn = "skerry-test/1"

// quicHub is an endpoint that echoes every stream.
type quicHub struct {
	ca       *transporttest.CA
	endpoint *transport.Endpoint
	accepted chan *transport.Conn
	serving  sync.WaitGroup
}

func mustQUICHub(t *testing.T, h *fabric.Host) *quicHub {
	t.Helper()
	q := &quicHub{ca: transporttest.NewCA(t), accepted: make(chan *transport.Conn, 100)}
	server := q.ca.Server(t, "hub:"+h.Name())
	q.endpoint = mustEndpoint(t, transport.Config{
		Conn: mustPacketConn(t, h, 4647), ResetKey: [32]byte{1},
		TLS: func([]string) (*tls.Config, error) { return server, nil },
	})
	q.serving.Go(func() {
		for {
			c, err := q.endpoint.Accept(context.Background())
			if err != nil {
				return
			}
			q.accepted <- c
			q.serving.Go(func() { q.echoStreams(c) })
		}
	})
	return q
}

func (q *quicHub) echoStreams(c *transport.Conn) {
	for {
		s, err := c.Accept(context.Background())
		if err != nil {
			return
		}
		q.serving.Go(func() {
			_, _ = io.Copy(s, s)
			_ = s.Close()
		})
	}
}

func (q *quicHub) stopServing(t *testing.T) {
	t.Helper()
	mustBeNil(t, q.endpoint.Close())
	q.serving.Wait()
}

func mustEndpoint(t *testing.T, cfg transport.Config) *transport.Endpoint {
	t.Helper()
	e, err := transport.New(cfg)
	if err != nil {
		t.Fatalf("make an endpoint: %v", err)
	}
	return e
}

var quicAddr = &net.UDPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 4647}

// mustConnect dials the hub at b.
func (q *quicHub) mustConnect(t *testing.T, e *transport.Endpoint, idle time.Duration) *transport.Conn {
	t.Helper()
	c, err := e.Dial(t.Context(), transport.DialConfig{Addr: quicAddr, ALPN: alpn, TLS: q.ca.Client(t, "edge:n1"), IdleTimeout: idle})
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	return c
}

// mustEcho sends something on a new stream and waits until it is back.
func mustEcho(t *testing.T, c *transport.Conn, size int) {
	t.Helper()
	s, err := c.Open(t.Context())
	mustBeNil(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := s.Write(make([]byte, size))
		mustBeNil(t, errors.Join(err, s.CloseWrite()))
	})
	got, err := io.ReadAll(s)
	mustBeNil(t, err)
	mustBe(t, "echo", len(got), size)
	wg.Wait()
}

// withQUICHub runs a test with a hub at b and an edge behind a NAT.
func withQUICHub(t *testing.T, f func(t *testing.T, n *fabric.Net, e *fabric.Host, hub *quicHub, edge *transport.Endpoint)) {
	t.Helper()
	behindNAT(t, 0, func(t *testing.T, n *fabric.Net, e, h *fabric.Host) {
		hub := mustQUICHub(t, h)
		edge := mustEndpoint(t, transport.Config{Conn: mustPacketConn(t, e, 0)})
		f(t, n, e, hub, edge)
		mustBeNil(t, edge.Close())
		hub.stopServing(t)
	})
}

func TestQUICHandshakeTakesARoundTrip(t *testing.T) {
	withQUICHub(t, func(t *testing.T, n *fabric.Net, e *fabric.Host, hub *quicHub, edge *transport.Endpoint) {
		n.Shape(fabric.Hosts("e"), fabric.Everyone, fabric.Profile{Latency: 40 * time.Millisecond})
		start := time.Now()
		c := hub.mustConnect(t, edge, time.Hour)
		mustBe(t, "dialed after", time.Since(start), 80*time.Millisecond)
		mustBe(t, "the hub's peer", (<-hub.accepted).RemoteAddr().(*net.UDPAddr).IP.String(), "203.0.113.1")
		mustEcho(t, c, 3<<20)
	})
}

// TestQUICFollowsARebind: the connection goes on from another port and, later,
// from another address.
func TestQUICFollowsARebind(t *testing.T) {
	withQUICHub(t, func(t *testing.T, n *fabric.Net, e *fabric.Host, hub *quicHub, edge *transport.Endpoint) {
		c := hub.mustConnect(t, edge, time.Hour)
		mustEcho(t, c, 100)
		at := <-hub.accepted
		before := at.RemoteAddr().String()
		time.Sleep(time.Minute)
		f := e.Rebind()
		mustEcho(t, c, 100)
		time.Sleep(time.Minute) // the hub validates the new path
		after := at.RemoteAddr().String()
		if after == before {
			t.Errorf("the hub still answers to %s", before)
		}
		mustBe(t, "sockets with another address", f.Count().Readdressed, 1)
		mustEcho(t, c, 1<<20)

		g := e.Move("198.51.100.1")
		mustEcho(t, c, 100)
		time.Sleep(time.Minute)
		mustBe(t, "the hub answers to", at.RemoteAddr().(*net.UDPAddr).IP.String(), "198.51.100.1")
		mustBe(t, "sockets with another address", g.Count().Readdressed, 1)
		mustEcho(t, c, 1<<20)
	})
}

// TestQUICInARefusedCut: the hub's connection ends with the first packet that it
// cannot send, as with sendto's error of a real system; the edge's end does not,
// and a stateless reset tells it after the healing.
func TestQUICInARefusedCut(t *testing.T) {
	withQUICHub(t, func(t *testing.T, n *fabric.Net, e *fabric.Host, hub *quicHub, edge *transport.Endpoint) {
		c := hub.mustConnect(t, edge, time.Hour)
		at := <-hub.accepted
		cut := n.Cut(fabric.Hosts("e"), fabric.Everyone, fabric.Both, fabric.Refused)
		s, err := at.Open(t.Context())
		mustBeNil(t, err)
		_, err = s.Write([]byte("x"))
		mustBeNil(t, err)
		<-at.Done()
		mustFail(t, "the hub's connection", at.Err(), syscall.ECONNREFUSED)
		mustBe(t, "count", cut.Count(), fabric.Count{Refused: 1})
		time.Sleep(time.Minute)
		mustBe(t, "the edge's connection is open", c.Err(), nil)
		cut.Heal()
		s, err = c.Open(t.Context())
		mustBeNil(t, err)
		start := time.Now()
		_, err = s.Write(make([]byte, 100)) // the smallest packets are not answered with a reset
		mustBeNil(t, err)
		<-c.Done()
		mustBe(t, "told after", time.Since(start), 2*fabric.LANLatency)
	})
}

func TestQUICAfterACrash(t *testing.T) {
	behindNAT(t, 0, func(t *testing.T, n *fabric.Net, e, h *fabric.Host) {
		hub := mustQUICHub(t, h)
		edge := mustEndpoint(t, transport.Config{Conn: mustPacketConn(t, e, 0)})
		c := hub.mustConnect(t, edge, time.Hour)
		h.Crash()
		hub.stopServing(t)
		time.Sleep(time.Minute)
		mustBe(t, "the edge's connection is open", c.Err(), nil)
		again := mustQUICHub(t, h)
		s, err := c.Open(t.Context())
		mustBeNil(t, err)
		start := time.Now()
		_, err = s.Write(make([]byte, 100))
		mustBeNil(t, err)
		<-c.Done() // a stateless reset: the key is the same
		mustBe(t, "told after", time.Since(start), 2*fabric.LANLatency)
		mustBeNil(t, edge.Close())
		again.stopServing(t)
	})
}

// TestQUICOverBadLinks moves data over each profile, and over one that does
// everything at once.
func TestQUICOverBadLinks(t *testing.T) {
	for name, p := range map[string]fabric.Profile{
		"satellite": fabric.Satellite, "cellular3g": fabric.Cellular3G,
		"everything": {Latency: 30 * time.Millisecond, Jitter: 20 * time.Millisecond, Loss: 0.05, Duplicate: 0.05, Reorder: 0.05, Bandwidth: 5_000_000},
	} {
		t.Run(name, func(t *testing.T) {
			withQUICHub(t, func(t *testing.T, n *fabric.Net, e *fabric.Host, hub *quicHub, edge *transport.Endpoint) {
				f := n.Shape(fabric.Hosts("e"), fabric.Everyone, p)
				start := time.Now()
				c := hub.mustConnect(t, edge, time.Hour)
				mustEcho(t, c, 500_000)
				t.Logf("500 kB there and back in %s: %+v", time.Since(start).Round(time.Millisecond), f.Count())
				if least := time.Duration(float64(500_000*8) / float64(p.Bandwidth) * float64(time.Second)); time.Since(start) < least {
					t.Errorf("it took %s, the line alone %s", time.Since(start), least)
				}
			})
		})
	}
}

// TestQUICIsSilentWhenIdle: a connection on which nothing happens costs no packet
// and no wake-up, also in a cut.
func TestQUICIsSilentWhenIdle(t *testing.T) {
	withQUICHub(t, func(t *testing.T, n *fabric.Net, e *fabric.Host, hub *quicHub, edge *transport.Endpoint) {
		c := hub.mustConnect(t, edge, time.Hour)
		mustEcho(t, c, 100)
		time.Sleep(time.Second)
		before := n.Bytes("e")
		time.Sleep(50 * time.Minute)
		mustBe(t, "traffic in 50 minutes", n.Bytes("e"), before)
		cut := n.Cut(fabric.Everyone, fabric.Everyone, fabric.Both, fabric.Silent)
		s, err := c.Open(t.Context())
		mustBeNil(t, err)
		_, err = s.Write([]byte("x"))
		mustBeNil(t, err)
		time.Sleep(10 * time.Minute)
		// Probes come with twice the distance of those before.
		if hits := cut.Hits(); hits < 5 || hits > 60 {
			t.Errorf("%d packets were sent into the cut", hits)
		}
	})
}
