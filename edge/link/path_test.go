package link_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry/edge/link"
	"skerry/fleet"
	"skerry/syncproto"
)

func TestBlipKeepsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		w.addHub(hubAddr)
		w.startLink()
		w.waitUntil(time.Second, "connect", w.isConnected)
		for range 10 {
			w.path.Cut()
			w.journal.appendRows(running(1))
			time.Sleep(800 * time.Millisecond)
			w.path.Heal()
			w.waitUntil(3*time.Second, "settle", w.isFullySynced)
			time.Sleep(7 * time.Second)
		}
		if n := len(w.cluster.takeSnapshot().hellos); n != 1 {
			t.Errorf("%d sessions, want 1: a blip ends none", n)
		}
	})
}

// A healed link is synced within 2 s of the first packet that gets through, however long it was cut and whatever the
// edge was doing.
func TestSettledSoonAfterHealing(t *testing.T) {
	for _, cut := range []time.Duration{2, 4, 9, 17, 29, 31, 60, 200, 3600} {
		cut *= time.Second
		t.Run(cut.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newLinkTest(t)
				w.addHub(hubAddr)
				w.startLink()
				w.waitUntil(time.Second, "connect", w.isConnected)
				for range 4 {
					time.Sleep(11 * time.Second)
					w.path.Cut()
					w.journal.appendRows(running(1))
					time.Sleep(cut)
					w.path.Heal()
					healed := w.path.Count()
					first := w.waitUntil(link.DefaultBackoffCap, "first packet", func() bool {
						return w.path.Count().Sub(healed).ReceivedPackets > 0
					})
					if took := w.waitUntil(10*time.Second, "settle", w.isFullySynced); took > 2*time.Second {
						t.Errorf("settled %s after the first packet, %s after healing", took, first+took)
					}
					if bytes := w.path.Count().Sub(healed).Bytes(); bytes > 20_000 {
						t.Errorf("%d bytes until settled, want at most 20,000", bytes)
					}
				}
				wantRowsOnce(t, w)
			})
		})
	}
}

func TestSilentDeathIsNoticedWithinThreeBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ttl := range []time.Duration{10 * time.Second, 60 * time.Second, 15 * time.Minute} {
			w := newLinkTest(t)
			w.cluster.ttl = ttl
			h := w.addHub(hubAddr)
			w.startLink()
			w.waitUntil(time.Second, "connect", w.isConnected)
			time.Sleep(3*ttl + ttl/2)
			if !w.isConnected() || len(w.cluster.takeSnapshot().hellos) != 1 {
				t.Fatalf("TTL %s: the idle session did not last", ttl)
			}
			w.path.Cut()
			hub := h.newestConn()
			start := time.Now()
			w.waitUntil(4*ttl+time.Second, "notice", func() bool { return !w.isConnected() })
			edge := time.Since(start)
			if edge > 4*ttl {
				t.Errorf("TTL %s: the edge noticed after %s", ttl, edge)
			}
			<-hub.Done()
			if took := time.Since(start); took > 4*ttl {
				t.Errorf("TTL %s: the hub noticed after %s", ttl, took)
			}
			w.stop()
			h.stopHub()
		}
	})
}

// The time without a hub counts from when the answered heartbeat was sent, and not from its answer, which may be late.
func TestAwayCountsFromTheHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		h := w.addHub(hubAddr)
		w.startLink()
		w.waitUntil(time.Second, "connect", w.isConnected)
		answered := len(w.cluster.takeSnapshot().beats)
		w.cluster.withLock(func() { w.cluster.stuck = true })
		w.waitUntil(time.Minute, "another heartbeat", func() bool { return len(w.cluster.takeSnapshot().beats) > answered })
		const late = 6 * time.Second
		time.Sleep(late)
		before := w.journal.Away()
		h.runInSession(func(p *syncproto.HubSession) []syncproto.Output {
			return p.Acknowledge(syncproto.HeartbeatAck{Status: fleet.NodeReady})
		})
		w.waitUntil(time.Second, "its answer", func() bool { return w.journal.Away() < before })
		if away := w.journal.Away(); away < late || away > late+2*time.Second {
			t.Errorf("away for %s, after a heartbeat that was answered after %s", away, late)
		}
	})
}

func TestRebindKeepsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		w.addHub(hubAddr)
		w.startLink()
		w.waitUntil(time.Second, "connect", w.isConnected)
		for i := range 6 {
			time.Sleep(15 * time.Second)
			w.path.Rebind()
			w.journal.appendRows(running(i))
			if took := w.waitUntil(5*time.Second, "settle", w.isFullySynced); took > 2*time.Second {
				t.Errorf("settled %s after a rebind", took)
			}
		}
		if n := len(w.cluster.takeSnapshot().hellos); n != 1 {
			t.Errorf("%d sessions, want 1: the connection migrates", n)
		}
	})
}

func TestAnotherHubTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		addrs := []string{"10.0.0.1:4647", "10.0.0.2:4647", "10.0.0.3:4647"}
		hubs := map[string]*hub{}
		for _, a := range addrs {
			hubs[a] = w.addHub(a)
		}
		w.cfg.Hubs = append([]string{"10.0.0.99:4647"}, addrs...) // one hub is gone for good
		w.startLink()
		w.waitUntil(3*time.Second, "connect", w.isConnected)
		for range 2 {
			gone := w.link.Status().Hub
			hubs[gone].stopHub()
			w.journal.appendRows(running(1))
			took := w.waitUntil(10*time.Second, "take over", func() bool { return w.isFullySynced() && w.link.Status().Hub != gone })
			if took > 4*time.Second {
				t.Errorf("another hub took over after %s", took)
			}
		}
		wantRowsOnce(t, w)
		wantAlternating(t, w, 2)
	})
}

func TestRestartWhileCutOffIsNotedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		w.addHub(hubAddr)
		w.startLink()
		w.waitUntil(time.Second, "connect", w.isConnected)
		for range 3 { // agents that start and stop without a link
			w.stop()
			w.path.Cut()
			w.startLink()
			time.Sleep(30 * time.Second)
		}
		w.path.Heal()
		w.waitUntil(time.Minute, "settle", w.isFullySynced)
		wantAlternating(t, w, 1)
		if n := len(w.journal.rowKinds(t)); n != 2 {
			t.Errorf("%d rows, want one loss and one return", n)
		}
	})
}

// An idle link: the cost of a heartbeat in both directions, with IP and UDP headers.
func TestBytesOfAnIdleBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		w.cluster.ttl = time.Minute
		w.addHub(hubAddr)
		for i := range 1000 {
			w.journal.appendRows(noise(i))
		}
		w.startLink()
		w.waitUntil(3*time.Second, "settle", w.isFullySynced)
		time.Sleep(time.Hour)
		before, beats := w.path.Count(), len(w.cluster.takeSnapshot().beats)
		time.Sleep(24 * time.Hour)
		spent := w.path.Count().Sub(before)
		n := len(w.cluster.takeSnapshot().beats) - beats
		each := float64(spent.Bytes()) / float64(n)
		t.Logf("%d beats of 60 s in a day: %.1f bytes each (%.2f packets out, %.2f in), %.1f KB a day",
			n, each, float64(spent.SentPackets)/float64(n), float64(spent.ReceivedPackets)/float64(n), float64(spent.Bytes())/1000)
		if each > 250 {
			t.Errorf("%.1f bytes a beat, at most 250 are allowed", each)
		}
		if n := w.journal.keepCount(); n > 3 {
			t.Errorf("%d writes to the disk for an idle link", n)
		}
	})
}

// TestStatusNamesTheHubsThatAreDialed: the status lists the hubs of the last session and the configured ones, before any answers.
func TestStatusNamesTheHubsThatAreDialed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		w.cfg.Hubs = []string{hubAddr}
		w.journal.mem.Hubs = []string{"10.0.0.7:4647"}
		w.startLink()
		time.Sleep(time.Minute)
		if got := w.link.Status().Hubs; !slices.Equal(got, []string{"10.0.0.7:4647", hubAddr}) {
			t.Errorf("the status names %v", got)
		}
	})
}

// TestStatusNamesTheHubOfTheSession dials a silent hub beside the one that then answers: the status names the latter.
func TestStatusNamesTheHubOfTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		w.addHub(hubAddr)
		const silent = "10.0.0.9:4647" // nobody listens there
		w.cfg.Hubs = []string{hubAddr, silent}
		w.startLink()
		w.waitUntil(time.Minute, "connect", w.isConnected)
		w.path.Cut()
		w.waitUntil(5*time.Minute, "dial the silent hub as well", func() bool { return w.link.Status().Hub == silent })
		w.path.Heal()
		w.waitUntil(time.Minute, "connect again", w.isConnected)
		if got := w.link.Status().Hub; got != hubAddr {
			t.Errorf("the status names %s, and the session is with %s", got, hubAddr)
		}
	})
}

// An edge dials a second hub soon if the first one is silent, and late if the first one has sent
// anything: that hub is only busy.
func TestASecondHubIsDialedBesideASilentOne(t *testing.T) {
	for name, c := range map[string]struct {
		answers bool
		after   time.Duration
	}{"silent": {false, 400 * time.Millisecond}, "busy": {true, 5 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newLinkTest(t)
				w.cfg.Hubs = []string{"10.0.0.1:4647", "10.0.0.2:4647"}
				dialed := make(chan time.Time, len(w.cfg.Hubs))
				for _, addr := range w.cfg.Hubs {
					socket := w.net.Listen(t, addr)
					var reading sync.WaitGroup
					reading.Go(func() {
						b := make([]byte, 2000)
						_, from, err := socket.ReadFrom(b)
						dialed <- time.Now()
						for ; err == nil; _, from, err = socket.ReadFrom(b) {
							if c.answers {
								_, _ = socket.WriteTo([]byte("no packet of QUIC"), from)
							}
						}
					})
					t.Cleanup(func() { socket.Close(); reading.Wait() })
				}
				w.startLink()
				first := <-dialed
				if took := (<-dialed).Sub(first); took < c.after || took > c.after+100*time.Millisecond {
					t.Errorf("the second hub was dialed after %s, want %s", took, c.after)
				}
				w.stop()
			})
		})
	}
}
