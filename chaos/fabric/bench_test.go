package fabric_test

import (
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry/chaos/fabric"
)

// benchmarkInBubble runs a benchmark's loop in virtual time; its timer stays in real time.
func benchmarkInBubble(b *testing.B, f func(t *testing.T)) {
	b.Helper()
	everything := func(string, string) (bool, error) { return true, nil }
	if !testing.RunTests(everything, []testing.InternalTest{{Name: b.Name(), F: func(t *testing.T) { synctest.Test(t, f) }}}) {
		b.Fatal("it failed in the bubble")
	}
}

// BenchmarkPingPong: each packet is alone in the network, so that virtual time
// has to move for each.
func BenchmarkPingPong(b *testing.B) {
	b.ReportAllocs()
	benchmarkInBubble(b, func(t *testing.T) {
		n := fabric.New(1)
		defer n.Close()
		x, y := mustPacketConn(t, n.Host("x", "10.0.0.1"), 1), mustPacketConn(t, n.Host("y", "10.0.0.2"), 1)
		var wg sync.WaitGroup
		wg.Go(func() { echoPackets(y) })
		buf, to := make([]byte, 2000), y.LocalAddr()
		for range b.N {
			_, _ = x.WriteTo(buf[:200], to)
			_, _, _ = x.ReadFrom(buf)
		}
		n.Close()
		wg.Wait()
	})
	b.ReportMetric(2*float64(b.N)/b.Elapsed().Seconds(), "packets/s")
}

// BenchmarkBurst: 64 packets are under way at a time.
func BenchmarkBurst(b *testing.B) {
	b.ReportAllocs()
	benchmarkInBubble(b, func(t *testing.T) {
		n := fabric.New(1)
		defer n.Close()
		x, y := mustPacketConn(t, n.Host("x", "10.0.0.1"), 1), mustPacketConn(t, n.Host("y", "10.0.0.2"), 1)
		n.Shape(fabric.Everyone, fabric.Everyone, fabric.Profile{Latency: 10 * time.Millisecond, Bandwidth: 1e9})
		buf, to := make([]byte, 2000), y.LocalAddr()
		for range b.N {
			for range 64 {
				_, _ = x.WriteTo(buf[:1200], to)
			}
			for range 64 {
				_, _, _ = y.ReadFrom(buf)
			}
		}
	})
	b.ReportMetric(64*float64(b.N)/b.Elapsed().Seconds(), "packets/s")
}

func echoPackets(c net.PacketConn) {
	buf := make([]byte, 2000)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		_, _ = c.WriteTo(buf[:n], from)
	}
}
