package fabric_test

import (
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"skerry/chaos/fabric"
)

func TestPacketArrivesAfterTheLatency(t *testing.T) {
	inBubble(t, func(t *testing.T, n *fabric.Net, a, b *fabric.Host) {
		x, y := mustPacketConn(t, a, 0), mustPacketConn(t, b, 4647)
		start := time.Now()
		mustWriteTo(t, x, []byte("to b"), &net.UDPAddr{IP: net.ParseIP("10.0.0.2"), Port: 4647})
		got, from := mustReadFrom(t, y)
		mustBe(t, "packet", got, "to b")
		mustBe(t, "latency", time.Since(start), fabric.LANLatency)
		mustBe(t, "source", from.String(), x.LocalAddr().String())
		mustWriteTo(t, y, []byte("answer"), from)
		got, _ = mustReadFrom(t, x)
		mustBe(t, "packet", got, "answer")
		mustBe(t, "round trip", time.Since(start), 2*fabric.LANLatency)

		local := mustPacketConn(t, a, 7)
		for _, ip := range []string{"127.0.0.1", "10.0.0.1", "::ffff:10.0.0.1"} {
			start = time.Now()
			mustWriteTo(t, x, []byte("to itself"), &net.UDPAddr{IP: net.ParseIP(ip), Port: 7})
			mustReadFrom(t, local)
			mustBe(t, "latency to "+ip, time.Since(start), 20*time.Microsecond)
		}
		mustBe(t, "traffic", n.Bytes("b"), fabric.Traffic{SentPackets: 1, SentBytes: 6 + 28, ReceivedPackets: 1, ReceivedBytes: 4 + 28})
		mustBe(t, "traffic of nobody", n.Bytes("c"), fabric.Traffic{})
	})
}

func TestPacketConnErrors(t *testing.T) {
	inBubble(t, func(t *testing.T, n *fabric.Net, a, b *fabric.Host) {
		c := mustPacketConn(t, a, 9)
		if _, yes := c.(syscall.Conn); yes {
			t.Error("quic-go would send control messages")
		}
		_, err := a.ListenPacket(9)
		mustFail(t, "listen twice", err, syscall.EADDRINUSE)
		_, err = c.WriteTo(make([]byte, 70_000), c.LocalAddr())
		mustFail(t, "write too much", err, syscall.EMSGSIZE)
		_, err = c.WriteTo(nil, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 1})
		mustFail(t, "write to a TCP address", err, syscall.EINVAL)

		mustWriteTo(t, c, []byte("nobody listens"), &net.UDPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 1})
		mustWriteTo(t, c, []byte("nobody is there"), &net.UDPAddr{IP: net.IPv4(10, 9, 9, 9), Port: 1})
		mustBe(t, "strays at b", n.Bytes("b").Strays, 1)
		mustBe(t, "strays at a", n.Bytes("a").Strays, 1)

		mustWriteTo(t, c, []byte("a long packet"), c.LocalAddr())
		short := make([]byte, 6)
		k, _, err := c.ReadFrom(short)
		mustBeNil(t, err)
		mustBe(t, "truncated", string(short[:k]), "a long")

		mustBeNil(t, c.SetWriteDeadline(time.Now()))
		_, err = c.WriteTo(nil, c.LocalAddr())
		mustFail(t, "write after the deadline", err, os.ErrDeadlineExceeded)
		mustBeNil(t, c.Close())
		mustFail(t, "close twice", c.Close(), net.ErrClosed)
		_, err = c.WriteTo(nil, c.LocalAddr())
		mustFail(t, "write after close", err, net.ErrClosed)
		_, _, err = c.ReadFrom(short)
		mustFail(t, "read after close", err, net.ErrClosed)
		mustPacketConn(t, a, 9)
	})
}

func TestPacketConnDeadlines(t *testing.T) {
	inBubble(t, func(t *testing.T, n *fabric.Net, a, b *fabric.Host) {
		c, other := mustPacketConn(t, a, 0), mustPacketConn(t, b, 0)
		start := time.Now()
		read := func() error {
			_, _, err := c.ReadFrom(make([]byte, 10))
			return err
		}
		mustBeNil(t, c.SetReadDeadline(start.Add(-time.Second)))
		mustFail(t, "read after a past deadline", read(), os.ErrDeadlineExceeded)
		mustBeNil(t, c.SetDeadline(start.Add(3*time.Second)))
		mustFail(t, "read until the deadline", read(), os.ErrDeadlineExceeded)
		mustBe(t, "waited", time.Since(start), 3*time.Second)

		// A deadline that moves while readers wait, in either direction, reaches
		// all of them; one that is taken away leaves them to the next packet.
		mustBeNil(t, c.SetReadDeadline(time.Now().Add(time.Hour)))
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { mustFail(t, "read until the moved deadline", read(), os.ErrDeadlineExceeded) })
		}
		time.Sleep(time.Second)
		mustBeNil(t, c.SetReadDeadline(time.Now().Add(2*time.Hour)))
		time.Sleep(time.Second)
		mustBeNil(t, c.SetReadDeadline(time.Now().Add(time.Second)))
		wg.Wait()
		mustBe(t, "waited", time.Since(start), 6*time.Second)

		mustBeNil(t, c.SetReadDeadline(time.Now().Add(time.Second)))
		wg.Go(func() { mustBeNil(t, read()) })
		time.Sleep(time.Second / 2)
		mustBeNil(t, c.SetReadDeadline(time.Time{}))
		time.Sleep(time.Hour)
		mustWriteTo(t, other, nil, c.LocalAddr())
		wg.Wait()
	})
}

func TestPacketConnBufferIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, n *fabric.Net, a, b *fabric.Host) {
		x, y := mustPacketConn(t, a, 0), mustPacketConn(t, b, 0)
		payload := []byte(strings.Repeat("x", 1200))
		send := func() {
			for range 1000 {
				mustWriteTo(t, x, payload, y.LocalAddr())
			}
			time.Sleep(time.Second)
		}
		// 212,992 bytes of 1,840 each.
		send()
		mustBe(t, "received", len(receivedPackets(t, y)), 115)
		mustBe(t, "overflows", n.Bytes("b").Overflows, 885)
		mustBe(t, "received, on the wire", n.Bytes("b").ReceivedPackets, 1000)

		mustBeNil(t, y.(interface{ SetReadBuffer(int) error }).SetReadBuffer(7<<20))
		send()
		mustBe(t, "received with a large buffer", len(receivedPackets(t, y)), 1000)
	})
}

func TestPacketsOfManySendersKeepTheirOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, n *fabric.Net, a, b *fabric.Host) {
		far := n.Shape(fabric.Hosts("c"), hostB, fabric.Profile{Latency: time.Second})
		x, y, z := mustPacketConn(t, a, 0), mustPacketConn(t, b, 0), mustPacketConn(t, n.Host("c", "10.0.0.3"), 0)
		for i := range 5 {
			mustWriteTo(t, z, fmt.Appendf(nil, "far %d", i), y.LocalAddr())
			mustWriteTo(t, x, fmt.Appendf(nil, "near %d", i), y.LocalAddr())
		}
		mustBe(t, "order", fmt.Sprint(receivedPackets(t, y)), "[near 0 near 1 near 2 near 3 near 4 far 0 far 1 far 2 far 3 far 4]")
		mustBe(t, "delayed", far.Count(), fabric.Count{Delayed: 5})
	})
}

// TestCloseReleasesEveryone: the bubble would not end with a goroutine in it.
func TestCloseReleasesEveryone(t *testing.T) {
	inBubble(t, func(t *testing.T, n *fabric.Net, a, b *fabric.Host) {
		c := mustPacketConn(t, a, 0)
		l := mustListen(t, b, 80)
		dialed, accepted := mustStream(t, a, b)
		n.Cut(hostA, hostB, fabric.Both, fabric.Silent)
		var wg sync.WaitGroup
		wait := func(what string, f func() error) {
			wg.Go(func() { mustFail(t, what, f(), net.ErrClosed) })
		}
		for range 2 {
			wait("read a packet", func() error { _, _, err := c.ReadFrom(nil); return err })
			wait("accept", func() error { _, err := l.Accept(); return err })
			wait("read", func() error { _, err := dialed.Read(make([]byte, 1)); return err })
		}
		wait("dial", func() error { _, err := a.Dial(t.Context(), "b:80"); return err })
		wg.Go(func() {
			// Vanishes, like what a machine writes whose power is gone.
			if k, err := accepted.Write(make([]byte, 1<<20)); err != nil || k != 1<<20 {
				t.Errorf("write: %d, %v", k, err)
			}
		})
		time.Sleep(10 * time.Second)
		n.Close()
		wg.Wait()
		n.Close()
		_, err := a.ListenPacket(0)
		mustFail(t, "listen after close", err, net.ErrClosed)
		_, err = a.Dial(t.Context(), "b:80")
		mustFail(t, "dial after close", err, net.ErrClosed)
		mustBeNil(t, c.Close())
		mustBeNil(t, dialed.Close())
		mustBeNil(t, l.Close())
	})
}
