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

// Bounds of unfinished handshakes, besides Config.MaxHandshakes, which bounds the fresh ones.
const (
	// freshTimeout is how long a handshake counts as fresh, that is, as one that uses CPU time. After that it
	// counts as waiting for its peer, and uses only memory.
	freshTimeout = time.Second
	// maxUnfinished bounds the fresh and the waiting handshakes together. Each holds some 50 KiB until it times out. A
	// peer that gave up its dial looks like a waiting one, because QUIC sends nothing then.
	maxUnfinished = 1024
	// unprovenLimit is how many unfinished handshakes one address may have before each further one must prove its
	// address. The exempt addresses together may have as many that did not prove theirs.
	unprovenLimit = 16
)

// ErrBusy is wrapped by the error of a Dial that the peer refused at once because it has too many unfinished
// handshakes. The caller may try again soon.
var ErrBusy = fleet.Errorf(fleet.CodeUnavailable, "the peer takes no more connections just now")

// admission bounds the number of unfinished handshakes. Each takes about a millisecond of CPU time. If a whole fleet
// reconnects at once and every handshake is accepted, each one takes so long that its dialer gives up and tries again:
// no handshake ever ends, and existing connections starve.
//
// The first half of the bound is for any address. In the second half, an address that has a quarter of the bound already
// is refused. So many edges behind one address get at least half of the bound, and one address never gets all of it.
// After a second a handshake no longer counts against the bound, so silent peers delay no other.
//
// One address may have at most as many unfinished handshakes as there are free places among maxUnfinished. So a silent
// address leaves at least half of the places that the others left, and many edges behind one address get up to half of all.
//
// A handshake of an exempt address is counted as long as the address is not proven, because packets can be forged.
type admission struct {
	limit  int
	exempt func(net.Addr) bool

	mu             sync.Mutex
	fresh          int
	waiting        int
	unprovenExempt int                           // of exempt addresses that are not proven; in no other count
	sources        map[netip.Prefix]*sourceCount // by proven address; the zero prefix counts all others
}

// sourceCount counts the fresh and the waiting handshakes of one address.
type sourceCount struct{ fresh, waiting int }

func (c *sourceCount) unfinishedCount() int { return c.fresh + c.waiting }

// handshake is an unfinished handshake that admission counts.
type handshake struct {
	// finish removes the handshake from the counts. Later calls do nothing.
	finish       func()
	stopWatching func() bool // makes the connection's end no longer call finish
}

// handshakeKey is the key of a connection's handshake in its context.
type handshakeKey struct{}

// errBusy refuses a connection. quic-go then sends the peer one packet that says so.
var errBusy = errors.New("too many connections are in the making")

// admitConnection counts a handshake that begins, or refuses it with errBusy. quic-go calls it for each incoming
// connection. The count ends with finishHandshake, or when the handshake fails. Exempt addresses that are proven are not
// counted.
func (a *admission) admitConnection(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
	if a.isExempt(info.RemoteAddr) {
		if info.AddrVerified {
			return ctx, nil
		}
		return a.admitUnprovenExempt(ctx)
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
	return watchHandshake(ctx, func() {
		old.Stop()
		a.mu.Lock()
		defer a.mu.Unlock()
		if !isFresh {
			a.waiting--
			of.waiting--
		}
		settle()
		if of.unfinishedCount() == 0 {
			delete(a.sources, source)
		}
	}), nil
}

// admitUnprovenExempt counts a handshake of an exempt address that is not proven. quic-go has just called
// needsAddressProof, so there are fewer than unprovenLimit.
func (a *admission) admitUnprovenExempt(ctx context.Context) (context.Context, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.unprovenExempt >= unprovenLimit {
		return nil, errBusy
	}
	a.unprovenExempt++
	return watchHandshake(ctx, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.unprovenExempt--
	}), nil
}

// watchHandshake returns a connection's context with its handshake. It calls finish once, when the handshake ends.
func watchHandshake(ctx context.Context, finish func()) context.Context {
	h := &handshake{finish: sync.OnceFunc(finish)}
	h.stopWatching = context.AfterFunc(ctx, h.finish) // it failed
	return context.WithValue(ctx, handshakeKey{}, h)
}

func (a *admission) isExempt(addr net.Addr) bool { return a.exempt != nil && a.exempt(addr) }

// hasCapacity reports whether one more handshake of a source may begin. mu is held.
func (a *admission) hasCapacity(source netip.Prefix) bool {
	of, free := a.sources[source], maxUnfinished-a.fresh-a.waiting
	switch {
	case a.fresh >= a.limit, free <= 0:
		return false
	case of == nil || !source.IsValid():
		return true
	}
	return of.unfinishedCount() < free && (a.fresh < a.limit/2 || of.fresh < max(1, a.limit/4))
}

// needsAddressProof reports whether a new peer must first prove its address, which costs it a round trip. That is
// so under load, so that packets with forged addresses cannot use up the bound, or another address's share.
func (a *admission) needsAddressProof(from net.Addr) bool {
	exempt := a.isExempt(from)
	a.mu.Lock()
	defer a.mu.Unlock()
	if exempt {
		return a.unprovenExempt >= unprovenLimit
	}
	if a.fresh+a.waiting >= a.limit/2 {
		return true
	}
	of := a.sources[sourceOf(from)]
	return of != nil && of.unfinishedCount() >= unprovenLimit
}

// sourceOf returns what counts as one address: an IPv4 address, or an IPv6 /64 network, which one customer has. The
// zero Prefix: addr is not a UDP address.
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

// finishHandshake ends the count of an accepted connection's handshake.
func finishHandshake(qc *quic.Conn) {
	if h, ok := qc.Context().Value(handshakeKey{}).(*handshake); ok {
		h.finish()
		h.stopWatching()
	}
}
