package transport

import (
	"errors"
	"net"
	"sync"
	"syscall"
)

// serverBuffer is asked of the system for a listening socket, in each direction:
// thousands of edges may speak in the same millisecond.
const serverBuffer = 7 << 20

// socket prepares what quic-go is given. A listening UDP socket is left as it
// is: it answers from the address that was asked, in batches. One that only
// dials becomes a lossy one.
func socket(cfg Config) net.PacketConn {
	if cfg.TLS == nil {
		return &lossySocket{PacketConn: cfg.Conn, awaited: map[string]func(){}}
	}
	udp, ok := cfg.Conn.(*net.UDPConn)
	if !ok {
		return cfg.Conn
	}
	if err := errors.Join(udp.SetReadBuffer(serverBuffer), udp.SetWriteBuffer(serverBuffer)); err != nil {
		cfg.Log.Warn("socket buffers stay small", "addr", udp.LocalAddr().String(), "error", err)
	}
	return cfg.Conn
}

// lossySocket is a socket on which a packet that the system would not send is a packet
// lost: an interface that is down for a moment must not end a connection, as an
// error would. It hides what a UDP socket has beyond net.PacketConn, so packets
// go one by one and may be fragmented on the way.
type lossySocket struct {
	net.PacketConn

	mu      sync.Mutex
	awaited map[string]func() // by the address that is dialed; called for its first packet
}

// awaitPacket has heard called for the first packet of addr, once, unless stop is
// called before.
func (l *lossySocket) awaitPacket(addr net.Addr, heard func()) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := addr.String()
	l.awaited[key] = heard
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.awaited, key)
	}
}

func (l *lossySocket) ReadFrom(b []byte) (int, net.Addr, error) {
	n, from, err := l.PacketConn.ReadFrom(b)
	if err == nil {
		l.tellWhoAwaits(from)
	}
	return n, from, err
}

func (l *lossySocket) tellWhoAwaits(from net.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.awaited) == 0 {
		return
	}
	key := from.String()
	if heard := l.awaited[key]; heard != nil {
		delete(l.awaited, key)
		heard()
	}
}

func (l *lossySocket) WriteTo(b []byte, addr net.Addr) (int, error) {
	n, err := l.PacketConn.WriteTo(b, addr)
	if err == nil || errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.EMSGSIZE) {
		return n, err
	}
	return len(b), nil
}

// SetReadBuffer and SetWriteBuffer keep the system's sizes: an edge's link never
// fills them.
func (*lossySocket) SetReadBuffer(int) error  { return nil }
func (*lossySocket) SetWriteBuffer(int) error { return nil }
