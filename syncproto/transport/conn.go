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

// Conn is one QUIC connection, dialed or accepted. Its methods may be called from any goroutine.
type Conn struct {
	qc         *quic.Conn
	role, name string
	calls      atomic.Uint64 // reads and writes of streams
}

// newConn wraps a connection whose handshake is done. Role and name come from the peer's certificate, if it showed
// one.
func newConn(qc *quic.Conn) *Conn {
	c := &Conn{qc: qc}
	if certs := qc.ConnectionState().TLS.PeerCertificates; len(certs) > 0 {
		c.role, c.name, _ = strings.Cut(certs[0].Subject.CommonName, ":")
	}
	return c
}

// ALPN returns the protocol that both sides agreed on.
func (c *Conn) ALPN() string { return c.qc.ConnectionState().TLS.NegotiatedProtocol }

// Peer returns the role and the name in the peer's certificate: "edge" and a node id, or "hub" and the hub's name.
// Both are "" if the peer showed none, as in an enrolment.
func (c *Conn) Peer() (role, name string) { return c.role, c.name }

// State returns the state of TLS, with the peer's certificates.
func (c *Conn) State() tls.ConnectionState { return c.qc.ConnectionState().TLS }

// LocalAddr returns the local address of the socket.
func (c *Conn) LocalAddr() net.Addr { return c.qc.LocalAddr() }

// RemoteAddr returns the peer's address. It changes when a NAT gives the peer another one and QUIC has validated
// it.
func (c *Conn) RemoteAddr() net.Addr { return c.qc.RemoteAddr() }

// Stats counts what a connection has sent and received since it began. Bytes and packets are UDP payloads.
type Stats struct {
	BytesSent, BytesReceived     uint64
	PacketsSent, PacketsReceived uint64
	PacketsLost                  uint64
	Calls                        uint64        // reads and writes of the connection's streams
	RTT                          time.Duration // smoothed; 100 ms until it is measured
}

// Bounds of the packets that a connection normally sends: a few for every read and write of a stream, one for every 600
// bytes (a packet holds twice as many, and some are lost), and some for QUIC itself.
const (
	packetsPerCall = 4
	bytesPerPacket = 600
	packetsAside   = 100
)

// Probes reports whether quic-go has sent far more packets since earlier than reads, writes and bytes explain: it
// repeats probes for ever. The caller should dial anew.
//
// This happens when the round trip becomes many times longer, as on the way from a cable to a satellite. quic-go
// repeats its probes before their answers can arrive, drops what it repeats, and so never measures the new round
// trip. It sends some 60 packets a second until the connection ends. A new connection measures afresh.
func (s Stats) Probes(earlier Stats) bool {
	bytes := s.BytesSent + s.BytesReceived - earlier.BytesSent - earlier.BytesReceived
	carried := packetsPerCall*(s.Calls-earlier.Calls) + bytes/bytesPerPacket
	return s.PacketsSent-earlier.PacketsSent > carried+packetsAside
}

// Stats returns the counts. It may be called at any time, also after the connection's end.
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

// Open opens a stream. It blocks while the peer allows no more streams. The peer's Accept returns it once the first
// byte was written.
func (c *Conn) Open(ctx context.Context) (*Stream, error) {
	s, err := c.qc.OpenStreamSync(ctx)
	if err != nil {
		return nil, fmt.Errorf("open a stream: %w", connectionError(err))
	}
	return &Stream{conn: c, qs: s}, nil
}

// Accept waits for the next stream that the peer opens.
func (c *Conn) Accept(ctx context.Context) (*Stream, error) {
	s, err := c.qc.AcceptStream(ctx)
	if err != nil {
		return nil, fmt.Errorf("accept a stream: %w", connectionError(err))
	}
	return &Stream{conn: c, qs: s}, nil
}

// Done returns a channel that is closed when the connection is over.
func (c *Conn) Done() <-chan struct{} { return c.qc.Context().Done() }

// Err returns why the connection is over; nil: it is not. If the peer called CloseWith(err), it is an equal
// *fleet.Error.
func (c *Conn) Err() error {
	select {
	case <-c.Done():
		return connectionError(context.Cause(c.qc.Context()))
	default:
		return nil
	}
}

// CloseWith ends the connection and tells the peer why; nil: a normal end. The peer's Err, reads and writes return
// an equal error, with texts cut to fit one packet. Data that was not delivered yet may be lost.
func (c *Conn) CloseWith(err *fleet.Error) error {
	if err == nil {
		return c.qc.CloseWithError(closeNormal, "")
	}
	return c.qc.CloseWithError(closeError, encodeReason(err))
}

// Stream is a bidirectional stream. It implements net.Conn.
type Stream struct {
	conn *Conn
	qs   *quic.Stream

	// quic-go does not allow Close during a Write; net.Conn does.
	writing sync.Mutex
}

var _ net.Conn = (*Stream)(nil)

// Read reads from the stream. Errors: io.EOF after the peer's CloseWrite or Close, os.ErrDeadlineExceeded after a
// deadline, a *fleet.Error if the connection is over.
func (s *Stream) Read(b []byte) (int, error) {
	s.conn.calls.Add(1)
	n, err := s.qs.Read(b)
	return n, connectionError(err)
}

// Write writes to the stream. It blocks while the peer's flow-control window is full.
func (s *Stream) Write(b []byte) (int, error) {
	s.conn.calls.Add(1)
	s.writing.Lock()
	defer s.writing.Unlock()
	n, err := s.qs.Write(b)
	return n, connectionError(err)
}

// Tell writes like Write, but succeeds if the peer has stopped reading: the bytes are dropped. The caller can then
// still read the peer's last answer.
func (s *Stream) Tell(b []byte) (int, error) {
	n, err := s.Write(b)
	var deaf *quic.StreamError
	if errors.As(err, &deaf) && deaf.Remote {
		return len(b), nil
	}
	return n, err
}

// CloseWrite closes the sending side: written data is still delivered, and the peer then reads io.EOF. A Write in
// progress fails.
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

// Close closes both directions. The peer's writes fail. Its reads return what was written here, then io.EOF.
func (s *Stream) Close() error {
	s.qs.CancelRead(0)
	return s.CloseWrite()
}

// Abort closes both directions at once, and drops data that was not delivered yet.
func (s *Stream) Abort() {
	s.qs.CancelRead(0)
	s.qs.CancelWrite(0)
}

// Writing returns a context that ends when nothing more can be written: the peer stopped reading, this side closed
// the stream, or the connection is over.
func (s *Stream) Writing() context.Context { return s.qs.Context() }

// Bulk gives the stream the lowest priority: other streams of the connection are sent first.
func (s *Stream) Bulk() { s.qs.SetPriority(leastUrgent, true) }

// leastUrgent is the lowest of the eight urgencies of RFC 9218.
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
