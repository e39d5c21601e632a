package fabric

import (
	"net"
	"net/netip"
)

// Ports that a NAT gives out, one after the other, so that a former one stays
// unused for long.
const (
	firstPublic = 1024
	lastPublic  = 65535
)

// nat translates the addresses of the hosts behind it. It is guarded by Net.mu.
type nat struct {
	ip     netip.Addr
	next   int
	ports  map[uint16]*PacketConn
	former map[uint16]*Fault // ports that a Rebind made it forget
}

// natAt returns the NAT with a public address; mu is held.
func (n *Net) natAt(a netip.Addr) *nat {
	t := n.nats[a]
	if t == nil {
		t = &nat{ip: a, next: firstPublic, ports: map[uint16]*PacketConn{}, former: map[uint16]*Fault{}}
		n.nats[a] = t
	}
	return t
}

// unusedPublicPort returns a public port that nothing uses.
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

// bindSocket gives a socket its public port; mu is held.
func (t *nat) bindSocket(c *PacketConn) {
	p := t.unusedPublicPort()
	t.ports[p] = c
	c.public = netip.AddrPortFrom(t.ip, p)
	c.source = net.UDPAddrFromAddrPort(c.public)
}

// unbindSocket forgets a socket's public port; mu is held.
func (t *nat) unbindSocket(c *PacketConn) {
	if c.source == nil {
		return
	}
	delete(t.ports, c.public.Port())
	c.source = nil
}

// Rebind makes the host's NAT forget it: every open socket gets another public
// port with its next packet, and what is sent, or under way, to the former one
// vanishes. The host must be behind a NAT.
func (h *Host) Rebind() *Fault {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if h.nat == nil {
		panic("fabric: rebind " + h.name + ": it is not behind a NAT")
	}
	return h.moveToNAT(h.nat)
}

// Move gives the host, which must be behind a NAT, another public address. Its packet
// sockets send from there on; what is sent, or under way, to the former address vanishes.
func (h *Host) Move(ip string) *Fault {
	a := mustAddr(ip)
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if h.nat == nil || h.net.hostsByAddr[a] != nil {
		panic("fabric: move " + h.name + " to " + ip + ": it is not behind a NAT, or the address is taken")
	}
	return h.moveToNAT(h.net.natAt(a))
}

// moveToNAT has every socket get another public address of a NAT; mu is held. What was under
// way from other hosts is lost.
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
