package link_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/edge/link"
	"skerry/fleet"
	"skerry/syncproto"
	"skerry/syncproto/transport"
)

func TestConnectAndSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		w.addHub(hubAddr)
		w.journal.appendRows(running(1), noise(2))
		w.startLink()
		w.waitUntil(time.Second, "connect", w.isFullySynced)

		c := w.cluster.takeSnapshot()
		h := c.hellos[0]
		if h.Session != 1 || h.First != 1 || h.Last != 2 || h.Node != nodeID || !bytes.Equal(h.ChainHash, w.journal.Head().ChainHash) {
			t.Errorf("hello %+v", h)
		}
		if c.beats[0].Node == nil || c.beats[0].Node.Name != "n1" {
			t.Errorf("first beat %+v: no description", c.beats[0])
		}
		if got := []string{c.rows[0].Message, c.rows[1].Message}; !slices.Equal(got, []string{"row 1", "row 2"}) {
			t.Errorf("rows %q", got)
		}
		s := w.link.Status()
		if s.Hub != hubAddr || s.Epoch != 1 || s.NodeStatus != fleet.NodeReady || s.Unacknowledged != 0 || s.TTL != 10*time.Second || s.RTT < 40*time.Millisecond {
			t.Errorf("status %+v", s)
		}
	})
}

// E2: an urgent row is sent within 200 ms, others within a second or with an urgent one.
func TestUpdatesLeaveAtTheirTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		w.addHub(hubAddr)
		w.startLink()
		w.waitUntil(time.Second, "connect", w.isConnected)
		time.Sleep(5 * time.Second)
		send := func(ts ...fleet.Transition) time.Duration {
			w.journal.appendRows(ts...)
			return w.waitUntil(3*time.Second, "send", w.isFullySynced)
		}
		const roundTrip = 60 * time.Millisecond
		if took := send(running(1)); took > 200*time.Millisecond+roundTrip {
			t.Errorf("an urgent row took %s", took)
		}
		for range 20 {
			if took := send(noise(1)); took > time.Second+roundTrip {
				t.Errorf("a normal row took %s", took)
			}
			time.Sleep(130 * time.Millisecond)
		}
		before := len(w.cluster.takeSnapshot().batches)
		for range 9 { // within one tick, all together
			w.journal.appendRows(noise(1))
			time.Sleep(10 * time.Millisecond)
		}
		if took := send(running(2)); took > 200*time.Millisecond+roundTrip {
			t.Errorf("a normal row with an urgent one took %s", took)
		}
		if n := len(w.cluster.takeSnapshot().batches) - before; n > 2 {
			t.Errorf("ten rows travelled in %d batches", n)
		}
	})
}

// TestAnswersSendNothingEarly records a row that is not urgent while the hub answers an urgent one: the new row waits for
// a tick, and does not leave with the answer.
func TestAnswersSendNothingEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		w.addHub(hubAddr)
		w.startLink()
		w.waitUntil(time.Second, "connect", w.isConnected)
		time.Sleep(5 * time.Second)
		batches := func() int { return len(w.cluster.takeSnapshot().batches) }
		const rounds = 20
		early := 0
		for i := range rounds {
			before := batches()
			w.journal.appendRows(running(i))
			w.waitUntil(time.Second, "arrive", func() bool { return batches() > before })
			before = batches()
			w.journal.appendRows(noise(i))
			time.Sleep(100 * time.Millisecond) // two round trips
			early += batches() - before
			w.waitUntil(3*time.Second, "send", w.isFullySynced)
			time.Sleep(130 * time.Millisecond)
		}
		if early > rounds/2 { // some meet the tick of a second
			t.Errorf("%d of %d rows left with the answer to another one", early, rounds)
		}
	})
}

func TestReplayInOrderAfterACut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		w.addHub(hubAddr)
		w.startLink()
		w.waitUntil(time.Second, "connect", w.isConnected)
		w.path.Cut()
		for i := range 5000 {
			w.journal.appendRows(noise(i))
		}
		time.Sleep(time.Minute)
		if w.isConnected() {
			t.Fatal("the loss was not noticed")
		}
		if s := w.link.Status(); s.Unacknowledged < 5000 || s.Away < time.Minute || s.LastError == "" {
			t.Errorf("status while cut off: %+v", s)
		}
		w.path.Heal()
		w.waitUntil(link.DefaultBackoffCap+2*time.Second, "replay", w.isFullySynced)
		wantRowsOnce(t, w)
		for _, r := range w.cluster.takeSnapshot().rows {
			if _, away, ok := strings.Cut(r.Message, "away for "); ok {
				if d, err := time.ParseDuration(away); err != nil || d < time.Minute {
					t.Errorf("the return of the link after a minute: %q", r.Message)
				}
			}
		}
		for _, b := range w.cluster.takeSnapshot().batches {
			size := 0
			for _, r := range b.Rows {
				size += len(r)
			}
			if len(b.Rows) > syncproto.MaxUpdatesRows || size > syncproto.MaxUpdatesBytes {
				t.Errorf("a batch of %d rows, %d bytes", len(b.Rows), size)
			}
		}
		wantAlternating(t, w, 1)
	})
}

// wantRowsOnce checks that the cluster has every row of the journal, once and in order.
func wantRowsOnce(t *testing.T, w *linkTest) {
	t.Helper()
	rows := w.cluster.takeSnapshot().rows
	for i, r := range rows {
		if r.Seq != fleet.Seq(i+1) {
			t.Fatalf("row %d of the cluster has number %d", i+1, r.Seq)
		}
	}
	if n := len(rows); fleet.Seq(n) != w.journal.Head().Last {
		t.Errorf("the cluster has %d rows, the journal %d", n, w.journal.Head().Last)
	}
}

// wantAlternating checks that losses and returns of the link are recorded in turn, beginning with a
// loss, at least n of each.
func wantAlternating(t *testing.T, w *linkTest, n int) {
	t.Helper()
	var seen []fleet.TransitionKind
	for _, k := range w.journal.rowKinds(t) {
		if k == fleet.TransitionDisconnect || k == fleet.TransitionReconnect {
			seen = append(seen, k)
		}
	}
	for i, k := range seen {
		if want := []fleet.TransitionKind{fleet.TransitionDisconnect, fleet.TransitionReconnect}[i%2]; k != want {
			t.Fatalf("losses and returns do not alternate: %v", seen)
		}
	}
	if len(seen) < 2*n || len(seen)%2 != 0 {
		t.Errorf("losses and returns: %v, want at least %d of each", seen, n)
	}
}

// E4: rows that were not applied or got lost are sent again, in order and once.
func TestResendAfterLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		w.addHub(hubAddr)
		w.cluster.upTo = 7 // the cluster applies fewer rows than it receives
		w.path.Lose(0.2)
		w.startLink()
		for i := range 100 {
			w.journal.appendRows(running(i))
			time.Sleep(50 * time.Millisecond)
			switch i % 30 {
			case 10:
				w.path.Cut()
			case 20:
				w.path.Heal()
			}
		}
		w.path.Heal()
		w.waitUntil(5*time.Minute, "settle", w.isFullySynced)
		wantRowsOnce(t, w)
	})
}

func TestDesiredIsDeliveredAndHoldingsListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		h := w.addHub(hubAddr)
		w.site.holdings = append(make([]fleet.AllocID, syncproto.MaxHoldings), "forgotten")
		w.startLink()
		w.waitUntil(time.Second, "connect", w.isConnected)
		h.runInSession(func(p *syncproto.HubSession) []syncproto.Output {
			return slices.Concat(p.Desire(syncproto.Desired{Index: 120, Full: true, Cluster: "cluster-1"}), p.Desire(syncproto.Desired{Index: 121, From: 120, Cluster: "cluster-1"}))
		})
		w.waitUntil(time.Second, "receive", func() bool {
			return len(w.cluster.takeSnapshot().received) == 2
		})
		w.waitUntil(time.Second, "list holdings", func() bool { return slices.Contains(w.cluster.takeSnapshot().holdings, "forgotten") })
		got := w.cluster.takeSnapshot()
		if !slices.Equal(got.received, []fleet.Index{120, 121}) {
			t.Errorf("received %v", got.received)
		}
		if !slices.Equal(got.moreHoldings[:2], []bool{true, false}) {
			t.Errorf("more holdings follow: %v", got.moreHoldings)
		}
	})
}

func TestDescriptionTravelsOnceUnlessItChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		h := w.addHub(hubAddr)
		w.startLink()
		w.waitUntil(time.Second, "connect", w.isConnected)
		described := func() (n int) {
			for _, b := range w.cluster.takeSnapshot().beats {
				if b.Node != nil {
					n++
				}
			}
			return n
		}
		time.Sleep(time.Minute)
		if n := described(); n != 1 {
			t.Errorf("described %d times in an idle minute, want once", n)
		}
		w.site.setDescription("h2")
		w.link.RequestHeartbeat()
		w.waitUntil(time.Second, "the new description", func() bool { return described() == 2 })
		w.cluster.withLock(func() { w.cluster.needNode = true })
		w.waitUntil(25*time.Second, "the description asked for", func() bool { return described() == 3 })
		h.runInSession(func(p *syncproto.HubSession) []syncproto.Output {
			return p.Resync(syncproto.Resync{Reason: "half-way"})
		})
		w.waitUntil(time.Second, "the description at a resync", func() bool { return described() == 4 })
		w.stop()
		w.startLink() // a restarted agent remembers
		w.waitUntil(2*time.Second, "connect", w.isConnected)
		if n := described(); n != 4 {
			t.Errorf("described %d times, want 4: the cluster has it", n)
		}
	})
}

func TestNamesAreResolvedAtEveryAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		w.addHub(hubAddr)
		w.cfg.Hubs = []string{"hub.example:4647"}
		tries := 0
		w.cfg.Resolve = func(context.Context, string) ([]net.Addr, error) {
			if tries++; tries < 5 {
				return nil, &net.DNSError{Err: "no such host", Name: "hub.example", IsNotFound: true}
			}
			return resolve(hubAddr)
		}
		w.startLink()
		w.waitUntil(time.Second, "say so", func() bool {
			return strings.Contains(w.link.Status().LastError, "hub.example:4647: resolve: lookup hub.example: no such host")
		})
		w.waitUntil(time.Minute, "connect", w.isConnected)
	})
}

func TestHubListIsLearnedAndKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const second, third = "10.0.0.2:4647", "10.0.0.3:4647"
		w := newLinkTest(t)
		first := w.addHub(hubAddr)
		w.cluster.hubs = []string{hubAddr, second}
		w.startLink()
		w.waitUntil(time.Second, "connect", w.isConnected)
		if got := w.journal.Link().Hubs; !slices.Equal(got, w.cluster.hubs) {
			t.Errorf("after the Welcome %v are remembered", got)
		}
		w.cluster.withLock(func() {
			w.cluster.newHubs = []string{second, third}
			w.cluster.hubs = w.cluster.newHubs
		})
		w.waitUntil(11*time.Second, "learn", func() bool { return slices.Contains(w.journal.Link().Hubs, third) })
		time.Sleep(25 * time.Second) // acknowledgements without a hub list
		if got := w.link.Status().Hubs; !slices.Equal(got, []string{second, third, hubAddr}) {
			t.Errorf("hubs tried: %v", got)
		}
		w.addHub(third)
		first.stopHub() // the only configured hub
		w.waitUntil(10*time.Second, "connect to a hub that was learned", func() bool { return w.isConnected() && w.link.Status().Hub == third })
		w.stop()
		w.startLink() // a restarted agent knows it too
		w.waitUntil(10*time.Second, "connect again", w.isConnected)
	})
}

func TestRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		h := w.addHub(hubAddr)
		w.startLink()
		w.waitUntil(time.Second, "connect", w.isConnected)
		ask := func(req syncproto.Request) (*transport.Stream, *syncproto.Reader, syncproto.Reply) {
			s, err := h.newestConn().Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := syncproto.NewWriter(s).Write(req); err != nil {
				t.Fatal(err)
			}
			r := syncproto.NewReader(s)
			m, err := r.Read()
			if err != nil {
				t.Fatalf("read the reply: %v", err)
			}
			return s, r, m.(syncproto.Reply)
		}
		s, r, reply := ask(syncproto.Request{Kind: syncproto.RequestLogs, Alloc: "a1"})
		if reply.Error != nil {
			t.Fatalf("logs: %v", reply.Error)
		}
		if err := s.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r.Rest())
		if err != nil || len(b) != 200_000 {
			t.Errorf("%d bytes of logs, %v", len(b), err)
		}
		if _, _, reply := ask(syncproto.Request{Kind: syncproto.RequestLogs, Alloc: "a2"}); reply.Error == nil || reply.Error.Code != fleet.CodeNotFound {
			t.Errorf("logs of an unknown allocation: %v", reply.Error)
		}
		if _, _, reply := ask(syncproto.Request{Kind: "dance"}); reply.Error == nil || reply.Error.Code != fleet.CodeUnsupported {
			t.Errorf("an unknown request: %v", reply.Error)
		}
		for range 40 { // more than are served at a time: each ends when the hub closes it
			s, _, reply := ask(syncproto.Request{Kind: syncproto.RequestLogs, Alloc: "a1", Follow: true})
			if reply.Error != nil {
				t.Fatalf("follow: %v", reply.Error)
			}
			s.Abort()
			time.Sleep(200 * time.Millisecond)
		}
		exec := syncproto.Request{Kind: syncproto.RequestExec, Alloc: "a1", Command: []string{"echo"}}
		s, r, reply = ask(exec)
		in := syncproto.NewWriter(s)
		for _, say := range []string{"a", "end"} {
			if err := in.Write(syncproto.ExecInput{Stdin: []byte(say)}); err != nil {
				t.Fatal(err)
			}
		}
		for _, want := range []syncproto.ExecOutput{{Stdout: []byte("echo: a")}, {Exited: true, Code: 7}} {
			if m, err := r.Read(); err != nil || !reflect.DeepEqual(m, want) {
				t.Errorf("a command said %+v, %v; want %+v", m, err, want)
			}
		}
		if _, err := r.Read(); err != io.EOF || reply.Error != nil {
			t.Errorf("behind its end there is %v; its reply was %v", err, reply.Error)
		}
		for range 20 {
			s, _, _ := ask(exec)
			s.Abort()
			time.Sleep(200 * time.Millisecond)
		}
		if n := w.site.hangUps(); n != 20 {
			t.Errorf("%d commands of 20 know that nobody is there any more", n)
		}
		for i := range 20 { // followers do not block other requests
			req := exec
			switch i % 3 {
			case 0:
				req = syncproto.Request{Kind: syncproto.RequestLogs, Alloc: "a1", Follow: true}
			case 1:
				req = syncproto.Request{Kind: syncproto.RequestMonitor}
			}
			_, _, reply := ask(req)
			if refused := reply.Error != nil && reply.Error.Code == fleet.CodeUnavailable; refused != (i >= 16) {
				t.Errorf("follower %d: %v", i, reply.Error)
			}
		}
		if _, _, reply := ask(syncproto.Request{Kind: syncproto.RequestLogs, Alloc: "a1"}); reply.Error != nil {
			t.Errorf("one who follows nothing: %v", reply.Error)
		}
		if !w.isConnected() || len(w.cluster.takeSnapshot().hellos) != 1 {
			t.Error("requests disturbed the session")
		}
	})
}

// TestStreamsBeyondTheBoundAreEnded opens more streams than an edge serves, and sends a part of a request on each: the
// edge ends the last one at once, and still waits for the rest of the others.
func TestStreamsBeyondTheBoundAreEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		h := w.addHub(hubAddr)
		w.startLink()
		w.waitUntil(time.Second, "connect", w.isConnected)
		frame, err := syncproto.AppendFrame(nil, syncproto.Request{Kind: syncproto.RequestMonitor})
		if err != nil {
			t.Fatal(err)
		}
		const served = 32
		for i := range served + 1 {
			s, err := h.newestConn().Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Write(frame[:1]); err != nil {
				t.Fatal(err)
			}
			if err := s.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			_, err = s.Read(make([]byte, 1))
			if waits := errors.Is(err, os.ErrDeadlineExceeded); waits != (i < served) {
				t.Errorf("stream %d: %v", i+1, err)
			}
		}
	})
}

// A command that cannot be ended, for example because its disk hangs, does not delay the next session.
func TestTheLinkReturnsWhileACommandHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		h := w.addHub(hubAddr)
		w.site.hang = make(chan struct{})
		w.startLink()
		w.waitUntil(time.Second, "connect", w.isConnected)
		stream, err := h.newestConn().Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := syncproto.NewWriter(stream).Write(syncproto.Request{Kind: syncproto.RequestExec, Alloc: "a1", Command: []string{"hang"}}); err != nil {
			t.Fatal(err)
		}
		if _, err := syncproto.NewReader(stream).Read(); err != nil {
			t.Fatal(err)
		}
		if err := h.newestConn().CloseWith(fleet.Errorf(fleet.CodeUnavailable, "going away")); err != nil {
			t.Fatal(err)
		}
		w.waitUntil(time.Minute, "connect again", func() bool { return len(w.cluster.takeSnapshot().hellos) == 2 && w.isConnected() })
		close(w.site.hang)
	})
}
