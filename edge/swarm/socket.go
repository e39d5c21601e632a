package swarm

import (
	"net"
	"sync/atomic"
)

// gate is in front of all sockets of an edge. Through one that is shut nothing
// passes, and nobody is told.
type gate struct{ shut atomic.Bool }

// gated is a socket behind a gate.
type gated struct {
	net.PacketConn
	gate *gate
}

func (g gated) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		n, from, err := g.PacketConn.ReadFrom(b)
		if err != nil || !g.gate.shut.Load() {
			return n, from, err
		}
	}
}

func (g gated) WriteTo(b []byte, to net.Addr) (int, error) {
	if g.gate.shut.Load() {
		return len(b), nil
	}
	return g.PacketConn.WriteTo(b, to)
}
