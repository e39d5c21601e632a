// Package transport carries the protocols of Skerry over QUIC: it is the only
// package that imports quic-go. An Endpoint is one UDP socket (or any
// net.PacketConn) that both dials and listens; a Conn is one connection, told
// apart by its ALPN; a Stream is a net.Conn. Packages edge/link, hub/gateway,
// hub/rpc and hub/consensus are its users.
//
// An Endpoint runs quic-go's goroutines until Close: two for the socket and two
// for each connection. It persists nothing, knows no message of any protocol,
// sends nothing of its own on an idle connection (unless DialConfig.KeepAlive
// asks for it), and follows a peer whose address changes.
package transport

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"skerry/fleet"
)

// Defaults and bounds.
const (
	// DefaultIdleTimeout is the idle timeout of dialed connections. The smaller of both peers' timeouts counts.
	DefaultIdleTimeout = 30 * time.Second
	// MaxIdleTimeout is the idle timeout of accepted connections, so that the dialer's choice counts. Edges that
	// heartbeat once in 15 minutes need most of it.
	MaxIdleTimeout = time.Hour
	// DefaultHandshakeTimeout bounds a Dial whose context does not.
	DefaultHandshakeTimeout = 10 * time.Second
	// DefaultMaxHandshakes is what one core completes in half a second. A smaller bound refuses more dialers, and
	// each refusal wastes half a handshake on both sides.
	DefaultMaxHandshakes = 512

	// Flow-control windows bound the memory of a connection whose owner does not read. They grow to the maxima only
	// while the owner keeps up.
	initialStreamWindow = 32 << 10
	maxStreamWindow     = 1 << 20
	initialConnWindow   = 64 << 10
	maxConnWindow       = 2 << 20
	maxStreams          = 256 // open at a time, by the peer

	// packetSize is what every path that carries QUIC can carry. As UDP over IPv6 it also fits through a tunnel
	// with the smallest MTU.
	packetSize = 1200
	// connIDLength is short because each packet contains the ID; 4 bytes would collide at 10,000 edges.
	connIDLength = 6
)

// Config configures an Endpoint.
type Config struct {
	// Conn is the socket. Endpoint.Close closes it, and so does a New that fails to listen.
	Conn net.PacketConn
	// TLS returns the server configuration for the ALPN names that a client offered. It is called for every
	// handshake, from many goroutines. nil: the Endpoint only dials.
	TLS func(alpn []string) (*tls.Config, error)
	// IdleTimeout ends a connection on which no packet arrives; the smaller one of both peers counts. 0: MaxIdleTimeout
	// for accepted connections, so that the dialer decides, and DefaultIdleTimeout for dialed ones.
	IdleTimeout time.Duration
	// HandshakeTimeout bounds a handshake on both sides. 0: 10 s.
	HandshakeTimeout time.Duration
	// MaxHandshakes bounds the handshakes that began within the last second. More are refused at once (the peer's
	// Dial fails with ErrBusy). 0: DefaultMaxHandshakes. Addresses for which Exempt returns true are not counted; they
	// must prove themselves if many of their handshakes are unfinished. nil: none.
	MaxHandshakes int
	Exempt        func(net.Addr) bool
	// ResetKey lets a restarted process tell the peers of its former connections at once that these are gone. It
	// must be the same after a restart and stay secret. Zero: off; peers then notice by their idle timeout.
	ResetKey [32]byte
	Log      *slog.Logger // nil: discard
}

// Endpoint is one socket over which connections are dialed and accepted.
type Endpoint struct {
	cfg       Config
	transport *quic.Transport
	listener  *quic.Listener // nil where it only dials

	mu     sync.Mutex
	closed bool
	conns  map[*Conn]struct{}
}

// New returns an Endpoint. quic-go's goroutines read from the socket from now on, until Close.
func New(cfg Config) (*Endpoint, error) {
	if cfg.Conn == nil {
		return nil, errors.New("make a transport endpoint: no socket")
	}
	if cfg.HandshakeTimeout == 0 {
		cfg.HandshakeTimeout = DefaultHandshakeTimeout
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	e := &Endpoint{
		cfg:       cfg,
		transport: &quic.Transport{Conn: socket(cfg), ConnectionIDLength: connIDLength},
		conns:     map[*Conn]struct{}{},
	}
	if cfg.ResetKey != ([32]byte{}) {
		key := quic.StatelessResetKey(cfg.ResetKey)
		e.transport.StatelessResetKey = &key
	}
	if cfg.TLS == nil {
		return e, nil
	}
	door := &admission{
		limit: cmp.Or(cfg.MaxHandshakes, DefaultMaxHandshakes), exempt: cfg.Exempt, sources: map[netip.Prefix]*sourceCount{},
	}
	e.transport.ConnContext, e.transport.VerifySourceAddress = door.admitConnection, door.needsAddressProof
	l, err := e.transport.Listen(&tls.Config{GetConfigForClient: e.serverTLS}, e.quicConfig(cmp.Or(cfg.IdleTimeout, MaxIdleTimeout)))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", cfg.Conn.LocalAddr(), err), cfg.Conn.Close())
	}
	e.listener = l
	return e, nil
}

// DialConfig configures one connection. Addr, ALPN and TLS are required.
type DialConfig struct {
	Addr        net.Addr
	ALPN        string
	TLS         *tls.Config
	IdleTimeout time.Duration // 0: the Endpoint's, or DefaultIdleTimeout
	// HandshakeTimeout bounds the wait for the peer's first packet. Then the Endpoint's HandshakeTimeout bounds the rest, if
	// it is longer. 0: the Endpoint's.
	// The first packet is repeated at 0.2 s, 0.6 s, 1.4 s …, so on a path that has just
	// healed a short attempt followed by another one is faster than a long one.
	HandshakeTimeout time.Duration
	// KeepAlive is the time without packets after which one is sent. 0: none is sent.
	KeepAlive time.Duration
	// Heard is called once, as soon as any packet of the peer arrives: the peer is reachable, though its handshake
	// may take a while. It must not block. Only an Endpoint without Config.TLS calls it. nil: not called.
	Heard func()
	// Bulk searches the largest packet size of the path. The extra packets for that pay off between hubs, not on an
	// edge's link.
	Bulk bool
}

// Dial opens a connection and waits until the handshake is done. Errors: *fleet.Error with CodeTimeout,
// CodeForbidden (a certificate was not accepted), CodeVersion (no common protocol) or CodeUnavailable, the error of
// ctx, or that of cfg.TLS's own verification.
func (e *Endpoint) Dial(ctx context.Context, cfg DialConfig) (*Conn, error) {
	if cfg.TLS == nil || cfg.Addr == nil || cfg.ALPN == "" {
		return nil, errors.New("dial: address, ALPN and TLS configuration are required")
	}
	if cfg.IdleTimeout == 0 {
		cfg.IdleTimeout = cmp.Or(e.cfg.IdleTimeout, DefaultIdleTimeout)
	}
	if cfg.HandshakeTimeout == 0 {
		cfg.HandshakeTimeout = e.cfg.HandshakeTimeout
	}
	t := cfg.TLS.Clone()
	t.NextProtos = []string{cfg.ALPN}
	t.MinVersion = tls.VersionTLS13
	q := e.quicConfig(cfg.IdleTimeout)
	q.HandshakeIdleTimeout = max(cfg.HandshakeTimeout, e.cfg.HandshakeTimeout)
	q.KeepAlivePeriod = cfg.KeepAlive
	q.DisablePathMTUDiscovery = !cfg.Bulk

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	bound := time.AfterFunc(cfg.HandshakeTimeout, func() {
		cancel(fleet.Errorf(fleet.CodeTimeout, "no answer within %s", cfg.HandshakeTimeout))
	})
	defer bound.Stop()
	if l, ok := e.transport.Conn.(*lossySocket); ok {
		defer l.awaitPacket(cfg.Addr, func() {
			bound.Reset(max(cfg.HandshakeTimeout, e.cfg.HandshakeTimeout))
			if cfg.Heard != nil {
				cfg.Heard()
			}
		})()
	}
	qc, err := e.transport.Dial(ctx, cfg.Addr, t, q)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", cfg.Addr, connectionError(err))
	}
	return e.trackConn(qc)
}

// Accept waits for the next incoming connection, of any ALPN. It returns net.ErrClosed after Close.
func (e *Endpoint) Accept(ctx context.Context) (*Conn, error) {
	if e.listener == nil {
		return nil, errors.New("accept a connection: this endpoint only dials")
	}
	qc, err := e.listener.Accept(ctx)
	if errors.Is(err, quic.ErrServerClosed) || errors.Is(err, quic.ErrTransportClosed) {
		return nil, net.ErrClosed
	}
	if err != nil {
		return nil, fmt.Errorf("accept a connection: %w", err)
	}
	finishHandshake(qc)
	return e.trackConn(qc)
}

// Addr returns the local address of the socket.
func (e *Endpoint) Addr() net.Addr { return e.cfg.Conn.LocalAddr() }

// Close ends every connection, tells their peers, and closes the socket. Later calls do nothing.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	conns := make([]*Conn, 0, len(e.conns))
	for c := range e.conns {
		conns = append(conns, c)
	}
	e.mu.Unlock()

	var errs []error
	if e.listener != nil {
		errs = append(errs, e.listener.Close())
	}
	for _, c := range conns {
		errs = append(errs, c.CloseWith(nil))
	}
	errs = append(errs, e.transport.Close(), e.cfg.Conn.Close())
	return errors.Join(errs...)
}

// trackConn wraps a connection and remembers it until it ends, so that Close can end it. It fails with
// net.ErrClosed after Close.
func (e *Endpoint) trackConn(qc *quic.Conn) (*Conn, error) {
	c := newConn(qc)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, errors.Join(net.ErrClosed, c.CloseWith(nil))
	}
	e.conns[c] = struct{}{}
	context.AfterFunc(qc.Context(), func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.conns, c)
	})
	return c, nil
}

// serverTLS returns the configuration that Config.TLS gives for the protocols that a client offers, with TLS 1.3
// and without session tickets.
func (e *Endpoint) serverTLS(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	t, err := e.cfg.TLS(hello.SupportedProtos)
	if err != nil {
		return nil, err
	}
	t = t.Clone()
	if len(t.NextProtos) == 0 {
		t.NextProtos = hello.SupportedProtos
	}
	t.MinVersion = tls.VersionTLS13
	// Every connection shows its certificate anew; a ticket would cost more bytes
	// on the way out than it saves, and outlive a revocation.
	t.SessionTicketsDisabled = true
	return t, nil
}

// quicConfig returns the configuration of connections with the idle timeout idle.
func (e *Endpoint) quicConfig(idle time.Duration) *quic.Config {
	return &quic.Config{
		HandshakeIdleTimeout:           e.cfg.HandshakeTimeout,
		MaxIdleTimeout:                 idle,
		InitialStreamReceiveWindow:     initialStreamWindow,
		MaxStreamReceiveWindow:         maxStreamWindow,
		InitialConnectionReceiveWindow: initialConnWindow,
		MaxConnectionReceiveWindow:     maxConnWindow,
		MaxIncomingStreams:             maxStreams,
		MaxIncomingUniStreams:          -1,
		InitialPacketSize:              packetSize,
		DisablePathMTUDiscovery:        true,
	}
}
