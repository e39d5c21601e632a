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

// streamLayer provides raft's streams: those that raft dials, and those that other hubs open on
// connections that Serve handles.
type streamLayer struct {
	addr hubAddr
	dial func(ctx context.Context, addr string) (net.Conn, error)
	// incoming is not buffered, so that no stream waits in it unclosed when the layer is closed.
	incoming chan net.Conn

	// ctx ends when the layer is closed. raft's interface has no context of its own.
	ctx   context.Context
	close context.CancelFunc

	mu             sync.Mutex
	trackedStreams map[*trackedStream]struct{}
}

var _ raft.StreamLayer = (*streamLayer)(nil)

// newStreamLayer returns a layer that dials other hubs with dial. addr is this hub's address.
func newStreamLayer(addr string, dial func(context.Context, string) (net.Conn, error)) *streamLayer {
	ctx, cancel := context.WithCancel(context.Background())
	return &streamLayer{
		addr: hubAddr(addr), dial: dial, incoming: make(chan net.Conn), ctx: ctx, close: cancel,
		trackedStreams: map[*trackedStream]struct{}{},
	}
}

// Dial opens a stream to another hub. The layer closes it if it is closed before.
func (l *streamLayer) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(l.ctx, timeout)
	defer cancel()
	conn, err := l.dial(ctx, string(addr))
	if err != nil {
		return nil, err
	}
	return l.trackStream(conn)
}

// trackStream returns conn as a stream that Close of the layer also closes. If the layer is closed, it
// closes conn and fails.
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

// trackedStream is a stream that the layer can close: raft waits for the answer of a silent hub even when
// it stops.
type trackedStream struct {
	net.Conn
	layer *streamLayer
}

// Close closes the stream and removes it from the layer.
func (h *trackedStream) Close() error {
	h.layer.mu.Lock()
	delete(h.layer.trackedStreams, h)
	h.layer.mu.Unlock()
	return h.Conn.Close()
}

// Accept returns the next stream that another hub opened.
func (l *streamLayer) Accept() (net.Conn, error) {
	select {
	case c := <-l.incoming:
		return c, nil
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (l *streamLayer) Addr() net.Addr { return l.addr }

// Close closes all streams and makes Dial and Accept fail, so that raft waits for nothing any more.
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

// hubAddr is the address at which other hubs reach this one, as a net.Addr.
type hubAddr string

func (a hubAddr) Network() string { return "quic" }
func (a hubAddr) String() string  { return string(a) }

// Serve passes the streams of a connection of ALPN skerry-raft/1 to raft, until the connection or ctx ends
// or the Node stops. Then it closes the connection.
func (n *Node) Serve(ctx context.Context, conn *transport.Conn) {
	ctx, cancel := n.contextUntilStop(ctx)
	defer cancel()
	defer conn.CloseWith(nil) // an error only says that it was closed before
	for {
		stream, err := conn.Accept(ctx)
		if err != nil || !n.layer.offerStream(ctx, stream) {
			return // the other hub closed the connection, or this one stops
		}
	}
}

// ServeStreams passes the streams of a listener to raft, until ctx ends or the Node stops. Then it closes
// the listener. Simulations use it.
func (n *Node) ServeStreams(ctx context.Context, from net.Listener) error {
	ctx, cancel := n.contextUntilStop(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = from.Close() })() // Accept returns
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

// contextUntilStop returns a context that also ends when the Node stops. The caller must cancel it.
func (n *Node) contextUntilStop(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(n.layer.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// offerStream passes raft a stream that another hub opened. It returns false if ctx ends first; then the
// caller still owns the stream.
func (l *streamLayer) offerStream(ctx context.Context, stream net.Conn) bool {
	select {
	case l.incoming <- stream:
		return true
	case <-ctx.Done():
		return false
	}
}
