package swarm

import (
	"context"
	"net"

	"skerry/edge"
	"skerry/edge/contract"
	"skerry/fleet"
)

// Simulated makes a runner without an edge, and a function that generates rows.
func Simulated(m edge.Machine, a fleet.Alloc, last contract.LastState, rec contract.Recorder) (contract.Runner, func(ctx context.Context, rows int) error) {
	r := newRunner(&Edge{runners: map[fleet.AllocID]*runner{}, starts: map[fleet.AllocID]int{}}, m, a, last, rec)
	return r, func(ctx context.Context, rows int) error {
		return r.callRunLoop(ctx, func(ctx context.Context) error { return r.generateRows(ctx, rows) })
	}
}

// Gated puts a gate in front of a socket.
func Gated(conn net.PacketConn) (behind net.PacketConn, cut, heal func()) {
	g := &networkGate{}
	return gatedConn{conn, g}, func() { g.closed.Store(true) }, func() { g.closed.Store(false) }
}
