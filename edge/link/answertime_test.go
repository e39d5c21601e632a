package link_test

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry/edge/link"
	"skerry/syncproto"
	"skerry/syncproto/transport"
)

const otherAddr = "10.0.0.2:4647"

// One-way latencies. A hub on the slow path is heard after 800 ms.
const (
	fastLatency = 20 * time.Millisecond
	slowLatency = 400 * time.Millisecond
)

// dialRecord has the times at which a link began to dial hubs.
type dialRecord struct {
	mu    sync.Mutex
	times []time.Time
}

// recordDials makes the link of w record its dials.
func recordDials(w *linkTest) *dialRecord {
	d := &dialRecord{}
	w.cfg.Resolve = func(_ context.Context, hub string) ([]net.Addr, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.times = append(d.times, time.Now())
		return resolve(hub)
	}
	return d
}

// takeDelays forgets the dials, and returns how long after the first one each further one began.
func (d *dialRecord) takeDelays() []time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	var delays []time.Duration
	for i, at := range d.times {
		if i > 0 {
			delays = append(delays, at.Sub(d.times[0]))
		}
	}
	d.times = nil
	return delays
}

// headStartTest is a link with two hubs, of which it has dialed both and is connected to one.
type headStartTest struct {
	*linkTest
	hubs  map[string]*hub
	dials *dialRecord
}

func newHeadStartTest(tb testing.TB, latency time.Duration) *headStartTest {
	w := &headStartTest{linkTest: newLinkTest(tb), hubs: map[string]*hub{}}
	w.net.SetLatency(latency)
	w.cfg.Hubs = []string{hubAddr, otherAddr}
	for _, addr := range w.cfg.Hubs {
		w.hubs[addr] = w.addHub(addr)
	}
	w.dials = recordDials(w.linkTest)
	w.startLink()
	w.waitUntil(10*time.Second, "connect", w.isConnected)
	return w
}

// reconnect makes the hub of the session close its connection, and waits for the next session.
func (w *headStartTest) reconnect() {
	w.tb.Helper()
	sessions := len(w.cluster.takeSnapshot().hellos)
	w.dials.takeDelays()
	if err := w.hubs[w.link.Status().Hub].newestConn().CloseWith(nil); err != nil {
		w.tb.Fatalf("close the connection: %v", err)
	}
	w.waitUntil(10*time.Second, "connect again", func() bool { return w.isConnected() && len(w.cluster.takeSnapshot().hellos) > sessions })
}

// failOver makes the hub of the session vanish silently, and waits for a session with the other one.
func (w *headStartTest) failOver() {
	w.tb.Helper()
	w.dials.takeDelays()
	gone := w.hubs[w.link.Status().Hub]
	w.path.Cut()
	gone.stopHub()
	time.Sleep(2 * slowLatency) // the hub's last packet is lost
	w.path.Heal()
	w.link.RequestHeartbeat()
	w.waitUntil(20*time.Second, "fail over", func() bool { return w.isConnected() && w.link.Status().Hub != gone.addr })
}

func (w *headStartTest) wantDelays(what string, want ...time.Duration) {
	w.tb.Helper()
	if got := w.dials.takeDelays(); !slices.Equal(got, want) {
		w.tb.Errorf("%s: further hubs were dialed after %s, want %s", what, got, want)
	}
}

// On a slow path a hub gets twice the time that it needed before. On a path that became fast again, the head start is
// as short as ever after one dial.
func TestHeadStartFollowsThePath(t *testing.T) {
	for name, pause := range map[string]time.Duration{"soon": time.Second, "after some heartbeats": 45 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newHeadStartTest(t, slowLatency)
				w.wantDelays("nothing known yet", 400*time.Millisecond)
				time.Sleep(pause)
				w.reconnect()
				w.wantDelays("slow path")
				w.net.SetLatency(fastLatency)
				w.reconnect()
				w.wantDelays("fast path")
				time.Sleep(pause)
				w.failOver()
				w.wantDelays("dead hub on the fast path", 400*time.Millisecond)
			})
		})
	}
}

// A dead hub on a slow path costs twice the answer time.
func TestDeadHubOnASlowPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHeadStartTest(t, slowLatency)
		w.reconnect()
		w.failOver()
		w.wantDelays("dead hub on the slow path", 4*slowLatency)
	})
}

// A path that heals during a dial makes the hub seem slow. The session shows that it is not.
func TestHeadStartAfterAHealedPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHeadStartTest(t, fastLatency)
		w.stop()
		w.path.Cut()
		w.startLink()
		time.Sleep(1500 * time.Millisecond)
		w.path.Heal()
		w.waitUntil(10*time.Second, "connect", w.isConnected)
		time.Sleep(7 * time.Second)
		w.failOver()
		w.wantDelays("dead hub on a fast path that was cut", 400*time.Millisecond)
	})
}

// The link uses the answer time of an enrolment, before its own first dial.
func TestAnswerTimeOfTheEnrolment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		w.net.SetLatency(slowLatency)
		w.cfg.Hubs = []string{hubAddr, otherAddr}
		for _, addr := range w.cfg.Hubs {
			w.addHub(addr)
		}
		endpoint, err := transport.New(transport.Config{Conn: w.path.Socket()})
		if err != nil {
			t.Fatal(err)
		}
		client, _ := w.cfg.TLS()
		addrs, _ := resolve(hubAddr)
		w.cfg.AnswerTime = &link.AnswerTime{}
		dialer, heard := link.TimedDialer{Endpoint: endpoint, Time: w.cfg.AnswerTime}, false
		conn, err := dialer.Dial(t.Context(), transport.DialConfig{
			Addr: addrs[0], ALPN: syncproto.ALPNEdge, TLS: client, Heard: func() { heard = true },
		})
		if err != nil || !heard {
			t.Fatalf("dial: %v, heard: %t", err, heard)
		}
		_ = conn.CloseWith(nil)
		if err := endpoint.Close(); err != nil {
			t.Fatal(err)
		}
		dials := recordDials(w)
		w.startLink()
		w.waitUntil(10*time.Second, "connect", w.isConnected)
		if more := dials.takeDelays(); len(more) > 0 {
			t.Errorf("further hubs were dialed after %s", more)
		}
	})
}
