package transport

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/quic-go/quic-go"
)

// admission bounds how many connections are in the making at a time. Each costs a
// processor about a millisecond. Where a whole fleet comes back at once, and all were
// taken, each would take so long that whoever waits for it gives up and tries again,
// and nobody would ever get through; connections that are there would starve, too.
type admission struct {
	limit  int
	exempt func(net.Addr) bool

	mu     sync.Mutex
	making int
}

// handshake is one connection in the making.
type handshake struct {
	over     func()
	unheeded func() bool // the connection's end means nothing any more
}

// handshakeKey finds a connection's handshake in its context.
type handshakeKey struct{}

// errBusy refuses a connection; the peer is told with a packet that costs nothing.
var errBusy = errors.New("too many connections are in the making")

// admit is asked for each connection that comes in.
func (a *admission) admit(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
	if a.exempt != nil && a.exempt(info.RemoteAddr) {
		return ctx, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.making >= a.limit {
		return nil, errBusy
	}
	a.making++
	h := &handshake{over: sync.OnceFunc(func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.making--
	})}
	h.unheeded = context.AfterFunc(ctx, h.over) // it failed
	return context.WithValue(ctx, handshakeKey{}, h), nil
}

// suspicious asks for a proof of its address from whoever comes while much is in the
// making, so that packets with forged ones cannot fill the bound. It costs the peer a
// round trip.
func (a *admission) suspicious(net.Addr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.making >= a.limit/2
}

// made is told of each connection that is accepted.
func made(qc *quic.Conn) {
	if h, ok := qc.Context().Value(handshakeKey{}).(*handshake); ok {
		h.over()
		h.unheeded()
	}
}
