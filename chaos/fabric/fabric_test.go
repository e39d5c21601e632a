package fabric_test

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"skerry/chaos/fabric"
)

// inBubble runs a test in virtual time, on a network with two hosts, a and b.
func inBubble(t *testing.T, f func(t *testing.T, n *fabric.Net, a, b *fabric.Host)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := fabric.New(1)
		defer n.Close()
		f(t, n, n.Host("a", "10.0.0.1"), n.Host("b", "10.0.0.2"))
	})
}

var (
	hostA = fabric.Hosts("a")
	hostB = fabric.Hosts("b")
)

func mustPacketConn(tb testing.TB, h *fabric.Host, port int) net.PacketConn {
	tb.Helper()
	c, err := h.ListenPacket(port)
	if err != nil {
		tb.Fatalf("listen at %s: %v", h.Name(), err)
	}
	return c
}

func mustWriteTo(tb testing.TB, c net.PacketConn, b []byte, to net.Addr) {
	tb.Helper()
	if n, err := c.WriteTo(b, to); err != nil || n != len(b) {
		tb.Fatalf("write to %s: %d, %v", to, n, err)
	}
}

// mustReadFrom waits for a packet and returns its bytes and its source.
func mustReadFrom(tb testing.TB, c net.PacketConn) (string, net.Addr) {
	tb.Helper()
	b := make([]byte, 2000)
	n, from, err := c.ReadFrom(b)
	if err != nil {
		tb.Fatalf("read at %s: %v", c.LocalAddr(), err)
	}
	return string(b[:n]), from
}

// receivedPackets returns what a socket gets until nothing comes for a minute.
func receivedPackets(tb testing.TB, c net.PacketConn) []string {
	tb.Helper()
	var all []string
	b := make([]byte, 2000)
	for {
		mustBeNil(tb, c.SetReadDeadline(time.Now().Add(time.Minute)))
		n, _, err := c.ReadFrom(b)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			mustBeNil(tb, c.SetReadDeadline(time.Time{}))
			return all
		}
		if err != nil {
			tb.Fatalf("read at %s: %v", c.LocalAddr(), err)
		}
		all = append(all, string(b[:n]))
	}
}

func mustListen(tb testing.TB, h *fabric.Host, port int) net.Listener {
	tb.Helper()
	l, err := h.Listen(port)
	if err != nil {
		tb.Fatalf("listen at %s: %v", h.Name(), err)
	}
	return l
}

func mustDial(tb testing.TB, h *fabric.Host, addr string) net.Conn {
	tb.Helper()
	c, err := h.Dial(context.Background(), addr)
	if err != nil {
		tb.Fatalf("dial %s: %v", addr, err)
	}
	return c
}

// mustStream returns both ends of a stream from a to b.
func mustStream(tb testing.TB, a, b *fabric.Host) (dialed, accepted net.Conn) {
	tb.Helper()
	l := mustListen(tb, b, 0)
	dialed = mustDial(tb, a, l.Addr().String())
	accepted, err := l.Accept()
	if err != nil {
		tb.Fatalf("accept at %s: %v", b.Name(), err)
	}
	mustBeNil(tb, l.Close())
	return dialed, accepted
}

func mustWrite(tb testing.TB, c net.Conn, s string) {
	tb.Helper()
	if n, err := c.Write([]byte(s)); err != nil || n != len(s) {
		tb.Fatalf("write to %s: %d, %v", c.RemoteAddr(), n, err)
	}
}

func mustRead(tb testing.TB, c net.Conn) string {
	tb.Helper()
	b := make([]byte, 4096)
	n, err := c.Read(b)
	if err != nil {
		tb.Fatalf("read from %s: %v", c.RemoteAddr(), err)
	}
	return string(b[:n])
}

func mustBeNil(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func mustBe[T comparable](tb testing.TB, what string, got, want T) {
	tb.Helper()
	if got != want {
		tb.Errorf("%s: %v, want %v", what, got, want)
	}
}

func mustFail(tb testing.TB, what string, err, want error) {
	tb.Helper()
	if !errors.Is(err, want) {
		tb.Errorf("%s: %v, want %v", what, err, want)
	}
}
