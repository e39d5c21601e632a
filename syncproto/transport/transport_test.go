package transport_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/syncproto/transport"
	"skerry/syncproto/transport/transporttest"
)

const (
	alpn        = "skerry-test/1"
	refusedALPN = "skerry-test/2"
)

// testNetwork is a hub that echoes every stream, and an edge behind a path.
type testNetwork struct {
	net  *transporttest.Net
	path *transporttest.Path
	ca   *transporttest.CA
	hub  *transport.Endpoint
	edge *transport.Endpoint
}

var hubAddr = &net.UDPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 4647}

func mustTestNetwork(t *testing.T, cfg transport.Config) *testNetwork {
	t.Helper()
	w := &testNetwork{net: transporttest.New(t, 20*time.Millisecond), ca: transporttest.NewCA(t)}
	w.path = w.net.Path(t, "10.1.0.1", 1)
	server := w.ca.Server(t, "hub:h1")
	cfg.Conn = w.net.Listen(t, hubAddr.String())
	if cfg.TLS == nil {
		cfg.TLS = func(offered []string) (*tls.Config, error) {
			if offered[0] != alpn && offered[0] != refusedALPN {
				return nil, errors.New("not served")
			}
			c := server.Clone()
			c.NextProtos = []string{alpn}
			return c, nil
		}
	}
	w.hub = mustEndpoint(t, cfg)
	w.edge = mustEndpoint(t, transport.Config{Conn: w.path.Socket()})
	return w
}

func mustEndpoint(t *testing.T, cfg transport.Config) *transport.Endpoint {
	t.Helper()
	e, err := transport.New(cfg)
	if err != nil {
		t.Fatalf("make an endpoint: %v", err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close an endpoint: %v", err)
		}
	})
	return e
}

// serveEcho serves connections until the endpoint closes; each accepted one is sent to
// accepted, where that is not nil.
func (w *testNetwork) serveEcho(t *testing.T, accepted chan<- *transport.Conn) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := w.hub.Accept(t.Context())
			if err != nil {
				return
			}
			if accepted != nil {
				accepted <- c
			}
			wg.Go(func() {
				for {
					s, err := c.Accept(t.Context())
					if err != nil {
						return
					}
					wg.Go(func() {
						_, _ = io.Copy(s, s)
						_ = s.Close()
					})
				}
			})
		}
	})
	t.Cleanup(wg.Wait)
}

func (w *testNetwork) mustDial(t *testing.T) *transport.Conn {
	t.Helper()
	c, err := w.edge.Dial(t.Context(), transport.DialConfig{Addr: hubAddr, ALPN: alpn, TLS: w.ca.Client(t, "edge:n1")})
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	return c
}

func mustOpen(t testing.TB, c *transport.Conn) *transport.Stream {
	t.Helper()
	s, err := c.Open(t.Context())
	if err != nil {
		t.Fatalf("open a stream: %v", err)
	}
	return s
}

// mustEcho sends b on s and wants it back.
func mustEcho(t *testing.T, s io.ReadWriter, b []byte) {
	t.Helper()
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := s.Write(b); err != nil {
			t.Errorf("write: %v", err)
		}
	})
	back := make([]byte, len(b))
	if _, err := io.ReadFull(s, back); err != nil {
		t.Fatalf("read: %v", err)
	}
	wg.Wait()
	if !bytes.Equal(back, b) {
		t.Fatalf("%d bytes came back changed", len(b))
	}
}

func TestEchoOverLossAndLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := mustTestNetwork(t, transport.Config{})
		accepted := make(chan *transport.Conn, 1)
		w.serveEcho(t, accepted)
		w.path.Lose(0.1)
		c := w.mustDial(t)
		hub := <-accepted
		if role, name := hub.Peer(); role != "edge" || name != "n1" {
			t.Errorf("the hub sees %s %q, want edge n1", role, name)
		}
		if role, name := c.Peer(); role != "hub" || name != "h1" {
			t.Errorf("the edge sees %s %q, want hub h1", role, name)
		}
		if c.ALPN() != alpn || hub.ALPN() != alpn {
			t.Errorf("ALPN %q and %q, want %q", c.ALPN(), hub.ALPN(), alpn)
		}
		mustEcho(t, mustOpen(t, c), bytes.Repeat([]byte("skerry"), 100_000))
		if s := c.Stats(); s.RTT < 40*time.Millisecond || s.PacketsLost == 0 {
			t.Errorf("stats %+v: want a round trip of 40 ms or more, and losses", s)
		}
	})
}

func TestStreamIsANetConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := mustTestNetwork(t, transport.Config{})
		w.serveEcho(t, nil)
		s := mustOpen(t, w.mustDial(t))
		mustEcho(t, s, []byte("hello"))
		if s.RemoteAddr().String() != hubAddr.String() {
			t.Errorf("remote address %s, want %s", s.RemoteAddr(), hubAddr)
		}

		if err := s.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		_, err := s.Read(make([]byte, 1))
		var timeout net.Error
		if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("read past the deadline: %v, want a timeout", err)
		}
		if err := s.SetReadDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		mustEcho(t, s, []byte("again"))

		if err := s.CloseWrite(); err != nil {
			t.Fatalf("close writing: %v", err)
		}
		if _, err := s.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("read after both sides closed: %v, want EOF", err)
		}
	})
}

func TestCloseDuringWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := mustTestNetwork(t, transport.Config{})
		accepted := make(chan *transport.Conn, 1)
		var wg sync.WaitGroup
		wg.Go(func() { // takes connections, and reads nothing
			c, err := w.hub.Accept(t.Context())
			if err == nil {
				accepted <- c
			}
		})
		s := mustOpen(t, w.mustDial(t))
		wrote := make(chan error, 1)
		wg.Go(func() {
			_, err := s.Write(make([]byte, 8<<20))
			wrote <- err
		})
		<-accepted
		synctest.Wait() // the writer is blocked on the window
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := <-wrote; err == nil {
			t.Error("a write went through that nobody read")
		}
		wg.Wait()
	})
}

// Who talks to a peer that has ended hears what it said last.
func TestTellOneThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := mustTestNetwork(t, transport.Config{})
		var wg sync.WaitGroup
		wg.Go(func() {
			c, err := w.hub.Accept(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			s, err := c.Accept(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := io.WriteString(s, "no such program"); err != nil {
				t.Error(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		s := mustOpen(t, w.mustDial(t))
		defer s.Abort()
		for _, say := range []string{"is there somebody", "who listens"} {
			if n, err := s.Tell([]byte(say)); err != nil || n != len(say) {
				t.Errorf("tell %q: %d bytes, %v", say, n, err)
			}
			time.Sleep(time.Second) // until it says that it reads no more
		}
		if _, err := s.Write([]byte("it listens")); err == nil {
			t.Error("it still reads: nothing is shown")
		}
		if said, err := io.ReadAll(s); err != nil || string(said) != "no such program" {
			t.Errorf("it said %q, %v", said, err)
		}
		wg.Wait()
	})
}

func TestCloseWithTellsThePeer(t *testing.T) {
	long := strings.Repeat("é", 2000)
	for name, tt := range map[string]struct{ said, heard *fleet.Error }{
		"nothing wrong":   {nil, fleet.Errorf(fleet.CodeUnavailable, "the peer closed the connection")},
		"code and texts":  {fleet.Errorf(fleet.CodeCloned, "two of you").WithHint("remove one"), fleet.Errorf(fleet.CodeCloned, "two of you").WithHint("remove one")},
		"several lines":   {fleet.Errorf(fleet.CodeInternal, "a\nb"), fleet.Errorf(fleet.CodeInternal, "a b")},
		"texts too long":  {fleet.Errorf(fleet.CodeInternal, "%s", long), fleet.Errorf(fleet.CodeInternal, "%s", long[:400])},
		"cut in a letter": {fleet.Errorf(fleet.CodeInternal, "x%s", long), fleet.Errorf(fleet.CodeInternal, "x%s", long[:398])},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := mustTestNetwork(t, transport.Config{})
				accepted := make(chan *transport.Conn, 1)
				w.serveEcho(t, accepted)
				c := w.mustDial(t)
				s := mustOpen(t, c)
				mustEcho(t, s, []byte("x"))
				if c.Err() != nil {
					t.Errorf("error %v of a connection that lives", c.Err())
				}
				if err := (<-accepted).CloseWith(tt.said); err != nil {
					t.Fatalf("close: %v", err)
				}
				<-c.Done()
				for what, err := range map[string]error{"connection": c.Err(), "stream": readError(s)} {
					var got *fleet.Error
					if !errors.As(err, &got) || *got != *tt.heard {
						t.Errorf("%s ended with %#v, want %#v", what, err, tt.heard)
					}
				}
			})
		})
	}
}

func readError(r io.Reader) error {
	_, err := r.Read(make([]byte, 1))
	return err
}

func TestIdleTimeoutIsTheDialersChoice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := mustTestNetwork(t, transport.Config{})
		accepted := make(chan *transport.Conn, 1)
		w.serveEcho(t, accepted)
		for _, idle := range []time.Duration{20 * time.Second, 45 * time.Minute} {
			start := time.Now()
			c, err := w.edge.Dial(t.Context(), transport.DialConfig{Addr: hubAddr, ALPN: alpn, TLS: w.ca.Client(t, "edge:n1"), IdleTimeout: idle})
			if err != nil {
				t.Fatalf("dial: %v", err)
			}
			hub := <-accepted
			sent := w.path.Count()
			<-hub.Done()
			if took := time.Since(start); took < idle || took > idle+2*time.Second {
				t.Errorf("the hub gave up after %s, want %s", took, idle)
			}
			if code := fleet.CodeOf(hub.Err()); code != fleet.CodeTimeout {
				t.Errorf("the hub's side ended with %v, want a timeout", hub.Err())
			}
			if n := w.path.Count().Sub(sent).SentPackets; n > 3 {
				t.Errorf("%d packets were sent on an idle connection", n)
			}
			<-c.Done()
		}
	})
}

func TestDialFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := mustTestNetwork(t, transport.Config{})
		w.serveEcho(t, nil)
		other := transporttest.NewCA(t)
		client := w.ca.Client(t, "edge:n1")
		tests := map[string]struct {
			cfg  transport.DialConfig
			code fleet.Code
		}{
			"nobody there":       {transport.DialConfig{Addr: &net.UDPAddr{IP: net.IPv4(10, 0, 0, 9), Port: 1}, ALPN: alpn, TLS: client, HandshakeTimeout: 3 * time.Second}, fleet.CodeTimeout},
			"another cluster":    {transport.DialConfig{Addr: hubAddr, ALPN: alpn, TLS: other.Client(t, "edge:n1")}, fleet.CodeForbidden},
			"no such protocol":   {transport.DialConfig{Addr: hubAddr, ALPN: refusedALPN, TLS: client}, fleet.CodeVersion},
			"not served":         {transport.DialConfig{Addr: hubAddr, ALPN: "skerry-test/3", TLS: client}, fleet.CodeUnavailable},
			"nothing to dial to": {transport.DialConfig{}, fleet.CodeInternal},
		}
		for name, tt := range tests {
			start := time.Now()
			_, err := w.edge.Dial(t.Context(), tt.cfg)
			if code := fleet.CodeOf(err); code != tt.code {
				t.Errorf("%s: %v (code %q), want code %q", name, err, code, tt.code)
			}
			if took := time.Since(start); took > 4*time.Second {
				t.Errorf("%s: took %s", name, took)
			}
		}
		// The hub does not accept the edge's certificate: TLS 1.3 tells a client
		// after its own handshake is done.
		foreign := other.Client(t, "edge:n1")
		foreign.RootCAs = client.RootCAs
		c, err := w.edge.Dial(t.Context(), transport.DialConfig{Addr: hubAddr, ALPN: alpn, TLS: foreign})
		if err == nil {
			<-c.Done()
			err = c.Err()
		}
		if code := fleet.CodeOf(err); code != fleet.CodeForbidden {
			t.Errorf("a foreign certificate: %v, want forbidden", err)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w.path.Cut()
		if _, err := w.edge.Dial(ctx, transport.DialConfig{Addr: hubAddr, ALPN: alpn, TLS: client}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("dial past its context: %v, want the context's error", err)
		}
	})
}

func TestVerifiersErrorIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := mustTestNetwork(t, transport.Config{})
		w.serveEcho(t, nil)
		client := w.ca.Client(t, "edge:n1")
		client.VerifyConnection = func(tls.ConnectionState) error { return fleet.Errorf(fleet.CodeCAMismatch, "another CA") }
		_, err := w.edge.Dial(t.Context(), transport.DialConfig{Addr: hubAddr, ALPN: alpn, TLS: client})
		if code := fleet.CodeOf(err); code != fleet.CodeCAMismatch {
			t.Errorf("dial: %v (code %q), want %q", err, code, fleet.CodeCAMismatch)
		}
	})
}

func TestConnectionFollowsARebind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := mustTestNetwork(t, transport.Config{})
		accepted := make(chan *transport.Conn, 1)
		w.serveEcho(t, accepted)
		c := w.mustDial(t)
		hub := <-accepted
		s := mustOpen(t, c)
		mustEcho(t, s, []byte("before"))
		for range 8 {
			before := hub.RemoteAddr().String()
			time.Sleep(time.Minute / 4)
			w.path.Rebind()
			start := time.Now()
			mustEcho(t, s, []byte("after"))
			if took := time.Since(start); took > 2*time.Second {
				t.Errorf("%s until the hub followed", took)
			}
			mustEcho(t, s, []byte("settled"))
			if now := hub.RemoteAddr().String(); now == before {
				t.Errorf("the hub still sees %s", now)
			}
		}
	})
}

func TestRestartedPeerIsNoticedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := [32]byte{1, 2, 3}
		w := mustTestNetwork(t, transport.Config{ResetKey: key})
		accepted := make(chan *transport.Conn, 1)
		w.serveEcho(t, accepted)
		c := w.mustDial(t)
		s := mustOpen(t, c)
		mustEcho(t, s, []byte("x"))
		<-accepted
		w.path.Cut() // the hub dies without a word
		if err := w.hub.Close(); err != nil {
			t.Fatal(err)
		}
		server := w.ca.Server(t, "hub:h1")
		mustEndpoint(t, transport.Config{
			Conn: w.net.Listen(t, hubAddr.String()), ResetKey: key,
			TLS: func([]string) (*tls.Config, error) { return server, nil },
		})
		w.path.Heal()
		start := time.Now()
		if _, err := s.Write(make([]byte, 100)); err != nil {
			t.Fatalf("write: %v", err)
		}
		<-c.Done()
		if took := time.Since(start); took > time.Second {
			t.Errorf("noticed after %s", took)
		}
		if code := fleet.CodeOf(c.Err()); code != fleet.CodeUnavailable {
			t.Errorf("ended with %v, want unavailable", c.Err())
		}
	})
}

func TestEndpointCloseEndsConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := mustTestNetwork(t, transport.Config{})
		accepted := make(chan *transport.Conn, 1)
		w.serveEcho(t, accepted)
		c := w.mustDial(t)
		<-accepted
		if err := w.hub.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
		start := time.Now()
		<-c.Done()
		if took := time.Since(start); took > time.Second {
			t.Errorf("the peer noticed after %s", took)
		}
		if _, err := w.hub.Accept(t.Context()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accept after close: %v, want net.ErrClosed", err)
		}
		if _, err := w.edge.Accept(t.Context()); err == nil {
			t.Error("an endpoint that only dials accepts")
		}
	})
}
