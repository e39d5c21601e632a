package swarm

import (
	"net"
	"sync/atomic"
)

// networkGate is what all sockets of an edge send and receive through. While it is closed, it drops packets
// silently.
type networkGate struct{ closed atomic.Bool }

// gatedConn is a socket behind a networkGate.
type gatedConn struct {
	net.PacketConn
	gate *networkGate
}

// ReadFrom returns the next packet that arrives while the gate is open.
func (g gatedConn) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		n, from, err := g.PacketConn.ReadFrom(b)
		if err != nil || !g.gate.closed.Load() {
			return n, from, err
		}
	}
}

// WriteTo sends a packet. While the gate is closed it sends nothing, and reports success.
func (g gatedConn) WriteTo(b []byte, to net.Addr) (int, error) {
	if g.gate.closed.Load() {
		return len(b), nil
	}
	return g.PacketConn.WriteTo(b, to)
}
