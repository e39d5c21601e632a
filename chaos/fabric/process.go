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
// own sockets still pass. Heal does what Resume does.
func (h *Host) Pause() *Fault {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if h.pause != nil {
		return h.pause
	}
	h.arrive(h.net.now())
	f := &Fault{net: h.net}
	f.stop = func() { h.resume(f) }
	h.pause, h.room = f, defaultBuffer
	h.net.review()
	return f
}

// Resume lets a paused host go on; everything that waited comes at once.
func (h *Host) Resume() {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if h.pause != nil {
		h.pause.healed = true
		h.resume(h.pause)
	}
}

// resume ends a pause, unless another one has begun; mu is held.
func (h *Host) resume(f *Fault) {
	if h.pause != f {
		return
	}
	now := h.net.now()
	h.arrive(now)
	h.pause = nil
	for _, p := range h.held {
		if !p.from.ended {
			_ = p.from.send(now, p.data, p.to) // who wrote it has gone on long ago
		}
		h.net.release(p.data)
	}
	h.held = nil
	for _, c := range h.sockets() {
		c.read.notify()
	}
	for _, l := range h.listeners {
		l.accept.notify()
	}
	for _, p := range h.net.pairs {
		for _, s := range p.ends {
			if s.host == h {
				s.notify()
			}
		}
	}
	h.net.review()
}

// hold keeps a packet of a paused host; mu is held.
func (h *Host) hold(c *PacketConn, b []byte, to netip.AddrPort) {
	charge := len(b) + bookkeeping
	if charge > h.room {
		h.pause.count.Dropped++
		return
	}
	h.room -= charge
	h.pause.count.Held++
	data := h.net.buffer(len(b))
	copy(data, b)
	h.held = append(h.held, outgoing{from: c, data: data, to: to})
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
	now := h.net.now()
	for _, c := range h.sockets() {
		c.arrive(now)
		c.lose(f)
	}
	f.count.Killed = h.drop()
	h.up, h.crash = false, f
	h.net.review()
	return f
}
