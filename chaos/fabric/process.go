package fabric

import "net/netip"

// outgoing is a packet that a paused host has sent.
type outgoing struct {
	from *PacketConn
	data []byte
	to   netip.AddrPort
}

// Pause stops the host, as seen from the network. Packets to it wait in its sockets'
// buffers. Packets from it are held back, up to the size of a socket's buffer. It
// accepts no connections. Deadlines of its sockets still pass. Heal lets all waiting
// packets through at once. A second call returns the current pause.
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

// endPause ends the pause f, unless it has ended before; net.mu is held.
func (h *Host) endPause(f *Fault) {
	if h.pause != f {
		return
	}
	now := h.net.currentInstant()
	h.deliverArrivals(now)
	h.pause = nil
	for _, p := range h.pausedPackets {
		if !p.from.ended {
			_ = p.from.sendPacket(now, p.data, p.to) // the write has returned before
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

// queuePausedPacket keeps a copy of a packet that a paused host sent until the host goes on. It drops the packet if too many
// are kept. The caller holds net.mu.
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

// Crash ends all sockets and streams of the host at once, as a power cut does: reads
// return net.ErrClosed, writes have no effect, and peers are not notified. Packets to
// the host are lost until it opens a socket again, for which it may use the same ports.
// Until then, writes of peers on their streams stall; afterwards they are reset.
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
