package transport

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"skerry/fleet"
)

// Bounds of connections in the making, besides Config.MaxHandshakes, which bounds the
// fresh ones.
const (
	// freshTimeout is how long a handshake counts as one that costs a processor something. One
	// that is not done by then waits for its peer, and costs memory alone.
	freshTimeout = time.Second
	// maxWaiting bounds those that wait, and maxWaitingOfSource those of one address: mute
	// peers hold some 50 KiB each until their handshake times out. Dialers that gave up are
	// mute, too: QUIC tells nobody of a dial that is given up.
	maxWaiting         = 1024
	maxWaitingOfSource = maxWaiting / 2
	// unprovenLimit is how many handshakes one address may have before each further one has
	// to prove the address.
	unprovenLimit = 16
)

// ErrBusy is wrapped by the error of a Dial that the peer refused at once, for too many
// connections are in the making: it costs nothing to try again soon.
var ErrBusy = fleet.Errorf(fleet.CodeUnavailable, "the peer takes no more connections just now")

// admission bounds how many connections are in the making at a time. Each costs a
// processor about a millisecond. Where a whole fleet comes back at once, and all were
// taken, each would take so long that whoever waits for it gives up and tries again,
// and nobody would ever get through; connections that are there would starve, too.
//
// Half of the bound is for whoever comes first. Beyond it an address that has a quarter
// already waits for others, so that many edges behind one address get half of it at least,
// and one address never gets it all. Handshakes of peers that went mute do not count
// against the bound after a second, so that they delay nobody.
type admission struct {
	limit  int
	exempt func(net.Addr) bool

	mu      sync.Mutex
	fresh   int
	waiting int
	sources map[netip.Prefix]*sourceCount // of addresses that were proven
}

// sourceCount counts the handshakes of one address.
type sourceCount struct{ fresh, waiting int }

// handshake is one connection in the making.
type handshake struct {
	finish       func()
	stopWatching func() bool // the connection's end means nothing any more
}

// handshakeKey finds a connection's handshake in its context.
type handshakeKey struct{}

// errBusy refuses a connection; the peer is told with a packet that costs nothing.
var errBusy = errors.New("too many connections are in the making")

// admitConnection is asked for each connection that comes in.
func (a *admission) admitConnection(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
	if a.exempt != nil && a.exempt(info.RemoteAddr) {
		return ctx, nil
	}
	source := netip.Prefix{} // of those that may be anybody's
	if info.AddrVerified {
		source = sourceOf(info.RemoteAddr)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.hasCapacity(source) {
		return nil, errBusy
	}
	if a.sources[source] == nil {
		a.sources[source] = &sourceCount{}
	}
	of := a.sources[source]
	a.fresh++
	of.fresh++
	isFresh := true // guarded by mu
	settle := func() {
		if isFresh {
			a.fresh--
			of.fresh--
			isFresh = false
		}
	}
	old := time.AfterFunc(freshTimeout, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if isFresh {
			settle()
			a.waiting++
			of.waiting++
		}
	})
	h := &handshake{finish: sync.OnceFunc(func() {
		old.Stop()
		a.mu.Lock()
		defer a.mu.Unlock()
		if !isFresh {
			a.waiting--
			of.waiting--
		}
		settle()
		if of.fresh+of.waiting == 0 {
			delete(a.sources, source)
		}
	})}
	h.stopWatching = context.AfterFunc(ctx, h.finish) // it failed
	return context.WithValue(ctx, handshakeKey{}, h), nil
}

// hasCapacity reports whether one more handshake of a source may begin.
func (a *admission) hasCapacity(source netip.Prefix) bool {
	of := a.sources[source]
	switch {
	case a.fresh >= a.limit, a.waiting >= maxWaiting:
		return false
	case of == nil || !source.IsValid():
		return true
	}
	return of.waiting < maxWaitingOfSource && (a.fresh < a.limit/2 || of.fresh < max(1, a.limit/4))
}

// needsAddressProof asks for a proof of its address from whoever comes while much is in the
// making, so that packets with forged ones cannot fill the bound, nor that of somebody
// else's address. It costs the peer a round trip.
func (a *admission) needsAddressProof(from net.Addr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fresh+a.waiting >= a.limit/2 {
		return true
	}
	of := a.sources[sourceOf(from)]
	return of != nil && of.fresh+of.waiting >= unprovenLimit
}

// sourceOf is what counts as one address: an IPv4 address, or an IPv6 network of the size
// that one customer has. Invalid: the address tells nothing.
func sourceOf(addr net.Addr) netip.Prefix {
	udp, ok := addr.(*net.UDPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := udp.AddrPort().Addr().Unmap()
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	p, err := ip.WithZone("").Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

// finishHandshake is told of each connection that is accepted.
func finishHandshake(qc *quic.Conn) {
	if h, ok := qc.Context().Value(handshakeKey{}).(*handshake); ok {
		h.finish()
		h.stopWatching()
	}
}
