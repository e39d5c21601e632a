package fabric

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"
)

// LANLatency is how long a packet takes, one way, between two hosts that no
// Shape applies to; loopback is how long from a host to itself.
const (
	LANLatency = 200 * time.Microsecond
	loopback   = 20 * time.Microsecond
)

// instant is a time on a Net's clock, counted from New.
type instant time.Duration

// never is after every instant.
const never instant = math.MaxInt64

func (i instant) addDuration(d time.Duration) instant { return i + instant(d) }

// Net is a network.
type Net struct {
	seed  uint64
	start time.Time

	mu           sync.Mutex
	closed       bool
	hosts        []*Host
	names        map[string]*Host
	hostsByAddr  map[netip.Addr]*Host // hosts that have an address of their own
	nats         map[netip.Addr]*nat  // by public address
	faults       []*Fault             // cuts and shapes that are not healed, in order
	faultVersion uint64               // counts the changes of faults
	pairs        []*pair              // streams
	freeBuffers  [][]byte             // buffers of packets
}

// New makes a network without hosts. Inside a bubble it must be made there.
func New(seed uint64) *Net {
	return &Net{
		seed: seed, start: time.Now(),
		names: map[string]*Host{}, hostsByAddr: map[netip.Addr]*Host{},
		nats: map[netip.Addr]*nat{},
	}
}

// Close closes every socket, listener and stream, on both sides. Whoever waits
// on one gets net.ErrClosed.
func (n *Net) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	for _, h := range n.hosts {
		h.endSocketsAndStreams()
	}
	n.pairs = nil
}

// Host adds a machine with an address of its own. It panics where the name or
// the address is taken, or the address is none: a cluster's plan is wrong then.
func (n *Net) Host(name, ip string) *Host {
	a := mustAddr(ip)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.names[name] != nil || n.hostsByAddr[a] != nil || n.nats[a] != nil {
		panic(fmt.Sprintf("fabric: host %s with address %s: the name or the address is taken", name, ip))
	}
	h := &Host{
		net: n, name: name, ip: a, up: true,
		packets: map[uint16]*PacketConn{}, listeners: map[uint16]*Listener{}, links: map[*Host]*link{},
		nextPort: firstEphemeral, crashed: make(chan struct{}),
	}
	n.hosts = append(n.hosts, h)
	n.names[name], n.hostsByAddr[a] = h, h
	return h
}

func mustAddr(ip string) netip.Addr {
	a, err := netip.ParseAddr(ip)
	if err != nil {
		panic(fmt.Sprintf("fabric: %v", err))
	}
	return a.Unmap()
}

// Traffic is what went through a host's sockets. Bytes count the headers of IP
// (v4, 20) and UDP (8); of streams, those of IP and TCP (20) for every 1,460
// bytes, without acknowledgements.
type Traffic struct {
	SentPackets, ReceivedPackets int
	SentBytes, ReceivedBytes     int
	// Overflows are packets that arrived at a socket whose buffer was full,
	// Strays those that were sent to an address where nobody listens.
	Overflows, Strays int
}

// Bytes is the traffic of the host of that name so far; zero for an unknown one.
func (n *Net) Bytes(host string) Traffic {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.names[host]
	if h == nil {
		return Traffic{}
	}
	h.deliverArrivals(n.currentInstant())
	return h.traffic
}

func (n *Net) currentInstant() instant { return instant(time.Since(n.start)) }

// instantOf turns a deadline into an instant.
func (n *Net) instantOf(t time.Time) instant {
	if t.IsZero() {
		return never
	}
	return instant(t.Sub(n.start))
}

// newLinkRandom is the generator of one direction between two hosts.
func (n *Net) newLinkRandom(from, to string) *rand.Rand {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d\x00%s\x00%s", n.seed, from, to) // never fails
	return rand.New(rand.NewPCG(n.seed, h.Sum64()))
}

// resolveAddr finds the address that a text such as "10.0.0.1:4646" or "h1:4646"
// names; mu is held.
func (n *Net) resolveAddr(addr string) (netip.AddrPort, error) {
	if a, err := netip.ParseAddrPort(addr); err == nil {
		return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), nil
	}
	name, port, err := net.SplitHostPort(addr)
	if err != nil {
		return netip.AddrPort{}, err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return netip.AddrPort{}, err
	}
	h := n.names[name]
	if h == nil || h.nat != nil {
		return netip.AddrPort{}, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	return netip.AddrPortFrom(h.ip, uint16(number)), nil
}

// acquireBuffer returns room for a packet; mu is held.
func (n *Net) acquireBuffer(size int) []byte {
	if last := len(n.freeBuffers) - 1; last >= 0 && size <= bufferSize {
		b := n.freeBuffers[last]
		n.freeBuffers = n.freeBuffers[:last]
		return b[:size]
	}
	return make([]byte, size, max(size, bufferSize))
}

// releaseBuffer takes a buffer back; mu is held.
func (n *Net) releaseBuffer(b []byte) {
	if cap(b) == bufferSize && len(n.freeBuffers) < maxFreeBuffers {
		n.freeBuffers = append(n.freeBuffers, b)
	}
}

const (
	bufferSize     = 1536
	maxFreeBuffers = 1024
)

// opError names what failed, as the net package does.
func opError(op, network string, local, remote net.Addr, err error) error {
	return &net.OpError{Op: op, Net: network, Source: local, Addr: remote, Err: err}
}
