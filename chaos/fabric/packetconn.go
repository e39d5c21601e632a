package fabric

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// Limits of a packet socket, as on Linux.
const (
	maxPayload    = 65507  // of UDP over IPv4
	packetHeaders = 28     // of IPv4 and UDP
	defaultBuffer = 212992 // net.core.rmem_default
	maxBuffer     = 8 << 20
	// bufferOverhead is the space of a packet in the system's buffer in addition to its
	// bytes (struct sk_buff and rounding).
	bufferOverhead = 640
	// maxFlight is the maximum number of packets in flight to one socket.
	maxFlight = 1 << 16
)

// PacketConn is a UDP socket of a host.
type PacketConn struct {
	host  *Host
	port  uint16
	local *net.UDPAddr
	read  waiter

	// Guarded by Net.mu.
	ended    bool    // closed, or the host has crashed
	released bool    // Close was called
	writeBy  instant // write deadline; never: none
	public   netip.AddrPort
	source   *net.UDPAddr // public, as the source of packets; nil: the NAT has no port for it
	used     instant      // last packet from or to it, for the NAT's idle time
	movedBy  *Fault       // fault that has changed the address; nil after the next packet
	inFlight packetQueue  // packets to it that have not arrived
	ready    packetQueue  // packets that wait to be read
	charged  int          // bytes of the buffer that ready uses
	buffer   int          // size of the buffer, in bytes
}

var _ net.PacketConn = (*PacketConn)(nil)

// newPacketConn returns a socket on the port. It does not add it to h.packets.
func newPacketConn(h *Host, port uint16) *PacketConn {
	at := netip.AddrPortFrom(h.ip, port)
	c := &PacketConn{
		host: h, port: port, local: net.UDPAddrFromAddrPort(at), read: newWaiter(h.net), writeBy: never, buffer: defaultBuffer,
	}
	if h.nat == nil {
		c.public, c.source = at, c.local
	}
	return c
}

// ReadFrom waits for the next packet and copies it to b. Bytes that do not fit into b are lost.
func (c *PacketConn) ReadFrom(b []byte) (size int, from net.Addr, err error) {
	c.read.waitUntilDone(func(now instant) (instant, bool) {
		switch {
		case c.ended:
			err = net.ErrClosed
			return 0, true
		case c.read.isPastDeadline(now):
			err = os.ErrDeadlineExceeded
			return 0, true
		case c.host.pause != nil:
			return never, false
		}
		c.bufferArrivals(now)
		if len(c.ready) == 0 {
			return c.inFlight.nextArrival(), false
		}
		d := c.ready.pop()
		c.charged -= len(d.data) + bufferOverhead
		size, from = copy(b, d.data), d.from
		c.host.net.releaseBuffer(d.data)
		return 0, true
	})
	if err != nil {
		return 0, nil, opError("read", "udp", c.LocalAddr(), nil, err)
	}
	return size, from, nil
}

// WriteTo sends a packet to a *net.UDPAddr. It never blocks. A lost packet is no error.
func (c *PacketConn) WriteTo(b []byte, to net.Addr) (int, error) {
	if err := c.writePacket(b, to); err != nil {
		return 0, opError("write", "udp", c.LocalAddr(), to, err)
	}
	return len(b), nil
}

// writePacket sends a packet, unless the socket is closed, the deadline has passed, or the packet is
// too large. A paused host holds it back.
func (c *PacketConn) writePacket(b []byte, to net.Addr) error {
	a, ok := to.(*net.UDPAddr)
	if !ok || a.Port == 0 {
		return syscall.EINVAL
	}
	dst := a.AddrPort()
	dst = netip.AddrPortFrom(dst.Addr().Unmap(), dst.Port())
	h := c.host
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	now := h.net.currentInstant()
	switch {
	case c.released:
		return net.ErrClosed
	case c.writeBy <= now:
		return os.ErrDeadlineExceeded
	case len(b) > maxPayload:
		return syscall.EMSGSIZE
	case c.ended: // the host has crashed: the packet is lost
		return nil
	case h.pause != nil:
		h.queuePausedPacket(c, b, dst)
		return nil
	}
	return c.sendPacket(now, b, dst)
}

// errRefused is the error of sendto for an unreachable target.
var errRefused = os.NewSyscallError("sendto", syscall.ECONNREFUSED)

// sendPacket passes a packet to the link and schedules its arrival. The error is errRefused if a cut
// refuses it. mu is held.
func (c *PacketConn) sendPacket(now instant, b []byte, dst netip.AddrPort) error {
	h := c.host
	bytes := len(b) + packetHeaders
	h.traffic.SentPackets++
	h.traffic.SentBytes += bytes
	c.ensurePublicAddr(now)
	target, peer := h.findTarget(now, dst)
	if target == nil {
		return nil
	}
	p := h.linkTo(target).decidePacket(now, bytes)
	switch {
	case p.refused:
		return errRefused
	case p.lost:
	case peer == nil:
		target.countStray()
	default:
		peer.scheduleArrival(now, p.at, b, c)
		if p.duplicateAt != never {
			peer.scheduleArrival(now, p.duplicateAt, b, c)
		}
	}
	return nil
}

// ensurePublicAddr gives a socket behind a NAT a public port if it has none or was idle too long, and
// counts the first packet from a new address; mu is held.
func (c *PacketConn) ensurePublicAddr(now instant) {
	h := c.host
	if h.nat != nil {
		if h.isForgottenByNAT(c, now) {
			h.nat.unbindSocket(c)
		}
		if c.source == nil {
			h.nat.bindSocket(c)
		}
		c.used = now
	}
	if c.movedBy != nil {
		c.movedBy.count.Readdressed++
		c.movedBy = nil
	}
}

// isForgottenByNAT reports whether the socket was idle for longer than the NAT keeps a port;
// mu is held.
func (h *Host) isForgottenByNAT(c *PacketConn, now instant) bool {
	return h.natIdle > 0 && c.source != nil && now > c.used.addDuration(h.natIdle)
}

// findTarget returns the host at an address, and its socket or nil. Both are nil if no host has the
// address, or a NAT has no socket for the port. It counts such packets. mu is held.
func (h *Host) findTarget(now instant, dst netip.AddrPort) (*Host, *PacketConn) {
	n := h.net
	if dst.Addr() == h.ip || dst.Addr().IsLoopback() {
		return h, h.packets[dst.Port()]
	}
	if t := n.nats[dst.Addr()]; t != nil {
		c := t.ports[dst.Port()]
		switch f := t.former[dst.Port()]; {
		case c != nil && !c.host.isForgottenByNAT(c, now):
			c.used = now
			return c.host, c
		case f != nil:
			f.count.Dropped++
		default:
			h.traffic.Strays++
		}
		return nil, nil
	}
	if target := n.hostsByAddr[dst.Addr()]; target != nil {
		return target, target.packets[dst.Port()]
	}
	h.traffic.Strays++
	return nil, nil
}

// countStray counts a packet to a port of the host without a socket; mu is held.
func (h *Host) countStray() {
	if !h.up {
		h.crash.count.Dropped++
	}
	h.traffic.Strays++
}

// scheduleArrival adds a copy of a packet to the socket's packets in flight, or drops it if there are
// too many; mu is held.
func (c *PacketConn) scheduleArrival(now, at instant, b []byte, from *PacketConn) {
	n := c.host.net
	if len(c.inFlight) >= maxFlight {
		c.host.traffic.Overflows++
		return
	}
	data := n.acquireBuffer(len(b))
	copy(data, b)
	c.inFlight.push(datagram{at: at, data: data, from: from.source, own: from.host == c.host})
	c.read.wakeAtLatest(now, at)
}

// bufferArrivals moves packets that have arrived by now to the buffer, and drops those that do not
// fit; mu is held.
func (c *PacketConn) bufferArrivals(now instant) {
	h := c.host
	for c.inFlight.nextArrival() <= now {
		d := c.inFlight.pop()
		h.traffic.ReceivedPackets++
		h.traffic.ReceivedBytes += len(d.data) + packetHeaders
		charge := len(d.data) + bufferOverhead
		full := c.charged+charge > c.buffer
		switch {
		case h.pause != nil && full:
			h.pause.count.Dropped++
		case h.pause != nil:
			h.pause.count.Held++
		}
		if full {
			h.traffic.Overflows++
			h.net.releaseBuffer(d.data)
			continue
		}
		c.charged += charge
		c.ready.push(d)
	}
}

// dropInFlight drops the packets in flight from other hosts, and counts them as effects of the
// fault; mu is held.
func (c *PacketConn) dropInFlight(f *Fault) {
	var own packetQueue
	for len(c.inFlight) > 0 {
		if d := c.inFlight.pop(); d.own {
			own.push(d)
		} else {
			f.count.Dropped++
			c.host.net.releaseBuffer(d.data)
		}
	}
	c.inFlight = own
}

// closeSocket ends the socket, releases its ports, and drops its packets; mu is held.
func (c *PacketConn) closeSocket() {
	h := c.host
	c.ended = true
	if h.packets[c.port] == c {
		delete(h.packets, c.port)
	}
	if h.nat != nil {
		h.nat.unbindSocket(c)
	}
	for len(c.inFlight) > 0 {
		h.net.releaseBuffer(c.inFlight.pop().data)
	}
	for len(c.ready) > 0 {
		h.net.releaseBuffer(c.ready.pop().data)
	}
	c.read.wakeSleeper()
}

// Close closes the socket and releases its port.
func (c *PacketConn) Close() error {
	n := c.host.net
	n.mu.Lock()
	again := c.released
	if !c.ended {
		c.bufferArrivals(n.currentInstant())
		c.closeSocket()
	}
	c.released = true
	n.mu.Unlock()
	if again {
		return opError("close", "udp", c.LocalAddr(), nil, net.ErrClosed)
	}
	return nil
}

// LocalAddr returns a *net.UDPAddr: the host's own address, which is private behind a NAT.
func (c *PacketConn) LocalAddr() net.Addr { return c.local }

// SetDeadline sets the deadlines for reading and writing.
func (c *PacketConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline sets the deadline of ReadFrom, also for a call that waits already.
func (c *PacketConn) SetReadDeadline(t time.Time) error {
	c.read.setDeadline(t)
	return nil
}

// SetWriteDeadline sets the time after which writes fail.
func (c *PacketConn) SetWriteDeadline(t time.Time) error {
	c.host.net.mu.Lock()
	defer c.host.net.mu.Unlock()
	c.writeBy = c.host.net.instantOf(t)
	return nil
}

// SetReadBuffer sets the size of the buffer for packets that wait to be read, up to 8 MiB.
func (c *PacketConn) SetReadBuffer(bytes int) error {
	c.host.net.mu.Lock()
	defer c.host.net.mu.Unlock()
	c.buffer = min(max(bytes, bufferSize+bufferOverhead), maxBuffer)
	return nil
}

// SetWriteBuffer does nothing: a write never waits.
func (c *PacketConn) SetWriteBuffer(int) error { return nil }
