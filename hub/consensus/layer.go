package consensus

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"skerry/syncproto/transport"
)

// layer gives raft its streams: those that it dials, and those that others
// opened on connections which Serve took.
type layer struct {
	addr hubAddr
	dial func(ctx context.Context, addr string) (net.Conn, error)
	// incoming is not buffered: a stream that raft does not take is closed by who
	// offers it.
	incoming chan net.Conn

	// raft's interface has no context; this one ends with the layer.
	ctx   context.Context
	close context.CancelFunc

	mu     sync.Mutex
	dialed map[*dialed]struct{}
}

var _ raft.StreamLayer = (*layer)(nil)

func newLayer(addr string, dial func(context.Context, string) (net.Conn, error)) *layer {
	ctx, cancel := context.WithCancel(context.Background())
	return &layer{
		addr: hubAddr(addr), dial: dial, incoming: make(chan net.Conn), ctx: ctx, close: cancel,
		dialed: map[*dialed]struct{}{},
	}
}

func (l *layer) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(l.ctx, timeout)
	defer cancel()
	conn, err := l.dial(ctx, string(addr))
	if err != nil {
		return nil, err
	}
	d := &dialed{conn, l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return nil, errors.Join(net.ErrClosed, conn.Close())
	}
	l.dialed[d] = struct{}{}
	return d, nil
}

// dialed is a stream that the layer can close: raft does not interrupt what it
// asked a hub that does not answer, not even to stop.
type dialed struct {
	net.Conn
	layer *layer
}

func (d *dialed) Close() error {
	d.layer.mu.Lock()
	delete(d.layer.dialed, d)
	d.layer.mu.Unlock()
	return d.Conn.Close()
}

func (l *layer) Accept() (net.Conn, error) {
	select {
	case c := <-l.incoming:
		return c, nil
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (l *layer) Addr() net.Addr { return l.addr }

// Close ends what raft waits for.
func (l *layer) Close() error {
	l.mu.Lock()
	l.close()
	open := l.dialed
	l.dialed = map[*dialed]struct{}{}
	l.mu.Unlock()
	var errs []error
	for d := range open {
		errs = append(errs, d.Conn.Close())
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(n.layer.ctx, cancel)
	defer stop()
	defer conn.CloseWith(nil) // its error says that it was over already
	for {
		stream, err := conn.Accept(ctx)
		if err != nil {
			return // the connection is over: the other hub's to end, or this one stops
		}
		select {
		case n.layer.incoming <- stream:
		case <-ctx.Done():
			return
		}
	}
}
