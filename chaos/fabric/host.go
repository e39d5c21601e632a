package fabric

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

// Range of ephemeral ports, as on Linux.
const (
	firstEphemeral = 32768
	lastEphemeral  = 60999
)

// Host is a machine. All of its fields except net and name are guarded by net.mu.
type Host struct {
	net  *Net
	name string

	ip        netip.Addr    // its own address, which is private behind a NAT
	nat       *nat          // nil: the address is public
	natIdle   time.Duration // idle time after which the NAT drops a socket; 0: never
	packets   map[uint16]*PacketConn
	listeners map[uint16]*Listener
	links     map[*Host]*link
	nextPort  int
	traffic   Traffic

	up            bool          // false from a Crash until the host opens a socket
	crashed       chan struct{} // closed by a Crash, so that dialing ends; then replaced
	crash         *Fault        // the last Crash; nil: none
	pause         *Fault        // the current Pause; nil: none
	pausedPackets []outgoing    // packets that were sent in a pause
	pauseQuota    int           // bytes that pausedPackets may still grow by
}

// Name returns the host's name.
func (h *Host) Name() string { return h.name }

// IP returns the address at which others reach the host: behind a NAT, the NAT's.
func (h *Host) IP() string {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if h.nat != nil {
		return h.nat.ip.String()
	}
	return h.ip.String()
}

// BehindNAT puts the host behind a NAT with a public address, which several
// hosts may share. From then on the host's own address is private, and hosts behind
// other NATs may use it, too. The NAT gives each socket one public port for all peers,
// to which everyone can answer. It drops the port of a packet socket that was idle
// for the given time (0: never); the next packet gets another port. BehindNAT must be
// called before the host opens a socket, and otherwise panics.
func (h *Host) BehindNAT(public string, idle time.Duration) {
	n := h.net
	a := mustAddr(public)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hostsByAddr[a] != nil || len(h.packets)+len(h.listeners) > 0 {
		panic(fmt.Sprintf("fabric: host %s behind %s: the address is a host's, or the host has sockets", h.name, public))
	}
	delete(n.hostsByAddr, h.ip)
	h.natIdle = idle
	h.nat = n.natAt(a)
}

// ListenPacket opens a UDP socket on the port; 0: any free port. Several goroutines
// may read from it. quic-go can use it, and then sends without GSO, ECN and control
// messages.
func (h *Host) ListenPacket(port int) (net.PacketConn, error) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	number, err := takePort(h, h.packets, port)
	if err != nil {
		return nil, opError("listen", "udp", &net.UDPAddr{IP: h.ip.AsSlice(), Port: port}, nil, err)
	}
	c := newPacketConn(h, number)
	h.packets[number] = c
	return c, nil
}

// Listen opens a TCP listener on the port; 0: any free port.
func (h *Host) Listen(port int) (net.Listener, error) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	number, err := takePort(h, h.listeners, port)
	if err != nil {
		return nil, opError("listen", "tcp", &net.TCPAddr{IP: h.ip.AsSlice(), Port: port}, nil, err)
	}
	l := &Listener{host: h, port: number, addr: &net.TCPAddr{IP: h.ip.AsSlice(), Port: int(number)}, accept: newWaiter(h.net)}
	h.listeners[number] = l
	return l, nil
}

// takePort returns the port for a new socket, or a free one for 0, and marks the host as up. It does
// not add it to taken. h.net.mu is held.
func takePort[T any](h *Host, taken map[uint16]T, port int) (uint16, error) {
	if h.net.closed {
		return 0, net.ErrClosed
	}
	if port < 0 || port > 65535 {
		return 0, &net.AddrError{Err: "invalid port", Addr: fmt.Sprint(port)}
	}
	h.up = true
	if port != 0 {
		if _, used := taken[uint16(port)]; used {
			return 0, syscall.EADDRINUSE
		}
		return uint16(port), nil
	}
	for range lastEphemeral - firstEphemeral {
		p := uint16(h.nextPort)
		if h.nextPort++; h.nextPort > lastEphemeral {
			h.nextPort = firstEphemeral
		}
		if _, used := taken[p]; !used {
			return p, nil
		}
	}
	return 0, syscall.EADDRINUSE
}

// deliverArrivals moves packets that have arrived by now to the sockets' buffers; net.mu is held.
func (h *Host) deliverArrivals(now instant) {
	for _, c := range h.packets {
		c.bufferArrivals(now)
	}
}

// sortedSockets returns the packet sockets ordered by port; net.mu is held.
func (h *Host) sortedSockets() []*PacketConn {
	cs := make([]*PacketConn, 0, len(h.packets))
	for _, c := range h.packets {
		cs = append(cs, c)
	}
	slices.SortFunc(cs, func(a, b *PacketConn) int { return int(a.port) - int(b.port) })
	return cs
}

// endSocketsAndStreams ends all sockets, listeners and streams of the host without notice to
// their peers, and returns their number. net.mu is held.
func (h *Host) endSocketsAndStreams() int {
	killed := 0
	now := h.net.currentInstant()
	for _, c := range h.sortedSockets() {
		c.bufferArrivals(now)
		c.closeSocket()
		killed++
	}
	for _, l := range h.listeners {
		killed += l.closeListener()
	}
	for _, p := range h.net.pairs {
		for _, s := range p.ends {
			if s.host == h && !s.closed {
				s.killStream()
				killed++
			}
		}
	}
	h.pausedPackets, h.pauseQuota = nil, 0
	close(h.crashed)
	h.crashed = make(chan struct{})
	return killed
}
