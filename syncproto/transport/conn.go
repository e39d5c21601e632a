package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"skerry/fleet"
)

// Conn is one connection.
type Conn struct {
	qc         *quic.Conn
	role, name string
	calls      atomic.Uint64 // reads and writes of streams
}

func newConn(qc *quic.Conn) *Conn {
	c := &Conn{qc: qc}
	if certs := qc.ConnectionState().TLS.PeerCertificates; len(certs) > 0 {
		c.role, c.name, _ = strings.Cut(certs[0].Subject.CommonName, ":")
	}
	return c
}

// ALPN is the protocol that was agreed on.
func (c *Conn) ALPN() string { return c.qc.ConnectionState().TLS.NegotiatedProtocol }

// Peer is the role and name in the peer's certificate ("edge", node id; "hub",
// name), or empty strings where it showed none (enrolment).
func (c *Conn) Peer() (role, name string) { return c.role, c.name }

// State is what TLS verified, with the peer's certificates.
func (c *Conn) State() tls.ConnectionState { return c.qc.ConnectionState().TLS }

// LocalAddr is the socket's address.
func (c *Conn) LocalAddr() net.Addr { return c.qc.LocalAddr() }

// RemoteAddr is the address that the peer was last heard from, once it is
// validated: it changes when a NAT rebinds.
func (c *Conn) RemoteAddr() net.Addr { return c.qc.RemoteAddr() }

// Stats of a connection. Bytes and packets are UDP payloads.
type Stats struct {
	BytesSent, BytesReceived     uint64
	PacketsSent, PacketsReceived uint64
	PacketsLost                  uint64
	Calls                        uint64        // reads and writes of the connection's streams
	RTT                          time.Duration // smoothed; 0: not measured yet
}

// Bounds of what a connection sends for what it carries: with every read and
// write a few packets, one for every 600 bytes (they hold twice as many, and some
// are lost), and some for what it says about itself.
const (
	packetsPerCall = 4
	bytesPerPacket = 600
	packetsAside   = 100
)

// Probes reports whether, since earlier, this side sent far more packets than what
// it carried explains. That is what a path does whose round trip became many times
// longer, as on the way from a cable to a satellite: quic-go repeats its probes
// before their answers can be there, gives up those that it repeats, and so never
// measures the new round trip. It goes on, some 60 packets a second, until the
// connection ends. A new one measures afresh.
func (s Stats) Probes(earlier Stats) bool {
	bytes := s.BytesSent + s.BytesReceived - earlier.BytesSent - earlier.BytesReceived
	carried := packetsPerCall*(s.Calls-earlier.Calls) + bytes/bytesPerPacket
	return s.PacketsSent-earlier.PacketsSent > carried+packetsAside
}

// Stats may be called at any time, also after the end.
func (c *Conn) Stats() Stats {
	s := c.qc.ConnectionStats()
	return Stats{
		BytesSent: s.BytesSent, BytesReceived: s.BytesReceived,
		PacketsSent: s.PacketsSent, PacketsReceived: s.PacketsReceived,
		PacketsLost: s.PacketsLost,
		Calls:       c.calls.Load(),
		RTT:         s.SmoothedRTT,
	}
}

// Open opens a stream; the peer sees it with the first byte written. It waits
// while the peer allows no more of them.
func (c *Conn) Open(ctx context.Context) (*Stream, error) {
	s, err := c.qc.OpenStreamSync(ctx)
	if err != nil {
		return nil, fmt.Errorf("open a stream: %w", connectionError(err))
	}
	return &Stream{conn: c, qs: s}, nil
}

// Accept returns the next stream that the peer opened.
func (c *Conn) Accept(ctx context.Context) (*Stream, error) {
	s, err := c.qc.AcceptStream(ctx)
	if err != nil {
		return nil, fmt.Errorf("accept a stream: %w", connectionError(err))
	}
	return &Stream{conn: c, qs: s}, nil
}

// Done is closed when the connection is over.
func (c *Conn) Done() <-chan struct{} { return c.qc.Context().Done() }

// Err says why the connection is over; nil while it is not. Where the peer ended
// it with CloseWith, it is the peer's *fleet.Error.
func (c *Conn) Err() error {
	select {
	case <-c.Done():
		return connectionError(context.Cause(c.qc.Context()))
	default:
		return nil
	}
}

// CloseWith ends the connection and tells the peer why: the peer's Err, and its
// reads and writes, give an equal error (its texts cut to what fits into one
// packet). nil: nothing is wrong. What was written and not yet delivered may be
// lost.
func (c *Conn) CloseWith(err *fleet.Error) error {
	if err == nil {
		return c.qc.CloseWithError(closeNormal, "")
	}
	return c.qc.CloseWithError(closeError, encodeReason(err))
}

// Stream is a bidirectional stream as a net.Conn.
type Stream struct {
	conn *Conn
	qs   *quic.Stream

	// quic-go does not allow Close during a Write; net.Conn does.
	writing sync.Mutex
}

var _ net.Conn = (*Stream)(nil)

// Read gives io.EOF after the peer's CloseWrite or Close, os.ErrDeadlineExceeded
// after a deadline, and a *fleet.Error when the connection is over.
func (s *Stream) Read(b []byte) (int, error) {
	s.conn.calls.Add(1)
	n, err := s.qs.Read(b)
	return n, connectionError(err)
}

// Write blocks while the peer's window is full.
func (s *Stream) Write(b []byte) (int, error) {
	s.conn.calls.Add(1)
	s.writing.Lock()
	defer s.writing.Unlock()
	n, err := s.qs.Write(b)
	return n, connectionError(err)
}

// Tell is Write to a peer that may end before it has heard all: what it does not read any
// more is dropped, so that what it has to say of its end is still read.
func (s *Stream) Tell(b []byte) (int, error) {
	n, err := s.Write(b)
	var deaf *quic.StreamError
	if errors.As(err, &deaf) && deaf.Remote {
		return len(b), nil
	}
	return n, err
}

// CloseWrite says that no more is written; what was written is still delivered.
// A Write in progress is given up.
func (s *Stream) CloseWrite() error {
	if err := s.qs.SetWriteDeadline(time.Unix(1, 0)); err != nil {
		return fmt.Errorf("close a stream: %w", err)
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.qs.Close(); err != nil {
		return fmt.Errorf("close a stream: %w", connectionError(err))
	}
	return nil
}

// Close closes both directions: the peer's writes fail, its reads end after what
// was written here.
func (s *Stream) Close() error {
	s.qs.CancelRead(0)
	return s.CloseWrite()
}

// Abort gives up both directions at once, also what was written and not yet
// delivered.
func (s *Stream) Abort() {
	s.qs.CancelRead(0)
	s.qs.CancelWrite(0)
}

// Writing ends when nothing more can be written: the peer gave up reading, this
// side closed, or the connection is over.
func (s *Stream) Writing() context.Context { return s.qs.Context() }

// Bulk lets the connection's other streams go first.
func (s *Stream) Bulk() { s.qs.SetPriority(leastUrgent, true) }

// leastUrgent is the last of QUIC's eight urgencies (RFC 9218).
const leastUrgent = 7

// LocalAddr is the connection's address on this side.
func (s *Stream) LocalAddr() net.Addr { return s.conn.LocalAddr() }

// RemoteAddr is the peer's address, which may change while the connection lives.
func (s *Stream) RemoteAddr() net.Addr { return s.conn.RemoteAddr() }

// SetDeadline sets the deadline of reads and writes; the zero time removes it.
func (s *Stream) SetDeadline(t time.Time) error { return s.qs.SetDeadline(t) }

// SetReadDeadline sets the deadline of reads; the zero time removes it.
func (s *Stream) SetReadDeadline(t time.Time) error { return s.qs.SetReadDeadline(t) }

// SetWriteDeadline sets the deadline of writes; the zero time removes it.
func (s *Stream) SetWriteDeadline(t time.Time) error { return s.qs.SetWriteDeadline(t) }
