// Package transporttest is a network for tests of what runs over
// syncproto/transport: addresses and latency from simnet, and in front of each
// edge a Path that loses, cuts and rebinds like the ones outside. It works in
// virtual time (testing/synctest). Only tests import it.
//
// A Net and each socket of a Path run goroutines until the test ends, or the
// socket is closed.
package transporttest

import (
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/marcopolo/simnet"
)

// Net is a simulated network.
type Net struct {
	sim     *simnet.Simnet
	latency atomic.Int64

	mu   sync.Mutex
	port int
}

// New starts a network with a one-way latency; it ends with the test.
func New(tb testing.TB, latency time.Duration) *Net {
	n := &Net{port: 40000}
	n.SetLatency(latency)
	n.sim = &simnet.Simnet{
		LatencyFunc: func(*simnet.Packet) time.Duration { return time.Duration(n.latency.Load()) },
		Logger:      slog.New(slog.NewTextHandler(io.Discard, nil)), // packets to closed sockets are no news
	}
	n.sim.Start()
	tb.Cleanup(n.sim.Close)
	return n
}

// SetLatency changes the one-way latency of packets that are sent from now on.
func (n *Net) SetLatency(latency time.Duration) { n.latency.Store(int64(latency)) }

const bandwidth = 100 * simnet.Mibps

// Listen returns a socket at an address, such as "10.0.0.1:4647".
func (n *Net) Listen(tb testing.TB, addr string) net.PacketConn {
	tb.Helper()
	a, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		tb.Fatalf("listen on %s: %v", addr, err)
	}
	return n.newEndpoint(a)
}

func (n *Net) newEndpoint(a *net.UDPAddr) *simnet.SimConn {
	link := simnet.LinkSettings{BitsPerSecond: bandwidth}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sim.NewEndpoint(a, simnet.NodeBiDiLinkSettings{Downlink: link, Uplink: link})
}

// Path is the way from one edge into the network.
type Path struct {
	net *Net
	ip  net.IP

	mu      sync.Mutex
	cut     bool
	loss    float64
	rand    *rand.Rand
	sockets []*socket
	count   Count
}

// Count is what went over a Path, IP and UDP headers counted. Packets that were
// lost count where they were sent.
type Count struct {
	SentBytes, ReceivedBytes     int
	SentPackets, ReceivedPackets int
}

// Bytes is both directions together.
func (c Count) Bytes() int { return c.SentBytes + c.ReceivedBytes }

// Sub returns what was counted since o.
func (c Count) Sub(o Count) Count {
	return Count{c.SentBytes - o.SentBytes, c.ReceivedBytes - o.ReceivedBytes, c.SentPackets - o.SentPackets, c.ReceivedPackets - o.ReceivedPackets}
}

// headerBytes are the bytes before a packet's payload: UDP over IPv4.
const headerBytes = 28

// Path returns a path with a public address of its own; seed decides what it
// loses.
func (n *Net) Path(tb testing.TB, ip string, seed uint64) *Path {
	a := net.ParseIP(ip)
	if a == nil {
		tb.Fatalf("make a path: %q is no IP address", ip)
	}
	return &Path{net: n, ip: a, rand: rand.New(rand.NewPCG(seed, seed))}
}

// Cut makes every packet vanish, silently and in both directions, until Heal.
func (p *Path) Cut() { p.updateLocked(func() { p.cut = true }) }

// Heal ends a Cut.
func (p *Path) Heal() { p.updateLocked(func() { p.cut = false }) }

// Lose makes a fraction of the packets vanish, in each direction.
func (p *Path) Lose(fraction float64) { p.updateLocked(func() { p.loss = fraction }) }

// Count is what went over the path so far.
func (p *Path) Count() (c Count) {
	p.updateLocked(func() { c = p.count })
	return c
}

// Rebind gives every open socket another public port, as a NAT does that forgot
// its mapping: what is sent to the former one vanishes.
func (p *Path) Rebind() {
	p.updateLocked(func() {
		for _, s := range p.sockets {
			s.bindNewPort()
		}
	})
}

func (p *Path) updateLocked(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// drawDelivery draws whether a packet gets through; mu is held.
func (p *Path) drawDelivery() bool { return !p.cut && (p.loss == 0 || p.rand.Float64() >= p.loss) }

// Socket opens a socket behind the path.
func (p *Path) Socket() net.PacketConn {
	s := &socket{path: p, in: make(chan packet, 256), closed: make(chan struct{}), moved: make(chan struct{}, 1)}
	p.updateLocked(func() {
		p.sockets = append(p.sockets, s)
		s.bindNewPort()
	})
	return s
}

type packet struct {
	data []byte
	from net.Addr
}

// socket is a net.PacketConn whose public address changes with Path.Rebind.
type socket struct {
	path   *Path
	in     chan packet
	closed chan struct{}
	moved  chan struct{} // the deadline was

	// Guarded by path.mu.
	outer     *simnet.SimConn
	receivers sync.WaitGroup
	done      bool
	deadline  time.Time
}

// bindNewPort gives the socket a new public port; path.mu is held.
func (s *socket) bindNewPort() {
	if s.done {
		return
	}
	if s.outer != nil {
		_ = s.outer.Close() // never fails
	}
	s.path.net.mu.Lock()
	s.path.net.port++
	a := &net.UDPAddr{IP: s.path.ip, Port: s.path.net.port}
	s.path.net.mu.Unlock()
	outer := s.path.net.newEndpoint(a)
	s.outer = outer
	s.receivers.Go(func() { s.receivePackets(outer) })
}

func (s *socket) receivePackets(outer *simnet.SimConn) {
	buf := make([]byte, 2048)
	for {
		n, from, err := outer.ReadFrom(buf)
		if err != nil {
			return
		}
		passes := false
		s.path.updateLocked(func() {
			if passes = s.path.drawDelivery(); passes {
				s.path.count.ReceivedBytes += n + headerBytes
				s.path.count.ReceivedPackets++
			}
		})
		if !passes {
			continue
		}
		select {
		case s.in <- packet{append([]byte(nil), buf[:n]...), from}:
		case <-s.closed:
			return
		}
	}
}

func (s *socket) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		var deadline time.Time
		s.path.updateLocked(func() { deadline = s.deadline })
		var expired <-chan time.Time
		if !deadline.IsZero() {
			timer := time.NewTimer(time.Until(deadline))
			defer timer.Stop()
			expired = timer.C
		}
		select {
		case p := <-s.in:
			return copy(b, p.data), p.from, nil
		case <-s.closed:
			return 0, nil, net.ErrClosed
		case <-expired:
			return 0, nil, os.ErrDeadlineExceeded
		case <-s.moved:
		}
	}
}

func (s *socket) WriteTo(b []byte, to net.Addr) (int, error) {
	var outer *simnet.SimConn
	s.path.updateLocked(func() {
		s.path.count.SentBytes += len(b) + headerBytes
		s.path.count.SentPackets++
		if s.path.drawDelivery() && !s.done {
			outer = s.outer
		}
	})
	if outer == nil {
		return len(b), nil
	}
	if _, err := outer.WriteTo(b, to); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (s *socket) Close() error {
	already := false
	s.path.updateLocked(func() {
		if already = s.done; already {
			return
		}
		s.done = true
		close(s.closed)
		_ = s.outer.Close() // never fails
	})
	s.receivers.Wait()
	return nil
}

func (s *socket) LocalAddr() net.Addr { return &net.UDPAddr{IP: net.IPv4(192, 168, 0, 2), Port: 5000} }

func (s *socket) SetReadDeadline(t time.Time) error {
	s.path.updateLocked(func() { s.deadline = t })
	select {
	case s.moved <- struct{}{}:
	default:
	}
	return nil
}

func (s *socket) SetDeadline(t time.Time) error    { return s.SetReadDeadline(t) }
func (s *socket) SetWriteDeadline(time.Time) error { return nil }
