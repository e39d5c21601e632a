package fabric

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

// Ports that a host gives out: those of Linux.
const (
	firstEphemeral = 32768
	lastEphemeral  = 60999
)

// Host is a machine. All of its fields but net and name are guarded by net.mu.
type Host struct {
	net  *Net
	name string

	ip        netip.Addr // its own; behind a NAT only itself knows it
	nat       *nat       // nil: the address is public
	natIdle   time.Duration
	packets   map[uint16]*PacketConn
	listeners map[uint16]*Listener
	links     map[*Host]*link
	nextPort  int
	traffic   Traffic

	up            bool          // false from a Crash to the next socket
	crashed       chan struct{} // closed by a Crash: who dials gives up
	crash         *Fault        // the last one
	pause         *Fault        // nil: it runs
	pausedPackets []outgoing    // packets that were sent in a pause
	pauseQuota    int           // bytes that held may still grow by
}

// Name is what the host was made with.
func (h *Host) Name() string { return h.name }

// IP is the address that others reach the host at: behind a NAT, the NAT's.
func (h *Host) IP() string {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if h.nat != nil {
		return h.nat.ip.String()
	}
	return h.ip.String()
}

// BehindNAT puts the host behind a NAT with a public address, which several
// hosts may share. The host's own address is a private one from now on, and may
// be used by hosts behind other NATs too. The NAT gives each socket a public
// port, the same one for all peers, and lets everyone answer to it. It forgets a
// packet socket that was silent in both directions for idle (0: never); the next
// packet gets another port. It must be called before the host opens a socket.
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

// ListenPacket opens a UDP socket, on any port where it is 0. It may be read by
// several goroutines, and given to quic-go, which sends on it without GSO, ECN
// and control messages.
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

// Listen opens a TCP port, any one where it is 0.
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

// takePort finds a free port for a new socket and marks the host as up; mu is
// held.
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

// deliverArrivals moves what has arrived by now into the sockets' buffers; mu is held.
func (h *Host) deliverArrivals(now instant) {
	for _, c := range h.packets {
		c.bufferArrivals(now)
	}
}

// sortedSockets lists the packet sockets by port; mu is held.
func (h *Host) sortedSockets() []*PacketConn {
	cs := make([]*PacketConn, 0, len(h.packets))
	for _, c := range h.packets {
		cs = append(cs, c)
	}
	slices.SortFunc(cs, func(a, b *PacketConn) int { return int(a.port) - int(b.port) })
	return cs
}

// endSocketsAndStreams ends all that the host has open, without a word; it returns how many
// there were. mu is held.
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
