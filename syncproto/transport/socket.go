package transport

import (
	"errors"
	"net"
	"sync"
	"syscall"
)

// serverBuffer is the size of a listening socket's send and receive buffers in the system: thousands of edges may
// send in the same millisecond.
const serverBuffer = 7 << 20

// socket returns the socket to give to quic-go. A listening one is cfg.Conn itself with larger buffers, so that
// quic-go can use the batch calls of UDP. One that only dials becomes a lossySocket.
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

// lossySocket treats a failed send as a lost packet, so that an interface that is down for a moment does not end a
// connection. It hides other methods of a UDP socket, so packets are sent one by one and may be fragmented.
type lossySocket struct {
	net.PacketConn

	mu      sync.Mutex
	awaited map[string]func() // by dialed address; called for the first packet from it
}

// awaitPacket registers heard, which is called once, for the next packet from addr. Calling stop cancels that.
// heard must not block.
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

// ReadFrom reads a packet, and calls the function that awaits the sender's first one.
func (l *lossySocket) ReadFrom(b []byte) (int, net.Addr, error) {
	n, from, err := l.PacketConn.ReadFrom(b)
	if err == nil {
		l.tellWhoAwaits(from)
	}
	return n, from, err
}

// tellWhoAwaits calls the function that awaitPacket registered for the address, and removes it.
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

// WriteTo sends a packet. Failures count as a lost packet and give no error, except a closed socket and a packet
// that is too long.
func (l *lossySocket) WriteTo(b []byte, addr net.Addr) (int, error) {
	n, err := l.PacketConn.WriteTo(b, addr)
	if err == nil || errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.EMSGSIZE) {
		return n, err
	}
	return len(b), nil
}

// SetReadBuffer and SetWriteBuffer do nothing: an edge's link never fills the system's default buffers.
func (*lossySocket) SetReadBuffer(int) error  { return nil }
func (*lossySocket) SetWriteBuffer(int) error { return nil }
