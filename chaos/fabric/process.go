package fabric

import "net/netip"

// outgoing is a packet that a paused host has sent.
type outgoing struct {
	from *PacketConn
	data []byte
	to   netip.AddrPort
}

// Pause stops the host, as its network sees it: what is sent to it waits in its
// sockets' buffers and is not read, what it sends is held back, up to as much as
// a socket's buffer takes; connections are accepted by nobody. Deadlines of its
// own sockets still pass. With Heal everything that waited comes at once.
func (h *Host) Pause() *Fault {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if h.pause != nil {
		return h.pause
	}
	h.deliverArrivals(h.net.currentInstant())
	f := &Fault{net: h.net}
	f.stop = func() { h.endPause(f) }
	h.pause, h.pauseQuota = f, defaultBuffer
	h.net.refreshStreams()
	return f
}

// endPause ends a pause, unless another one has begun; mu is held.
func (h *Host) endPause(f *Fault) {
	if h.pause != f {
		return
	}
	now := h.net.currentInstant()
	h.deliverArrivals(now)
	h.pause = nil
	for _, p := range h.pausedPackets {
		if !p.from.ended {
			_ = p.from.sendPacket(now, p.data, p.to) // who wrote it has gone on long ago
		}
		h.net.releaseBuffer(p.data)
	}
	h.pausedPackets = nil
	for _, c := range h.sortedSockets() {
		c.read.wakeSleeper()
	}
	for _, l := range h.listeners {
		l.accept.wakeSleeper()
	}
	for _, p := range h.net.pairs {
		for _, s := range p.ends {
			if s.host == h {
				s.notifyWaiters()
			}
		}
	}
	h.net.refreshStreams()
}

// queuePausedPacket keeps a packet of a paused host; mu is held.
func (h *Host) queuePausedPacket(c *PacketConn, b []byte, to netip.AddrPort) {
	charge := len(b) + bufferOverhead
	if charge > h.pauseQuota {
		h.pause.count.Dropped++
		return
	}
	h.pauseQuota -= charge
	h.pause.count.Held++
	data := h.net.acquireBuffer(len(b))
	copy(data, b)
	h.pausedPackets = append(h.pausedPackets, outgoing{from: c, data: data, to: to})
}

// Crash ends everything that the host has open at once, as a power cut does:
// reads return net.ErrClosed, writes vanish, peers hear nothing. What is sent to
// it vanishes until it opens its first socket again, on the same ports if it
// likes. Writes on what peers have left of streams stall before that, and are
// reset after it.
func (h *Host) Crash() *Fault {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	f := &Fault{net: h.net}
	if h.pause != nil {
		h.pause.healed = true
		h.pause = nil
	}
	now := h.net.currentInstant()
	for _, c := range h.sortedSockets() {
		c.bufferArrivals(now)
		c.dropInFlight(f)
	}
	f.count.Killed = h.endSocketsAndStreams()
	h.up, h.crash = false, f
	h.net.refreshStreams()
	return f
}
