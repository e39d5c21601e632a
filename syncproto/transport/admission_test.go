package transport_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/syncproto/transport"
	"skerry/syncproto/transport/transporttest"
)

// onward lets packets out, and none in: what it dials stays in the making.
type onward struct {
	net.PacketConn
	open atomic.Bool
}

func (o *onward) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		n, from, err := o.PacketConn.ReadFrom(b)
		if err != nil || o.open.Load() {
			return n, from, err
		}
	}
}

// A hub that has enough connections in the making refuses more, at once, and takes
// them again when there are fewer.
func TestMoreHandshakesThanTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var exempt atomic.Bool
		w := mustTestNetwork(t, transport.Config{MaxHandshakes: 2, Exempt: func(net.Addr) bool { return exempt.Load() }})
		w.serveEcho(t, nil)
		dial := func(e *transport.Endpoint) error {
			_, err := e.Dial(t.Context(), transport.DialConfig{Addr: hubAddr, ALPN: alpn, TLS: w.ca.Client(t, "edge:n1"), HandshakeTimeout: 5 * time.Second})
			return err
		}
		// The second one has to prove its address before it counts: it hears that much.
		failed := make(chan error, 2)
		for i, hears := range []time.Duration{0, 60 * time.Millisecond} {
			deaf := &onward{PacketConn: w.net.Path(t, fmt.Sprintf("10.2.0.%d", i+1), 1).Socket()}
			deaf.open.Store(true)
			time.AfterFunc(hears, func() { deaf.open.Store(false) })
			e := mustEndpoint(t, transport.Config{Conn: deaf})
			go func() { failed <- dial(e) }()
			time.Sleep(30 * time.Millisecond)
		}
		time.Sleep(200 * time.Millisecond)
		start := time.Now()
		if err := dial(w.edge); fleet.CodeOf(err) != fleet.CodeUnavailable {
			t.Errorf("dial a hub that is busy: %v, want unavailable", err)
		}
		if took := time.Since(start); took > 200*time.Millisecond {
			t.Errorf("refused after %s, want at once", took)
		}
		exempt.Store(true)
		if err := dial(w.edge); err != nil {
			t.Errorf("dial as one that is not counted: %v", err)
		}
		exempt.Store(false)
		for range 2 {
			if err := <-failed; fleet.CodeOf(err) != fleet.CodeTimeout {
				t.Errorf("dial without hearing anything: %v, want timeout", err)
			}
		}
		time.Sleep(20 * time.Second) // the hub has given them up, too
		for range 10 {
			if err := dial(w.edge); err != nil { // those that are made do not count
				t.Errorf("dial a hub that is free again: %v", err)
			}
		}
	})
}

// beginMuteHandshake begins a handshake from a socket, proves its address where it is asked to, and is
// never heard again, though it goes on asking.
func (w *testNetwork) beginMuteHandshake(t *testing.T, socket net.PacketConn) {
	w.beginHandshake(t, socket, time.Minute)
}

// beginAbandonedHandshake is mute, and gives the dial up before its first packet is due again.
func (w *testNetwork) beginAbandonedHandshake(t *testing.T, socket net.PacketConn) {
	w.beginHandshake(t, socket, 150*time.Millisecond)
}

func (w *testNetwork) beginHandshake(t *testing.T, socket net.PacketConn, limit time.Duration) {
	deaf := &onward{PacketConn: socket}
	deaf.open.Store(true)
	time.AfterFunc(60*time.Millisecond, func() { deaf.open.Store(false) })
	e := mustEndpoint(t, transport.Config{Conn: deaf})
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	go func() {
		defer cancel()
		_, _ = e.Dial(ctx, transport.DialConfig{Addr: hubAddr, ALPN: alpn, TLS: w.ca.Client(t, "edge:mute")}) // it fails
	}()
}

// B5: 150 peers that went mute in the middle of their handshakes, from one address or
// from one each, delay nobody by more than the second for which they count.
func TestMutePeersDelayNobody(t *testing.T) {
	for name, addresses := range map[string]int{"of one address": 1, "of 150 addresses": 150} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := mustTestNetwork(t, transport.Config{MaxHandshakes: 128})
				w.serveEcho(t, nil)
				var paths []*transporttest.Path
				for i := range addresses {
					paths = append(paths, w.net.Path(t, fmt.Sprintf("10.2.0.%d", i+1), uint64(i)))
				}
				for i := range 150 {
					w.beginMuteHandshake(t, paths[i%addresses].Socket())
				}
				time.Sleep(100 * time.Millisecond)
				for _, bound := range []time.Duration{1500 * time.Millisecond, 200 * time.Millisecond, 200 * time.Millisecond} {
					start := time.Now()
					for {
						_, err := w.edge.Dial(t.Context(), transport.DialConfig{Addr: hubAddr, ALPN: alpn, TLS: w.ca.Client(t, "edge:n1")})
						if err == nil {
							break
						}
						if !errors.Is(err, transport.ErrBusy) {
							t.Fatalf("dial: %v", err)
						}
						time.Sleep(100 * time.Millisecond)
					}
					if took := time.Since(start); took > bound {
						t.Errorf("connected after %s, want within %s", took, bound)
					}
				}
				time.Sleep(time.Minute) // their handshakes are given up
			})
		})
	}
}

// Many edges behind one address, and mute peers behind another one: all of them get in,
// and an edge of a third address does not wait for them.
func TestEdgesBehindOneAddressAreNotStarved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := mustTestNetwork(t, transport.Config{MaxHandshakes: 16})
		w.serveEcho(t, nil)
		mute, site := w.net.Path(t, "10.2.0.1", 2), w.net.Path(t, "10.3.0.1", 3)
		for range 50 {
			w.beginMuteHandshake(t, mute.Socket())
		}
		const many = 200
		var in atomic.Int64
		var dials sync.WaitGroup
		for range many {
			e := mustEndpoint(t, transport.Config{Conn: site.Socket()})
			dials.Go(func() {
				for range 500 {
					if _, err := e.Dial(t.Context(), transport.DialConfig{Addr: hubAddr, ALPN: alpn, TLS: w.ca.Client(t, "edge:n1")}); err == nil {
						in.Add(1)
						return
					}
					time.Sleep(time.Duration(100+rand.N(100)) * time.Millisecond)
				}
			})
		}
		time.Sleep(50 * time.Millisecond)
		start := time.Now()
		for {
			if _, err := w.edge.Dial(t.Context(), transport.DialConfig{Addr: hubAddr, ALPN: alpn, TLS: w.ca.Client(t, "edge:n2")}); err == nil {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("an edge of another address connected after %s", took)
		}
		dials.Wait()
		if in.Load() != many || time.Since(start) > 20*time.Second {
			t.Errorf("%d of %d edges behind one address are connected after %s", in.Load(), many, time.Since(start))
		}
		time.Sleep(time.Minute)
	})
}

// 480 dialers behind one address give up in the middle of their handshakes, as edges do whose
// other hub was faster. The next dialer from that address does not wait until the hub has given
// up those handshakes, too.
func TestDialersThatGaveUpDelayNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := mustTestNetwork(t, transport.Config{MaxHandshakes: 128})
		w.serveEcho(t, nil)
		site := w.net.Path(t, "10.2.0.1", 1)
		for range 4 {
			for range 120 {
				w.beginAbandonedHandshake(t, site.Socket())
			}
			time.Sleep(1500 * time.Millisecond)
		}
		e := mustEndpoint(t, transport.Config{Conn: site.Socket()})
		if _, err := e.Dial(t.Context(), transport.DialConfig{Addr: hubAddr, ALPN: alpn, TLS: w.ca.Client(t, "edge:n1")}); err != nil {
			t.Errorf("dial from the address of those that gave up: %v", err)
		}
		time.Sleep(time.Minute)
	})
}

// A hub that has answered, and is busy, is given more time than one that is silent.
func TestABusyPeerIsGivenTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var server *tls.Config
		w := mustTestNetwork(t, transport.Config{
			MaxHandshakes: 1, // asks everybody for a proof of the address first
			TLS:           func([]string) (*tls.Config, error) { time.Sleep(4 * time.Second); return server, nil },
		})
		server = w.ca.Server(t, "hub:h1")
		w.serveEcho(t, nil)
		var heard time.Time
		start := time.Now()
		_, err := w.edge.Dial(t.Context(), transport.DialConfig{
			Addr: hubAddr, ALPN: alpn, TLS: w.ca.Client(t, "edge:n1"), HandshakeTimeout: time.Second, Heard: func() { heard = time.Now() },
		})
		if err != nil || heard.IsZero() || heard.Sub(start) > time.Second {
			t.Errorf("dial: %v after %s, the peer was heard after %s", err, time.Since(start), heard.Sub(start))
		}
	})
}

// A hub's address is exempt from the bounds. Packets that only claim to come from it start few handshakes, and the hub
// itself still gets in: it proves its address.
func TestForgedExemptAddressIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var handshakes atomic.Int64
		var server *tls.Config
		w := mustTestNetwork(t, transport.Config{
			Exempt: func(net.Addr) bool { return true },
			TLS:    func([]string) (*tls.Config, error) { handshakes.Add(1); return server, nil },
		})
		server = w.ca.Server(t, "hub:h1")
		w.serveEcho(t, nil)
		forger := w.net.Path(t, "10.2.0.1", 1)
		for range 100 {
			deaf := &onward{PacketConn: forger.Socket()} // the answers go to the address's owner
			e := mustEndpoint(t, transport.Config{Conn: deaf})
			go func() {
				_, _ = e.Dial(t.Context(), transport.DialConfig{Addr: hubAddr, ALPN: alpn, TLS: w.ca.Client(t, "hub:h2")}) // it fails
			}()
		}
		time.Sleep(time.Second)
		if n := handshakes.Load(); n > 16 {
			t.Errorf("%d handshakes with an address that is not proven have begun, want at most 16", n)
		}
		for range 20 {
			start := time.Now()
			if _, err := w.edge.Dial(t.Context(), transport.DialConfig{Addr: hubAddr, ALPN: alpn, TLS: w.ca.Client(t, "hub:h2")}); err != nil || time.Since(start) > 200*time.Millisecond {
				t.Errorf("dial from an exempt address: %v after %s", err, time.Since(start))
			}
		}
		time.Sleep(time.Minute) // the handshakes are given up
	})
}

// retryOnly lets in only QUIC's Retry packets: what it dials proves its address, and is never heard again.
type retryOnly struct{ net.PacketConn }

func (r *retryOnly) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		n, from, err := r.PacketConn.ReadFrom(b)
		if err != nil || n > 0 && b[0]&0xf0 == 0xf0 {
			return n, from, err
		}
	}
}

// Two addresses start as many handshakes as they can and never end them. With the bounds of production, the edges of
// another address get in.
func TestSilentAddressesLeavePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := mustTestNetwork(t, transport.Config{})
		w.serveEcho(t, nil)
		silent := []*transporttest.Path{w.net.Path(t, "10.2.0.1", 1), w.net.Path(t, "10.2.0.2", 2)}
		for range 650 { // within the ten seconds after which the first are given up
			for _, p := range silent {
				e := mustEndpoint(t, transport.Config{Conn: &retryOnly{p.Socket()}})
				go func() {
					_, _ = e.Dial(t.Context(), transport.DialConfig{Addr: hubAddr, ALPN: alpn, TLS: w.ca.Client(t, "edge:mute")}) // it fails
				}()
			}
			time.Sleep(10 * time.Millisecond)
		}
		for i := range 20 {
			if _, err := w.edge.Dial(t.Context(), transport.DialConfig{Addr: hubAddr, ALPN: alpn, TLS: w.ca.Client(t, "edge:n1")}); err != nil {
				t.Errorf("dial %d from another address: %v", i, err)
			}
		}
		time.Sleep(2 * time.Minute) // the handshakes are given up
	})
}
