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
	ip      netip.Addr
	next    int
	ports   map[uint16]*PacketConn
	streams map[uint16]*Stream
	former  map[uint16]*Fault // ports that a Rebind made it forget
}

// natAt returns the NAT with a public address; mu is held.
func (n *Net) natAt(a netip.Addr) *nat {
	t := n.nats[a]
	if t == nil {
		t = &nat{ip: a, next: firstPublic, ports: map[uint16]*PacketConn{}, streams: map[uint16]*Stream{}, former: map[uint16]*Fault{}}
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
		if t.ports[p] == nil && t.streams[p] == nil {
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
// vanishes. Streams are reset when they write again. The host must be behind a
// NAT.
func (h *Host) Rebind() *Fault {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	f := &Fault{net: h.net}
	if h.nat == nil {
		panic("fabric: rebind " + h.name + ": it is not behind a NAT")
	}
	h.changeAddresses(f, func(c *PacketConn) {
		if c.source != nil {
			h.nat.former[c.public.Port()] = f
			h.nat.unbindSocket(c)
		}
	})
	return f
}

// Move gives the host another address: its own, or behind a NAT the public one.
// Its packet sockets send from there on; what is sent, or under way, to the former
// address vanishes. Streams are stalled for good, unless it moves back.
func (h *Host) Move(ip string) *Fault {
	a := mustAddr(ip)
	n := h.net
	n.mu.Lock()
	defer n.mu.Unlock()
	f := &Fault{net: n}
	if n.hostsByAddr[a] != nil || (h.nat == nil && n.nats[a] != nil) {
		panic("fabric: move " + h.name + " to " + ip + ": the address is taken")
	}
	if h.nat != nil {
		former := h.nat
		h.nat = n.natAt(a)
		h.changeAddresses(f, func(c *PacketConn) {
			if c.source != nil {
				former.former[c.public.Port()] = f
				former.unbindSocket(c)
			}
		})
		return f
	}
	delete(n.hostsByAddr, h.ip)
	n.former[h.ip] = f
	delete(n.former, a)
	n.hostsByAddr[a] = h
	h.ip = a
	h.changeAddresses(f, (*PacketConn).setHostAddress)
	return f
}

// changeAddresses changes the address of every socket; mu is held. What was under way
// from other hosts is lost.
func (h *Host) changeAddresses(f *Fault, change func(*PacketConn)) {
	now := h.net.currentInstant()
	for _, c := range h.sortedSockets() {
		c.bufferArrivals(now)
		c.dropInFlight(f)
		change(c)
		c.movedBy = f
	}
	for _, p := range h.net.pairs {
		for _, s := range p.ends {
			if s.host == h && f != nil {
				s.handleMovedHost(h)
			}
		}
	}
	h.net.refreshStreams()
}
