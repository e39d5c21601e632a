package fabric

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// Bounds of a packet socket, those of Linux.
const (
	maxPayload    = 65507  // of UDP over IPv4
	packetHeaders = 28     // of IPv4 and UDP
	defaultBuffer = 212992 // net.core.rmem_default
	maxBuffer     = 8 << 20
	// bufferOverhead is what the system's buffer charges for a packet besides its
	// bytes (struct sk_buff and rounding).
	bufferOverhead = 640
	// maxFlight bounds what is under way to one socket.
	maxFlight = 1 << 16
)

// PacketConn is a UDP socket.
type PacketConn struct {
	host  *Host
	port  uint16
	local *net.UDPAddr
	read  waiter

	// Guarded by Net.mu.
	ended    bool // nothing more is read or sent
	released bool // Close was called
	writeBy  instant
	public   netip.AddrPort
	source   *net.UDPAddr // public, as others see it; nil: the NAT has no port for it yet
	used     instant      // when it last sent or was sent to
	movedBy  *Fault       // what has changed the address, until the next packet
	inFlight packetQueue  // on their way to here
	ready    packetQueue  // arrived
	charged  int          // bytes of the buffer that ready takes
	buffer   int
}

var _ net.PacketConn = (*PacketConn)(nil)

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

// ReadFrom returns the next packet; what does not fit into b is lost.
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

// WriteTo sends a packet to a *net.UDPAddr. It never blocks.
func (c *PacketConn) WriteTo(b []byte, to net.Addr) (int, error) {
	if err := c.writePacket(b, to); err != nil {
		return 0, opError("write", "udp", c.LocalAddr(), to, err)
	}
	return len(b), nil
}

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
	case c.ended: // the machine is dead
		return nil
	case h.pause != nil:
		h.queuePausedPacket(c, b, dst)
		return nil
	}
	return c.sendPacket(now, b, dst)
}

// errRefused is what sendto returns where there is no way.
var errRefused = os.NewSyscallError("sendto", syscall.ECONNREFUSED)

// sendPacket puts a packet on its way; mu is held.
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

// ensurePublicAddr makes sure that the socket has an address that others can answer to;
// mu is held.
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

// isForgottenByNAT reports whether the NAT has given up a socket that was silent; mu is
// held.
func (h *Host) isForgottenByNAT(c *PacketConn, now instant) bool {
	return h.natIdle > 0 && c.source != nil && now > c.used.addDuration(h.natIdle)
}

// findTarget finds the host at an address, and the socket where there is one; mu is
// held.
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

// countStray counts a packet to a port of the host where nobody listens; mu is held.
func (h *Host) countStray() {
	if !h.up {
		h.crash.count.Dropped++
	}
	h.traffic.Strays++
}

// scheduleArrival takes a packet that will arrive; mu is held.
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

// bufferArrivals moves into the buffer what has arrived by now; mu is held.
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

// dropInFlight drops what is under way from other hosts, by a fault; mu is held.
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

// closeSocket makes the socket dead; mu is held.
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

// Close gives the port back.
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

// LocalAddr is a *net.UDPAddr: the host's own address, behind a NAT the private
// one.
func (c *PacketConn) LocalAddr() net.Addr { return c.local }

// SetDeadline sets both deadlines.
func (c *PacketConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline is for ReadFrom, also one that waits already.
func (c *PacketConn) SetReadDeadline(t time.Time) error {
	c.read.setDeadline(t)
	return nil
}

// SetWriteDeadline makes later writes fail after t.
func (c *PacketConn) SetWriteDeadline(t time.Time) error {
	c.host.net.mu.Lock()
	defer c.host.net.mu.Unlock()
	c.writeBy = c.host.net.instantOf(t)
	return nil
}

// SetReadBuffer bounds what may wait to be read, up to 8 MiB.
func (c *PacketConn) SetReadBuffer(bytes int) error {
	c.host.net.mu.Lock()
	defer c.host.net.mu.Unlock()
	c.buffer = min(max(bytes, bufferSize+bufferOverhead), maxBuffer)
	return nil
}

// SetWriteBuffer does nothing: a write never waits.
func (c *PacketConn) SetWriteBuffer(int) error { return nil }
