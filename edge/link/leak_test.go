package link_test

import (
	"context"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
)

// countedSocket is a socket that reports when it is closed.
type countedSocket struct {
	net.PacketConn
	open   *atomic.Int64
	closed atomic.Bool
}

func (s *countedSocket) Close() error {
	if !s.closed.Swap(true) {
		s.open.Add(-1)
	}
	return s.PacketConn.Close()
}

// An edge whose link comes and goes for years has as many goroutines and sockets as one that has just
// connected, whichever way the link is lost.
func TestAThousandReconnectsLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		w.cfg.BackoffCap = time.Second
		var open atomic.Int64
		socket := w.cfg.Socket
		w.cfg.Socket = func(ctx context.Context) (net.PacketConn, error) {
			s, err := socket(ctx)
			if err == nil {
				open.Add(1)
			}
			return &countedSocket{PacketConn: s, open: &open}, err
		}
		h := w.addHub(hubAddr)
		w.startLink()
		w.waitUntil(time.Second, "connect", w.isFullySynced)
		reconnect := func(n int) {
			epoch := w.link.Status().Epoch
			switch n % 3 {
			case 0: // the hub ends the session
				if err := h.newestConn().CloseWith(fleet.Errorf(fleet.CodeUnavailable, "going away")); err != nil {
					t.Fatal(err)
				}
			case 1: // the path is silent, and a search runs beside the session
				w.path.Cut()
				w.journal.appendRows(running(n))
				time.Sleep(4 * time.Second)
				w.path.Heal()
			case 2: // silent for so long that the session ends
				w.path.Cut()
				w.journal.appendRows(running(n))
				time.Sleep(time.Minute)
				w.path.Heal()
			}
			w.waitUntil(20*time.Second, "settle", func() bool { return w.isFullySynced() && w.link.Status().Epoch > epoch })
		}
		quiet := func() (int, int64) {
			time.Sleep(5 * time.Minute) // lets what lingers end, such as QUIC's draining
			synctest.Wait()
			return len(goroutines()), open.Load()
		}
		for n := range 30 {
			reconnect(n)
		}
		goroutinesThen, socketsThen := quiet()
		times := 1000
		if testing.Short() { // make test-long runs all
			times = 100
		}
		for n := range times {
			reconnect(n)
		}
		if n, sockets := quiet(); n > goroutinesThen || sockets > socketsThen {
			t.Errorf("%d goroutines and %d sockets, before %d and %d:\n%s", n, sockets, goroutinesThen, socketsThen, strings.Join(goroutines(), "\n\n"))
		}
	})
}

// goroutines returns the stacks of all goroutines but those of the simulated network, whose wires stay
// when a socket is closed.
func goroutines() []string {
	stacks := make([]byte, 64<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return slices.DeleteFunc(strings.Split(string(stacks), "\n\n"), func(s string) bool {
		return strings.Contains(s, "marcopolo/simnet")
	})
}
