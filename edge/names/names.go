// Package names answers DNS queries for services from this edge's own copy, with no hub in reach.
//
// edge makes a Server when it is configured. Run has one goroutine for datagrams, one that accepts connections, and one
// for each connection, of which there are at most maxConns. It stores nothing.
//
//	NAME.service.skerry             A, AAAA and SRV of a service in the namespace default
//	NAME.NAMESPACE.service.skerry   of a service in another namespace
//	HEX.addr.skerry                 the address that the SRV answers name
package names

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"golang.org/x/sync/errgroup"

	"skerry/fleet"
)

// Bounds of a query, an answer and the connections.
const (
	maxDatagram = 512 // every client takes that
	maxStream   = 16 << 10
	maxAnswers  = 64
	maxConns    = 16
	connTimeout = 5 * time.Second
)

// Catalogue finds the registrations of a service in a namespace. Those whose checks fail are not among them.
type Catalogue interface {
	Services(ctx context.Context, namespace, name string) ([]fleet.ServiceRegistration, error)
}

// Server answers queries at one address, by datagrams and by connections.
type Server struct {
	catalogue Catalogue
	log       *slog.Logger
	packets   net.PacketConn
	stream    net.Listener
	conns     chan struct{} // one for each connection
}

// Listen makes a Server at an address, HOST:PORT. It starts no goroutine.
func Listen(address string, c Catalogue, log *slog.Logger) (*Server, error) {
	stream, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for DNS queries: %w", err)
	}
	packets, err := net.ListenPacket("udp", stream.Addr().String()) // the same port, if the address has 0
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen for DNS queries: %w", err), stream.Close())
	}
	return &Server{catalogue: c, log: log, packets: packets, stream: stream, conns: make(chan struct{}, maxConns)}, nil
}

// Addr returns the address at which the server listens.
func (s *Server) Addr() string { return s.stream.Addr().String() }

// Run answers queries until ctx ends, and then closes the sockets.
func (s *Server) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { <-ctx.Done(); return s.Close() })
	g.Go(func() error { return s.servePackets(ctx) })
	g.Go(func() error { return s.serveStreams(ctx, g) })
	return g.Wait()
}

// Close releases the sockets.
func (s *Server) Close() error {
	var failed []error
	for _, c := range []io.Closer{s.packets, s.stream} {
		if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			failed = append(failed, fmt.Errorf("stop listening for DNS queries: %w", err))
		}
	}
	return errors.Join(failed...)
}

// servePackets answers datagrams until ctx ends.
func (s *Server) servePackets(ctx context.Context) error {
	buf := make([]byte, maxStream)
	for {
		n, from, err := s.packets.ReadFrom(buf)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("read DNS queries: %w", err)
		case err != nil: // of one client, such as a refused answer
			s.log.Debug("DNS query not read", "error", err)
			continue
		}
		if answer := s.answerQuery(ctx, buf[:n], maxDatagram); answer != nil {
			if _, err := s.packets.WriteTo(answer, from); err != nil {
				s.log.Debug("DNS answer not sent", "error", err)
			}
		}
	}
}

// serveStreams accepts connections until ctx ends, and lets g serve each.
func (s *Server) serveStreams(ctx context.Context, g *errgroup.Group) error {
	for {
		c, err := s.stream.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept DNS connections: %w", err)
		}
		select {
		case s.conns <- struct{}{}:
			g.Go(func() error {
				defer func() { <-s.conns }()
				s.serveStream(ctx, c)
				return nil
			})
		default: // too many: the client asks again
			_ = c.Close()
		}
	}
}

// serveStream answers the queries of one connection, each within connTimeout.
func (s *Server) serveStream(ctx context.Context, c net.Conn) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	for {
		_ = c.SetDeadline(time.Now().Add(connTimeout))
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, query); err != nil {
			return
		}
		answer := s.answerQuery(ctx, query, maxStream)
		if answer == nil {
			return
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}
