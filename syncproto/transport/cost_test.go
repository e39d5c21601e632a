package transport_test

import (
	"crypto/tls"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"

	"skerry/syncproto/transport"
	"skerry/syncproto/transport/transporttest"
)

// loopback is a hub and an edge on real sockets.
func mustLoopback(tb testing.TB) (hub, edge *transport.Endpoint, client *tls.Config) {
	tb.Helper()
	ca := transporttest.NewCA(tb)
	server := ca.Server(tb, "hub:h1")
	listen := func(tls func([]string) (*tls.Config, error)) *transport.Endpoint {
		socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			tb.Fatal(err)
		}
		e, err := transport.New(transport.Config{Conn: socket, TLS: tls})
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() {
			if err := e.Close(); err != nil {
				tb.Errorf("close an endpoint: %v", err)
			}
		})
		return e
	}
	return listen(func([]string) (*tls.Config, error) { return server, nil }), listen(nil), ca.Client(tb, "edge:n1")
}

// A connection with the three streams of a session, idle: what it costs both of
// its sides together, of which the hub's is half. The hub's bound is 100 KiB.
func TestMemoryOfAConnection(t *testing.T) {
	const conns, bound = 100, 2 * 100 << 10
	hub, edge, client := mustLoopback(t)
	inUse := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	before := inUse()
	var held []any
	for range conns {
		c, err := edge.Dial(t.Context(), transport.DialConfig{Addr: hub.Addr(), ALPN: alpn, TLS: client})
		if err != nil {
			t.Fatal(err)
		}
		h, err := hub.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, c, h)
		for range 3 {
			s := mustOpen(t, c)
			if _, err := s.Write([]byte{0}); err != nil {
				t.Fatal(err)
			}
			hs, err := h.Accept(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(hs, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			held = append(held, s, hs)
		}
	}
	each := (inUse() - before) / conns
	t.Logf("%d KiB for both sides of a connection", each>>10)
	if each > bound {
		t.Errorf("%d bytes for both sides of a connection, at most %d are allowed", each, bound)
	}
	runtime.KeepAlive(held)
}

func BenchmarkBulk(b *testing.B) {
	hub, edge, client := mustLoopback(b)
	var wg sync.WaitGroup
	wg.Go(func() {
		c, err := hub.Accept(b.Context())
		if err != nil {
			b.Error(err)
			return
		}
		s, err := c.Accept(b.Context())
		if err != nil {
			b.Error(err)
			return
		}
		if _, err := io.Copy(io.Discard, s); err != nil {
			b.Error(err)
		}
		_ = s.Close()
	})
	c, err := edge.Dial(b.Context(), transport.DialConfig{Addr: hub.Addr(), ALPN: alpn, TLS: client, Bulk: true})
	if err != nil {
		b.Fatal(err)
	}
	s, err := c.Open(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	chunk := make([]byte, 1<<20)
	b.SetBytes(int64(len(chunk)))
	for b.Loop() {
		if _, err := s.Write(chunk); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.CloseWrite(); err != nil {
		b.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, s)
	wg.Wait()
}
