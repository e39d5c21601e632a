package consensus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"skerry/syncproto/transport"
)

// streamLayer gives raft its streams: those that it dials, and those that others
// opened on connections which Serve took.
type streamLayer struct {
	addr hubAddr
	dial func(ctx context.Context, addr string) (net.Conn, error)
	// incoming is not buffered: a stream that raft does not take is closed by who
	// offers it.
	incoming chan net.Conn

	// raft's interface has no context; this one ends with the layer.
	ctx   context.Context
	close context.CancelFunc

	mu             sync.Mutex
	trackedStreams map[*trackedStream]struct{}
}

var _ raft.StreamLayer = (*streamLayer)(nil)

func newStreamLayer(addr string, dial func(context.Context, string) (net.Conn, error)) *streamLayer {
	ctx, cancel := context.WithCancel(context.Background())
	return &streamLayer{
		addr: hubAddr(addr), dial: dial, incoming: make(chan net.Conn), ctx: ctx, close: cancel,
		trackedStreams: map[*trackedStream]struct{}{},
	}
}

func (l *streamLayer) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(l.ctx, timeout)
	defer cancel()
	conn, err := l.dial(ctx, string(addr))
	if err != nil {
		return nil, err
	}
	return l.trackStream(conn)
}

// trackStream returns conn as a stream that the layer can close.
func (l *streamLayer) trackStream(conn net.Conn) (net.Conn, error) {
	h := &trackedStream{conn, l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return nil, errors.Join(net.ErrClosed, conn.Close())
	}
	l.trackedStreams[h] = struct{}{}
	return h, nil
}

// trackedStream is a stream that the layer can close: raft does not interrupt what it
// asked a hub that does not answer, not even to stop.
type trackedStream struct {
	net.Conn
	layer *streamLayer
}

func (h *trackedStream) Close() error {
	h.layer.mu.Lock()
	delete(h.layer.trackedStreams, h)
	h.layer.mu.Unlock()
	return h.Conn.Close()
}

func (l *streamLayer) Accept() (net.Conn, error) {
	select {
	case c := <-l.incoming:
		return c, nil
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (l *streamLayer) Addr() net.Addr { return l.addr }

// Close ends what raft waits for.
func (l *streamLayer) Close() error {
	l.mu.Lock()
	l.close()
	open := l.trackedStreams
	l.trackedStreams = map[*trackedStream]struct{}{}
	l.mu.Unlock()
	var errs []error
	for h := range open {
		errs = append(errs, h.Conn.Close())
	}
	return errors.Join(errs...)
}

// hubAddr is the address that others know a hub by.
type hubAddr string

func (a hubAddr) Network() string { return "quic" }
func (a hubAddr) String() string  { return string(a) }

// Serve takes raft's streams from a connection of ALPN skerry-raft/1 until it is
// over, ctx ends or the Node stops, and ends it.
func (n *Node) Serve(ctx context.Context, conn *transport.Conn) {
	ctx, cancel := n.contextUntilStop(ctx)
	defer cancel()
	defer conn.CloseWith(nil) // its error says that it was over already
	for {
		stream, err := conn.Accept(ctx)
		if err != nil || !n.layer.offerStream(ctx, stream) {
			return // the connection is over: the other hub's to end, or this one stops
		}
	}
}

// ServeStreams takes raft's streams from a listener until ctx ends or the Node
// stops, and closes it (simulations).
func (n *Node) ServeStreams(ctx context.Context, from net.Listener) error {
	ctx, cancel := n.contextUntilStop(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = from.Close() })() // what it was is over
	for {
		conn, err := from.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accept streams of other hubs: %w", errors.Join(err, from.Close()))
		}
		stream, err := n.layer.trackStream(conn)
		if err != nil || !n.layer.offerStream(ctx, stream) {
			return nil
		}
	}
}

// contextUntilStop is a context that also ends when the Node stops.
func (n *Node) contextUntilStop(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(n.layer.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// offerStream hands raft a stream that another hub opened; false: ctx ended first.
func (l *streamLayer) offerStream(ctx context.Context, stream net.Conn) bool {
	select {
	case l.incoming <- stream:
		return true
	case <-ctx.Done():
		return false
	}
}
