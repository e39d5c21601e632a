package link

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"skerry/fleet"
	"skerry/internal/pace"
	"skerry/syncproto"
	"skerry/syncproto/transport"
)

// hubConnection is a connection to a hub, with its own socket.
type hubConnection struct {
	hub      string
	conn     *transport.Conn
	endpoint *transport.Endpoint
}

// closeWithReason closes the connection and its socket. The hub gets err; nil: no reason.
func (f *hubConnection) closeWithReason(err *fleet.Error) error {
	return errors.Join(f.conn.CloseWith(err), f.endpoint.Close())
}

// search is a goroutine that dials hubs, round after round, until it has found a connection or is stopped.
type search struct {
	cancel context.CancelFunc
	found  chan *hubConnection // at most one
	failed chan struct{}       // closed after the first failed round
	ended  sync.WaitGroup
}

// startSearch starts a search that first waits for the time wait. No other search may be running.
func (l *Link) startSearch(ctx context.Context, wait time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	s := &search{cancel: cancel, found: make(chan *hubConnection, 1), failed: make(chan struct{})}
	hubs, last, refusing := knownHubs(l.mem.Hubs, l.cfg.Hubs), l.lastHub, l.refusingHub
	s.ended.Go(func() {
		for first := true; ; first = false {
			if err := l.waitBeforeDial(ctx, wait); err != nil {
				return
			}
			began := time.Now()
			f, err := l.dialRound(ctx, dialOrder(hubs, last, refusing, rand.Shuffle)[:hubsPerRound(len(hubs), l.round)])
			if err == nil {
				s.found <- f
				return
			}
			if ctx.Err() != nil {
				return
			}
			l.tracker.updateStatus(func(s *Status) { s.LastError = err.Error() })
			l.log.Debug("no hub reached", "round", l.round, "error", err)
			if first {
				close(s.failed)
			}
			if refusing != "" { // no other hub answers: it is dialed first again
				last, refusing = refusing, ""
			}
			if errors.Is(err, transport.ErrBusy) || l.backoff.isHubOverloaded() {
				wait = l.backoff.delayAfterBusy()
				continue
			}
			l.round++
			wait = l.backoff.delayAfterRound(time.Since(began))
		}
	})
	l.search = s
}

// stopSearch stops the search, if there is one, waits for its goroutine, and closes a connection that it found.
func (l *Link) stopSearch() {
	s := l.search
	if s == nil {
		return
	}
	l.search = nil
	s.cancel()
	s.ended.Wait()
	select {
	case f := <-s.found:
		l.closeUnusedConn(f)
	default:
	}
}

// closeUnusedConn closes a connection that had no session, and counts its traffic.
func (l *Link) closeUnusedConn(f *hubConnection) {
	l.tracker.addClosedTraffic(connTraffic(f.conn))
	if err := f.closeWithReason(nil); err != nil {
		l.log.Debug("connection not closed", "error", err)
	}
}

// waitForConnection waits for the connection of a search, and starts a search if there is none. If the first
// round fails and the edge had a session before, it records the loss of the link, unless that is recorded. It
// fails only when ctx ends.
func (l *Link) waitForConnection(ctx context.Context) (*hubConnection, error) {
	if l.search == nil {
		l.startSearch(ctx, l.wait)
	}
	s := l.search
	failed := s.failed
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-failed:
			failed = nil
			if l.mem.Session > 0 {
				l.recordLinkLoss(ctx, "no hub was reached")
			}
		case f := <-s.found:
			s.ended.Wait()
			s.cancel()
			l.search = nil
			return f, nil
		}
	}
}

// waitBeforeDial waits for d and shows the wait in the status. It returns early, with an error, when ctx ends.
func (l *Link) waitBeforeDial(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	l.tracker.setRetryTime(time.Now().Add(d))
	defer l.tracker.setRetryTime(time.Time{})
	pace.Rest(ctx, d)
	return ctx.Err()
}

// idleTimeout is the time after which QUIC gives up a silent connection. Sessions notice much sooner: a
// heartbeat is not answered.
const idleTimeout = transport.MaxIdleTimeout

// dialRound dials hubs from one new socket, each a head start after the one before, and returns the first
// connection, which keeps the socket. If no hub is reached, the error names each with the reason.
func (l *Link) dialRound(ctx context.Context, hubs []string) (*hubConnection, error) {
	if len(hubs) == 0 {
		return nil, errors.New("dial the hubs: no hub is known")
	}
	tls, err := l.cfg.TLS()
	if err != nil {
		return nil, fmt.Errorf("dial the hubs: %w", err)
	}
	socket, err := l.cfg.Socket(ctx)
	if err != nil {
		return nil, fmt.Errorf("dial the hubs: open a socket: %w", err)
	}
	endpoint, err := transport.New(transport.Config{Conn: socket, Log: l.log})
	if err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	cfg := transport.DialConfig{ALPN: syncproto.ALPNEdge, TLS: tls, IdleTimeout: idleTimeout, HandshakeTimeout: handshakeTimeout(l.round)}
	hub, conn, err := l.dialHubsStaggered(ctx, endpoint, cfg, hubs)
	if err != nil {
		return nil, errors.Join(err, endpoint.Close())
	}
	return &hubConnection{hub: hub, conn: conn, endpoint: endpoint}, nil
}

// dialResult is the result of dialing one hub.
type dialResult struct {
	hub  string
	conn *transport.Conn
	err  error
}

// dialFailures is the error of a round that reached no hub. It says for each hub why, in one line.
type dialFailures []dialResult

// Error returns the reason for each hub, with the hub's address.
func (u dialFailures) Error() string {
	var whys []string
	for _, a := range u {
		why := a.err.Error()
		if !strings.Contains(why, a.hub) {
			why = a.hub + ": " + why
		}
		whys = append(whys, why)
	}
	return strings.Join(whys, "; ")
}

// Unwrap returns the error of each hub.
func (u dialFailures) Unwrap() []error {
	var all []error
	for _, a := range u {
		all = append(all, a.err)
	}
	return all
}

// dialEvent is an event of the dial of one hub: its first packet came, or it has its result.
type dialEvent struct {
	heard bool // the rest is not set
	dialResult
}

// dialHubsStaggered dials hubs, each with a head start over the next one, and returns the address and the
// connection of the first that answers. It closes later connections. If all fail, the error is dialFailures.
func (l *Link) dialHubsStaggered(ctx context.Context, e *transport.Endpoint, cfg transport.DialConfig, hubs []string) (string, *transport.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	events := make(chan dialEvent, 2*len(hubs)) // one channel, so that a hub is heard before its dial fails
	cfg.Heard = func() { events <- dialEvent{heard: true} }
	var dials sync.WaitGroup
	defer func() {
		cancel()
		dials.Wait()
		close(events)
		l.closeConnections(events)
	}()
	next := time.NewTimer(0)
	defer next.Stop()
	var failed dialFailures
	for started := 0; ; {
		select {
		case <-ctx.Done():
			return "", nil, ctx.Err()
		case <-next.C:
			if started == len(hubs) || len(events) > 0 {
				continue // on a busy machine the event of a dial may wait while the timer ends: it sets the timer again
			}
			hub := hubs[started]
			started++
			dials.Go(func() {
				conn, err := l.dialHub(ctx, e, cfg, hub)
				events <- dialEvent{dialResult: dialResult{hub, conn, err}}
			})
			next.Reset(l.cfg.AnswerTime.headStart())
		case d := <-events:
			switch {
			case d.heard:
				next.Reset(busyHeadStart)
				continue
			case d.err == nil:
				return d.hub, d.conn, nil
			}
			if failed = append(failed, d.dialResult); len(failed) == len(hubs) {
				return "", nil, failed
			}
			next.Reset(0) // dial the next hub at once
		}
	}
}

// closeConnections closes the connections of the remaining events: another dial was done before.
func (l *Link) closeConnections(events <-chan dialEvent) {
	for d := range events {
		if d.conn != nil {
			l.tracker.addClosedTraffic(connTraffic(d.conn))
			_ = d.conn.CloseWith(nil) // the socket is closed, or the winner uses it
		}
	}
}

// dialHub resolves a hub's HOST:PORT and dials one of its addresses, another one each round.
func (l *Link) dialHub(ctx context.Context, e *transport.Endpoint, cfg transport.DialConfig, hub string) (*transport.Conn, error) {
	l.tracker.noteDialAttempt(hub)
	resolving, cancel := context.WithTimeout(ctx, cfg.HandshakeTimeout)
	defer cancel()
	addrs, err := l.cfg.Resolve(resolving, hub)
	if err != nil {
		return nil, fmt.Errorf("resolve: %w", err)
	}
	if len(addrs) == 0 {
		return nil, errors.New("resolve: no address")
	}
	cfg.Addr = addrs[l.round%len(addrs)]
	return TimedDialer{e, l.cfg.AnswerTime}.Dial(ctx, cfg)
}

// udpSocket opens a UDP socket on any port.
func udpSocket(context.Context) (net.PacketConn, error) { return net.ListenUDP("udp", nil) }

// systemResolve resolves HOST:PORT with the system's resolver.
func systemResolve(ctx context.Context, hub string) ([]net.Addr, error) {
	host, port, err := net.SplitHostPort(hub)
	if err != nil {
		return nil, err
	}
	n, err := net.DefaultResolver.LookupPort(ctx, "udp", port)
	if err != nil {
		return nil, err
	}
	ips, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil {
		return nil, err
	}
	addrs := make([]net.Addr, 0, len(ips))
	for _, ip := range ips {
		addrs = append(addrs, &net.UDPAddr{IP: ip.IP, Port: n, Zone: ip.Zone})
	}
	return addrs, nil
}
