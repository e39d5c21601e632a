//go:build planted

package link_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/planted"
)

// An edge that is cut off, and has rows of which only the newest is urgent, skips
// the others; a hub that sees to gaps refuses that.
func TestPlantedGlueOverGap(t *testing.T) {
	skips := func(want bool) {
		synctest.Test(t, func(t *testing.T) {
			w := newLinkTest(t)
			w.journal.appendRows(noise(1), noise(2), running(3))
			w.addHub(hubAddr)
			w.startLink()
			w.waitUntil(10*time.Second, "send", func() bool { return len(w.cluster.takeSnapshot().batches) > 0 })
			if first := w.cluster.takeSnapshot().batches[0].First; first == 3 != want {
				t.Errorf("sending began at row %d", first)
			}
		})
	}
	skips(false)
	defer planted.Plant(planted.GlueOverGap)()
	skips(true)
}

func TestPlantedDisconnectTwice(t *testing.T) {
	losses := func(want int) {
		synctest.Test(t, func(t *testing.T) {
			w := newLinkTest(t)
			w.addHub(hubAddr)
			w.startLink()
			w.waitUntil(time.Second, "connect", w.isFullySynced)
			w.path.Cut()
			w.journal.appendRows(running(1))
			time.Sleep(5 * time.Minute)
			w.path.Heal()
			w.waitUntil(2*time.Minute, "replay", w.isFullySynced)
			n := 0
			for _, r := range w.cluster.takeSnapshot().rows {
				if r.Kind == fleet.TransitionDisconnect {
					n++
				}
			}
			if n != want {
				t.Errorf("one loss was noted %d times, want %d", n, want)
			}
		})
	}
	losses(1)
	defer planted.Plant(planted.DisconnectTwice)()
	losses(2)
}

func TestPlantedLeakSocket(t *testing.T) {
	leaks := func(want bool) {
		synctest.Test(t, func(t *testing.T) {
			w := newLinkTest(t)
			var open atomic.Int64
			socket := w.cfg.Socket
			var all []net.PacketConn
			w.cfg.Socket = func(ctx context.Context) (net.PacketConn, error) {
				s, err := socket(ctx)
				open.Add(1)
				all = append(all, s)
				return &countedSocket{PacketConn: s, open: &open}, err
			}
			w.startLink()
			time.Sleep(2 * time.Minute) // nobody is there
			if n := open.Load(); n > 1 != want {
				t.Errorf("%d sockets are open", n)
			}
			w.stop()
			for _, s := range all {
				_ = s.Close() // those that leaked: the bubble waits for their readers
			}
		})
	}
	leaks(false)
	defer planted.Plant(planted.LeakSocket)()
	leaks(true)
}

// Edges that lost their hub in the same moment: rounds of dialing come at the same
// times.
func TestPlantedRetryWithoutJitter(t *testing.T) {
	rounds := func() (at []time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			w := newLinkTest(t)
			socket, start := w.cfg.Socket, time.Now()
			w.cfg.Socket = func(ctx context.Context) (net.PacketConn, error) {
				at = append(at, time.Since(start).Round(time.Millisecond))
				return socket(ctx)
			}
			w.startLink()
			time.Sleep(time.Minute)
			w.stop()
		})
		return at
	}
	same := func() bool {
		one, other := rounds(), rounds()
		return one[3] == other[3]
	}
	if same() {
		t.Error("without the bug two edges came back in step")
	}
	defer planted.Plant(planted.RetryWithoutJitter)()
	if !same() {
		t.Error("with the bug two edges did not come back in step")
	}
}
