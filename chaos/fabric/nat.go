package fabric

import (
	"net"
	"net/netip"
)

// Range of a NAT's public ports. They are given out in order, so that a dropped port
// stays unused for long.
const (
	firstPublic = 1024
	lastPublic  = 65535
)

// nat translates the addresses of the hosts behind it. It is guarded by Net.mu.
type nat struct {
	ip     netip.Addr
	next   int // next port to try
	ports  map[uint16]*PacketConn
	former map[uint16]*Fault // ports that a Rebind or Move has dropped, with that fault
}

// natAt returns the NAT with a public address, and makes it if there is none; mu is held.
func (n *Net) natAt(a netip.Addr) *nat {
	t := n.nats[a]
	if t == nil {
		t = &nat{ip: a, next: firstPublic, ports: map[uint16]*PacketConn{}, former: map[uint16]*Fault{}}
		n.nats[a] = t
	}
	return t
}

// unusedPublicPort returns the next public port that no socket has.
func (t *nat) unusedPublicPort() uint16 {
	for {
		p := uint16(t.next)
		if t.next++; t.next > lastPublic {
			t.next = firstPublic
		}
		if t.ports[p] == nil {
			delete(t.former, p)
			return p
		}
	}
}

// bindSocket gives a socket a new public port; mu is held.
func (t *nat) bindSocket(c *PacketConn) {
	p := t.unusedPublicPort()
	t.ports[p] = c
	c.public = netip.AddrPortFrom(t.ip, p)
	c.source = net.UDPAddrFromAddrPort(c.public)
}

// unbindSocket drops a socket's public port, if it has one; mu is held.
func (t *nat) unbindSocket(c *PacketConn) {
	if c.source == nil {
		return
	}
	delete(t.ports, c.public.Port())
	c.source = nil
}

// Rebind makes the host's NAT drop its mappings. Every open socket gets another public
// port with its next packet. Packets to the former port, also those in flight, are
// lost. It panics if the host is not behind a NAT.
func (h *Host) Rebind() *Fault {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if h.nat == nil {
		panic("fabric: rebind " + h.name + ": it is not behind a NAT")
	}
	return h.moveToNAT(h.nat)
}

// Move gives the host another public address, from which its packet sockets send from then on.
// Packets to the former address, also those in flight, are lost. It panics if the host is not
// behind a NAT or the address belongs to another host.
func (h *Host) Move(ip string) *Fault {
	a := mustAddr(ip)
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if h.nat == nil || h.net.hostsByAddr[a] != nil {
		panic("fabric: move " + h.name + " to " + ip + ": it is not behind a NAT, or the address is taken")
	}
	return h.moveToNAT(h.net.natAt(a))
}

// moveToNAT moves the host to a NAT, where each socket gets a new public port with its next packet.
// Packets in flight from other hosts are lost. mu is held.
func (h *Host) moveToNAT(to *nat) *Fault {
	f := &Fault{net: h.net}
	former := h.nat
	h.nat = to
	now := h.net.currentInstant()
	for _, c := range h.sortedSockets() {
		c.bufferArrivals(now)
		c.dropInFlight(f)
		if c.source != nil {
			former.former[c.public.Port()] = f
			former.unbindSocket(c)
		}
		c.movedBy = f
	}
	return f
}
