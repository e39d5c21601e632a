package link

import (
	"crypto/tls"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/syncproto"
	"skerry/syncproto/transport"
	"skerry/syncproto/transport/transporttest"
)

// In the package itself: arithmetic rules that are not exported, and what only a race between dials reaches.

func TestPauseIsExponentialWithFullJitter(t *testing.T) {
	const limit, draws = time.Minute, 20_000
	bounds := []time.Duration{1 * time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, limit, limit, limit}
	var most, least, sum [9]time.Duration
	for range draws {
		p := newReconnectBackoff(limit)
		for i := range bounds {
			d := p.nextDelay()
			most[i], sum[i] = max(most[i], d), sum[i]+d
			if least[i] == 0 || d < least[i] {
				least[i] = d
			}
		}
	}
	for i, bound := range bounds {
		mean := sum[i] / draws
		if most[i] > bound || most[i] < bound*98/100 || least[i] > bound/50 || mean < bound*48/100 || mean > bound*52/100 {
			t.Errorf("pause %d: %s to %s, mean %s; want all of 0 to %s", i, least[i], most[i], mean, bound)
		}
	}
}

func TestPauseAndRoundTogetherKeepTheCap(t *testing.T) {
	p := newReconnectBackoff(time.Minute)
	for range 1000 {
		for _, took := range []time.Duration{0, shortHandshake, longHandshake} {
			if d := p.delayAfterRound(took); d+took > time.Minute {
				t.Fatalf("%s and a round of %s: more than the cap", d, took)
			}
		}
	}
}

func TestPauseAfterASession(t *testing.T) {
	refused := func(code fleet.Code, retry time.Duration, first bool) sessionEnd {
		return sessionEnd{err: &fleet.Error{Code: code}, retryAfter: retry, firstTry: first}
	}
	tests := []struct {
		name        string
		e           sessionEnd
		least, most time.Duration
	}{
		{"lost", refused(fleet.CodeTimeout, 0, true), 0, time.Second},
		{"not before", refused(fleet.CodeUnavailable, 20*time.Second, true), 20 * time.Second, 21 * time.Second},
		{"soon, but not together", refused(fleet.CodeUnavailable, 100*time.Millisecond, true), 100 * time.Millisecond, 200 * time.Millisecond},
		{"cloned", refused(fleet.CodeCloned, 0, true), 30 * time.Second, time.Minute},
		{"fork", refused(fleet.CodeFork, 5*time.Minute, true), 5 * time.Minute, 5 * time.Minute},
		{"stale", refused(fleet.CodeStaleSession, 0, true), 0, 0},
		{"stale again", refused(fleet.CodeStaleSession, 0, false), 0, time.Second},
	}
	for _, tt := range tests {
		for range 1000 {
			if d := newReconnectBackoff(time.Minute).delayAfterSession(tt.e); d < tt.least || d > tt.most {
				t.Errorf("%s: %s, want %s to %s", tt.name, d, tt.least, tt.most)
				break
			}
		}
	}
}

func TestNextTick(t *testing.T) {
	const ms = time.Millisecond
	tests := []struct {
		now    time.Duration
		urgent bool
		want   time.Duration
	}{
		{0, true, 200 * ms}, {199 * ms, true, 200 * ms}, {200 * ms, true, 400 * ms}, {1234 * ms, true, 1400 * ms},
		{0, false, 1000 * ms}, {999 * ms, false, 1000 * ms}, {1000 * ms, false, 2000 * ms}, {1234 * ms, false, 2000 * ms},
	}
	for _, tt := range tests {
		if got := nextTick(tt.now, tt.urgent); got != tt.want {
			t.Errorf("at %s, urgent %v: %s, want %s", tt.now, tt.urgent, got, tt.want)
		}
	}
}

func TestBeatsComeALittleBeforeTheTTL(t *testing.T) {
	for _, ttl := range []time.Duration{10 * time.Second, 15 * time.Minute} {
		for range 1000 {
			if d := heartbeatDelay(ttl, 0); d > ttl || d < ttl*95/100 {
				t.Fatalf("TTL %s: a beat after %s", ttl, d)
			}
			if d := heartbeatDelay(ttl, time.Hour); d > ttl || d < ttl*95/100 {
				t.Fatalf("TTL %s, at most an hour of silence: a beat after %s", ttl, d)
			}
			if d := heartbeatDelay(ttl, 3*time.Second); d > 3*time.Second || d < 2850*time.Millisecond {
				t.Fatalf("TTL %s, at most 3 s of silence: a beat after %s", ttl, d)
			}
		}
	}
}

func TestHandshakeTimeouts(t *testing.T) {
	four := []time.Duration{shortHandshake, shortHandshake, shortHandshake, longHandshake}
	for n, want := range slices.Repeat(four, 3) {
		if got := handshakeTimeout(n); got != want {
			t.Errorf("round %d: %s, want %s", n, got, want)
		}
	}
}

func TestFewerHubsAreDialedAfterALongTime(t *testing.T) {
	for _, tt := range []struct{ hubs, round, want int }{{5, 0, 5}, {5, 9, 5}, {5, 10, 2}, {1, 500, 1}, {0, 500, 0}} {
		if got := hubsPerRound(tt.hubs, tt.round); got != tt.want {
			t.Errorf("round %d of %d hubs: %d, want %d", tt.round, tt.hubs, got, tt.want)
		}
	}
}

func TestDoubtNeedsSeveralRoundTrips(t *testing.T) {
	for rtt, want := range map[time.Duration]time.Duration{0: minSilenceCheck, 40 * time.Millisecond: minSilenceCheck, 700 * time.Millisecond: 2800 * time.Millisecond} {
		if got := silenceCheckDelay(rtt); got != want {
			t.Errorf("round trip %s: doubt after %s, want %s", rtt, got, want)
		}
	}
}

func TestOrderPrefersTheLastGoodHub(t *testing.T) {
	reverse := func(n int, swap func(i, j int)) {
		for i := range n / 2 {
			swap(i, n-1-i)
		}
	}
	hubs := []string{"a", "b", "c"}
	for _, c := range []struct {
		last, turned string
		want         []string
	}{
		{"", "", []string{"c", "b", "a"}},
		{"c", "", []string{"c", "b", "a"}},
		{"b", "", []string{"b", "c", "a"}},
		{"a", "", []string{"a", "c", "b"}},
		{"x", "", []string{"c", "b", "a"}},
		{"b", "b", []string{"c", "a", "b"}},
		{"b", "c", []string{"b", "a", "c"}},
		{"", "x", []string{"c", "b", "a"}},
	} {
		if got := dialOrder(hubs, c.last, c.turned, reverse); !slices.Equal(got, c.want) {
			t.Errorf("last %q, turned away by %q: %v, want %v", c.last, c.turned, got, c.want)
		}
	}
	if !slices.Equal(hubs, []string{"a", "b", "c"}) {
		t.Error("the list itself was changed")
	}
}

func TestKnownHubs(t *testing.T) {
	if got := knownHubs([]string{"b", "", "c"}, []string{"a", "b"}); !slices.Equal(got, []string{"b", "c", "a"}) {
		t.Errorf("got %v", got)
	}
	if got := knownHubs(nil, slices.Repeat([]string{"a"}, 100)); len(got) != 1 {
		t.Errorf("got %v", got)
	}
}

// A busy hub is tried again soon, by many edges at different times, and by each at most every few seconds.
func TestPauseAfterABusyHub(t *testing.T) {
	p := newReconnectBackoff(time.Minute)
	var waited time.Duration
	for i := range 30 {
		d := p.delayAfterBusy()
		waited += d
		if d < BusyDelayMin/2 || d > BusyDelayMax || i < 5 && d > 1500*time.Millisecond {
			t.Errorf("pause %d: %s", i, d)
		}
	}
	if p.isHubOverloaded() {
		t.Error("a hub is believed to be loaded for ever")
	}
	if d := p.nextDelay(); d > firstDelay {
		t.Errorf("the pause after a failure is %s: it does not grow for a hub that is busy", d)
	}
	p.resetDelays()
	if d := p.delayAfterBusy(); d > BusyDelayMin || !p.isHubOverloaded() {
		t.Errorf("%s after a connection that was made", d)
	}
}

func TestHeadStart(t *testing.T) {
	for answer, want := range map[time.Duration]time.Duration{
		0:                       400 * time.Millisecond,
		20 * time.Millisecond:   400 * time.Millisecond,
		200 * time.Millisecond:  400 * time.Millisecond,
		800 * time.Millisecond:  1600 * time.Millisecond,
		2500 * time.Millisecond: 5 * time.Second,
		9 * time.Second:         5 * time.Second,
	} {
		if got := headStart(answer); got != want {
			t.Errorf("after an answer within %s the head start is %s, want %s", answer, got, want)
		}
	}
}

// TestLaterConnectionsAreClosed: the connection of a dial that is done after another one is closed, and counted.
func TestLaterConnectionsAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, ca := transporttest.New(t, time.Millisecond), transporttest.NewCA(t)
		server := ca.Server(t, "hub:h")
		hub, err := transport.New(transport.Config{Conn: n.Listen(t, "10.0.0.1:4647"), TLS: func([]string) (*tls.Config, error) { return server, nil }})
		if err != nil {
			t.Fatal(err)
		}
		edge, err := transport.New(transport.Config{Conn: n.Path(t, "10.1.0.1", 7).Socket()})
		if err != nil {
			t.Fatal(err)
		}
		conn, err := edge.Dial(t.Context(), transport.DialConfig{Addr: hub.Addr(), ALPN: syncproto.ALPNEdge, TLS: ca.Client(t, "edge:e")})
		if err != nil {
			t.Fatal(err)
		}
		events := make(chan dialEvent, 3)
		events <- dialEvent{heard: true}
		events <- dialEvent{dialResult: dialResult{hub: "h", err: errors.New("no answer")}}
		events <- dialEvent{dialResult: dialResult{hub: "h", conn: conn}}
		close(events)
		l := &Link{}
		l.closeConnections(events)
		select {
		case <-conn.Done():
		default:
			t.Error("the connection is open")
		}
		if got := l.tracker.closedTraffic; got.sent == 0 {
			t.Errorf("its traffic is not counted: %+v", got)
		}
		if err := errors.Join(edge.Close(), hub.Close()); err != nil {
			t.Error(err)
		}
	})
}
