package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"skerry/fleet"
	"skerry/syncproto/transport"
)

// Defaults of a Pool.
const (
	DefaultIdleTimeout = 4 * time.Second
	DefaultKeepAlive   = time.Second
	DefaultDialTimeout = 3 * time.Second
)

// Dialer opens connections: a *transport.Endpoint.
type Dialer interface {
	Dial(ctx context.Context, cfg transport.DialConfig) (*transport.Conn, error)
}

// PoolConfig of a Pool.
type PoolConfig struct {
	Dialer Dialer
	ALPN   string
	TLS    func() *tls.Config
	// Resolve resolves host:port at every dial. The default is UDP name resolution.
	Resolve func(ctx context.Context, addr string) (net.Addr, error)
	// IdleTimeout ends a connection to a hub that went silent, KeepAlive keeps one
	// to a hub that has nothing to say, DialTimeout bounds an attempt to connect.
	// 0: 4 s, 1 s, 3 s.
	IdleTimeout time.Duration
	KeepAlive   time.Duration
	DialTimeout time.Duration
}

// Pool keeps one connection to each address. Package hub/consensus gets its
// streams from one, too. It starts no goroutine.
type Pool struct {
	cfg PoolConfig

	mu     sync.Mutex
	closed bool
	links  map[string]*link
}

// link is a connection, or an attempt at one: conn and err may be read when
// ready is closed.
type link struct {
	ready chan struct{}
	conn  *transport.Conn
	err   error
}

// NewPool checks the configuration.
func NewPool(cfg PoolConfig) (*Pool, error) {
	if cfg.Dialer == nil || cfg.ALPN == "" || cfg.TLS == nil {
		return nil, errors.New("make a pool of connections: dialer, ALPN and TLS are required")
	}
	if cfg.Resolve == nil {
		cfg.Resolve = resolveUDP
	}
	if cfg.IdleTimeout == 0 {
		cfg.IdleTimeout = DefaultIdleTimeout
	}
	if cfg.KeepAlive == 0 {
		cfg.KeepAlive = DefaultKeepAlive
	}
	if cfg.DialTimeout == 0 {
		cfg.DialTimeout = DefaultDialTimeout
	}
	return &Pool{cfg: cfg, links: map[string]*link{}}, nil
}

// Open opens a stream to addr, over the existing connection or a new one. It replaces a connection that has ended,
// once.
func (p *Pool) Open(ctx context.Context, addr string) (*transport.Stream, error) {
	for {
		l, dialed, err := p.openLink(ctx, addr)
		if err != nil {
			return nil, err
		}
		stream, err := l.conn.Open(ctx)
		if err == nil {
			return stream, nil
		}
		if ctx.Err() != nil || dialed {
			return nil, err
		}
		p.removeLink(addr, l)
	}
}

// Close ends the connections; Open fails from then on.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	links := p.links
	p.links = map[string]*link{}
	p.mu.Unlock()
	var errs []error
	for _, l := range links {
		select {
		case <-l.ready:
			if l.conn != nil {
				errs = append(errs, l.conn.CloseWith(nil))
			}
		default: // the goroutine that dials sees that the pool is closed
		}
	}
	return errors.Join(errs...)
}

// openLink returns a live connection to addr; dialed: this call made it. Of several concurrent callers one dials,
// and the others wait for it.
func (p *Pool) openLink(ctx context.Context, addr string) (l *link, dialed bool, err error) {
	for {
		l, mine, err := p.claimLink(addr)
		if err != nil {
			return nil, false, err
		}
		if mine {
			p.dialLink(ctx, addr, l)
			return l, true, l.err
		}
		select {
		case <-l.ready:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
		switch {
		case l.err == nil:
			return l, false, nil
		case !errors.Is(l.err, context.Canceled) && !errors.Is(l.err, context.DeadlineExceeded):
			return nil, false, l.err
		} // the goroutine that dialed gave up, but this one has not
	}
}

// claimLink returns the existing link to addr, or with mine a new one that the caller must dial with dialLink.
func (p *Pool) claimLink(addr string) (l *link, mine bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, false, fmt.Errorf("connect to %s: %w", addr, net.ErrClosed)
	}
	if l, ok := p.links[addr]; ok && !l.hasEnded() {
		return l, false, nil
	}
	l = &link{ready: make(chan struct{})}
	p.links[addr] = l
	return l, true, nil
}

// dialLink connects l to addr, sets l.conn or l.err, and closes l.ready. A failed link is removed from the pool.
func (p *Pool) dialLink(ctx context.Context, addr string, l *link) {
	defer close(l.ready)
	to, err := p.cfg.Resolve(ctx, addr)
	if err == nil {
		l.conn, err = p.cfg.Dialer.Dial(ctx, transport.DialConfig{
			Addr: to, ALPN: p.cfg.ALPN, TLS: p.cfg.TLS(), Bulk: true,
			IdleTimeout: p.cfg.IdleTimeout, KeepAlive: p.cfg.KeepAlive, HandshakeTimeout: p.cfg.DialTimeout,
		})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && p.closed {
		err = errors.Join(net.ErrClosed, l.conn.CloseWith(nil))
	}
	if err != nil {
		l.conn, l.err = nil, fmt.Errorf("connect to %s: %w", addr, err)
		if p.links[addr] == l {
			delete(p.links, addr)
		}
	}
}

// removeLink removes l from the pool, unless another link to addr has replaced it. It does not close the
// connection.
func (p *Pool) removeLink(addr string, l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.links[addr] == l {
		delete(p.links, addr)
	}
}

// hasEnded reports whether a connection was made and has ended.
func (l *link) hasEnded() bool {
	select {
	case <-l.ready:
	default:
		return false
	}
	if l.conn == nil {
		return true
	}
	select {
	case <-l.conn.Done():
		return true
	default:
		return false
	}
}

func resolveUDP(ctx context.Context, addr string) (net.Addr, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "resolve %q: %w", addr, err)
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, fmt.Errorf("resolve %s: %w", host, err)
	}
	n, err := net.DefaultResolver.LookupPort(ctx, "udp", port)
	if err != nil {
		return nil, fmt.Errorf("resolve port %s: %w", port, err)
	}
	return &net.UDPAddr{IP: ips[0].Unmap().AsSlice(), Port: n, Zone: ips[0].Zone()}, nil
}
