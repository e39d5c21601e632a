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

// LANLatency is the one-way latency between two hosts without a Shape; loopback is the
// latency from a host to itself.
const (
	LANLatency = 200 * time.Microsecond
	loopback   = 20 * time.Microsecond
)

// instant is a time on a Net's clock, as the duration since New.
type instant time.Duration

// never is after every instant.
const never instant = math.MaxInt64

func (i instant) addDuration(d time.Duration) instant { return i + instant(d) }

// Net is a network of hosts. Its methods may be called from any goroutine.
type Net struct {
	seed  uint64
	start time.Time

	mu           sync.Mutex
	closed       bool
	hosts        []*Host
	names        map[string]*Host
	hostsByAddr  map[netip.Addr]*Host // hosts with a public address
	nats         map[netip.Addr]*nat  // by public address
	faults       []*Fault             // cuts and shapes that are not healed, oldest first
	faultVersion uint64               // incremented when faults changes
	pairs        []*pair              // streams that have not ended on both sides
	freeBuffers  [][]byte             // packet buffers for reuse
}

// New returns a network without hosts. For use inside a bubble it must be made there.
func New(seed uint64) *Net {
	return &Net{
		seed: seed, start: time.Now(),
		names: map[string]*Host{}, hostsByAddr: map[netip.Addr]*Host{},
		nats: map[netip.Addr]*nat{},
	}
}

// Close closes every socket, listener and stream. Blocked calls on them return net.ErrClosed.
func (n *Net) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	for _, h := range n.hosts {
		h.endSocketsAndStreams()
	}
	n.pairs = nil
}

// Host adds a machine with its own address. It panics if the name or the address is taken, or the
// address is invalid.
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

// mustAddr parses an IP address and panics if it is invalid.
func mustAddr(ip string) netip.Addr {
	a, err := netip.ParseAddr(ip)
	if err != nil {
		panic(fmt.Sprintf("fabric: %v", err))
	}
	return a.Unmap()
}

// Traffic counts the packets and bytes of a host's sockets. Bytes include the headers of
// IP (v4, 20) and UDP (8); for streams, those of IP and TCP (20) for every 1,460 bytes,
// without acknowledgements.
type Traffic struct {
	SentPackets, ReceivedPackets int
	SentBytes, ReceivedBytes     int
	// Overflows are packets that arrived at a socket whose buffer was full. Strays are
	// packets to an address on which no socket listens.
	Overflows, Strays int
}

// Bytes returns the traffic of a host so far; zero if there is no host of that name.
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

// currentInstant returns the time since New.
func (n *Net) currentInstant() instant { return instant(time.Since(n.start)) }

// instantOf converts a deadline to an instant; never for the zero time.
func (n *Net) instantOf(t time.Time) instant {
	if t.IsZero() {
		return never
	}
	return instant(t.Sub(n.start))
}

// newLinkRandom returns the generator of random numbers for one direction between two hosts.
func (n *Net) newLinkRandom(from, to string) *rand.Rand {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d\x00%s\x00%s", n.seed, from, to) // never fails
	return rand.New(rand.NewPCG(n.seed, h.Sum64()))
}

// resolveAddr parses an address such as "10.0.0.1:4646", or "h1:4646" with the name of a
// host; n.mu is held.
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

// acquireBuffer returns a buffer of that size for a packet; n.mu is held.
func (n *Net) acquireBuffer(size int) []byte {
	if last := len(n.freeBuffers) - 1; last >= 0 && size <= bufferSize {
		b := n.freeBuffers[last]
		n.freeBuffers = n.freeBuffers[:last]
		return b[:size]
	}
	return make([]byte, size, max(size, bufferSize))
}

// releaseBuffer keeps a buffer for acquireBuffer; n.mu is held.
func (n *Net) releaseBuffer(b []byte) {
	if cap(b) == bufferSize && len(n.freeBuffers) < maxFreeBuffers {
		n.freeBuffers = append(n.freeBuffers, b)
	}
}

const (
	bufferSize     = 1536
	maxFreeBuffers = 1024
)

// opError wraps an error with the operation and addresses, as package net does.
func opError(op, network string, local, remote net.Addr, err error) error {
	return &net.OpError{Op: op, Net: network, Source: local, Addr: remote, Err: err}
}
