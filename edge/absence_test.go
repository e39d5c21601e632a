package edge_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"skerry/edge/local"
	"skerry/fleet"
	"skerry/syncproto"
	"skerry/syncproto/identity"
	"skerry/syncproto/transport"
	"skerry/syncproto/transport/transporttest"
)

const hubAddr = "10.0.0.1:4647"

// heartbeatHub is a hub that answers heartbeats, applies rows, and delivers once.
type heartbeatHub struct {
	ttl     time.Duration
	desired syncproto.Desired
	after   time.Duration // how long it waits before the delivery
	// enrol answers enrolments; a node is initializing then until the hub has its rows. nil: it refuses them.
	enrol func(syncproto.Enroll) syncproto.Message
}

// serveEdges serves edges until the endpoint is closed.
func (b *heartbeatHub) serveEdges(e *transport.Endpoint) error {
	g, ctx := errgroup.WithContext(context.Background())
	for {
		conn, err := e.Accept(ctx)
		if err != nil {
			return g.Wait()
		}
		g.Go(func() error {
			if conn.State().NegotiatedProtocol == syncproto.ALPNEnroll {
				answerEnrolment(ctx, conn, b.enrol)
				return nil
			}
			b.serveSession(ctx, conn)
			return conn.CloseWith(nil)
		})
	}
}

type streamFrame struct {
	stream syncproto.Stream
	msg    syncproto.Message
}

// serveSession serves one connection to its end.
func (b *heartbeatHub) serveSession(ctx context.Context, conn *transport.Conn) {
	var streams [3]*transport.Stream
	in := make(chan streamFrame)
	readers, reading := errgroup.WithContext(ctx)
	defer readers.Wait() //nolint:errcheck // they end with the connection
	defer conn.CloseWith(nil)
	for range streams {
		s, err := conn.Accept(ctx)
		if err != nil {
			return
		}
		name, err := syncproto.ReadStream(s)
		if err != nil {
			return
		}
		streams[name] = s
		readers.Go(func() error {
			for r := syncproto.NewReader(s); ; {
				m, err := r.Read()
				if err != nil {
					return err
				}
				select {
				case in <- streamFrame{name, m}:
				case <-conn.Done():
					return errors.New("over")
				}
			}
		})
	}
	start, p := time.Now(), syncproto.NewHubSession(0, node)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	say := time.After(b.after)
	for p.State() != syncproto.SessionEnded {
		var outs []syncproto.Output
		select {
		case h := <-in:
			outs = p.Frame(time.Since(start), h.stream, h.msg)
		case <-say:
			outs = p.Desire(b.desired)
		case <-tick.C:
			outs = p.Tick(time.Since(start))
		case <-reading.Done():
			return
		}
		for len(outs) > 0 {
			o := outs[0]
			outs = append(outs[1:], b.handleSessionEvent(time.Since(start), p, o.Event)...)
			if o.Send != nil && syncproto.NewWriter(streams[o.Stream]).Write(o.Send) != nil {
				return
			}
		}
	}
}

func (b *heartbeatHub) handleSessionEvent(now time.Duration, p *syncproto.HubSession, event any) []syncproto.Output {
	switch e := event.(type) {
	case syncproto.EventHello:
		return p.Accept(now, syncproto.Welcome{Epoch: 1, TTL: b.ttl, Cluster: "c", Index: 1, Term: 1, Hub: "h1"})
	case syncproto.EventHeartbeat:
		ack := syncproto.HeartbeatAck{Status: fleet.NodeReady, TTL: b.ttl}
		if e.First {
			ack.Epoch, ack.Index, ack.Term = 1, 1, 1
		}
		if e.First && b.enrol != nil {
			ack.Status = fleet.NodeInitializing
		}
		return p.Acknowledge(ack)
	case syncproto.EventUpdates:
		return p.AppliedTo(syncproto.Applied{Last: e.Updates.First + fleet.Seq(len(e.Updates.Rows)) - 1, Status: fleet.NodeReady})
	}
	return nil
}

// silentListener is a listener without connections: an open socket would stop virtual time.
type silentListener struct{ closed chan struct{} }

func (s silentListener) Accept() (net.Conn, error) { <-s.closed; return nil, net.ErrClosed }
func (s silentListener) Addr() net.Addr            { return &net.UnixAddr{Net: "unix"} }
func (s silentListener) Close() error {
	select {
	case <-s.closed:
	default:
		close(s.closed)
	}
	return nil
}

// An allocation with a short stop_on_client_after lives as long as the link works, also if the hub's
// TTL is longer and the last heartbeat was old at its delivery.
func TestStopOnClientAfterShorterThanTheTTL(t *testing.T) {
	for _, after := range []time.Duration{fleet.MinStopOnClientAfter, 5 * time.Second, time.Minute} {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { stopsOnlyWithoutALink(t, after) })
		})
	}
}

func stopsOnlyWithoutALink(t *testing.T, after time.Duration) {
	ca := mustAuthority(t)
	dir := mustEnrolledBy(t, ca)
	network := transporttest.New(t, 20*time.Millisecond)
	path := network.Path(t, "10.1.0.1", 7)
	d := delivery(t, []fleet.AllocID{shop, batch})
	d.Index, d.From = 10, 0
	d.Run[0].JobHash = "short"
	d.Bodies = append(d.Bodies, syncproto.Body{Hash: "short", Job: mustBody(t, &fleet.Disconnect{StopOnClientAfter: &after})})
	mustServeBeats(t, network, ca, &heartbeatHub{ttl: 10 * time.Second, desired: d, after: 9300 * time.Millisecond})

	m := &runnerRecorder{}
	cfg := config(dir, m, io.Discard)
	cfg.Hubs = []string{hubAddr}
	cfg.ListenPacket = func(context.Context) (net.PacketConn, error) { return path.Socket(), nil }
	cfg.ListenLocal = func(string) (net.Listener, error) { return silentListener{make(chan struct{})}, nil }
	e := mustStart(t, cfg)
	state := func(id fleet.AllocID) local.Alloc {
		s, err := e.Agent().Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range s.Allocs {
			if a.ID == id {
				return a
			}
		}
		return local.Alloc{}
	}

	for range 60 {
		time.Sleep(time.Minute)
		if s := state(shop); s.ClientStatus != fleet.ClientRunning || s.Desired != fleet.DesiredRun {
			t.Fatalf("on a link that works: %+v", s)
		}
	}
	path.Cut()
	cut := time.Now()
	for state(shop).ClientStatus != fleet.ClientComplete {
		if time.Since(cut) > after+time.Second {
			t.Fatalf("%s after the link went it runs on: %+v", time.Since(cut), state(shop))
		}
		time.Sleep(10 * time.Millisecond)
	}
	// The last answered heartbeat is older than the cut by a third at most.
	if took := time.Since(cut); took < after-after/3-100*time.Millisecond {
		t.Errorf("stopped %s after the link went, want %s at least", took, after-after/3)
	}
	if s := state(batch); s.ClientStatus != fleet.ClientRunning {
		t.Errorf("one that does not ask for it: %+v", s)
	}
}

func mustServeBeats(t testing.TB, n *transporttest.Net, ca *authority, b *heartbeatHub) {
	t.Helper()
	key, err := identity.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	der, err := ca.issueCertificate(fleet.RoleHub, "h1", &key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	server := &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{syncproto.ALPNEdge}, ClientAuth: tls.RequireAnyClientCert,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der, ca.cert.Raw}, PrivateKey: key}},
	}
	enrolling := server.Clone()
	enrolling.NextProtos, enrolling.ClientAuth = []string{syncproto.ALPNEnroll}, tls.NoClientCert
	endpoint, err := transport.New(transport.Config{
		Conn: n.Listen(t, hubAddr), TLS: func(protocols []string) (*tls.Config, error) {
			if slices.Contains(protocols, syncproto.ALPNEnroll) {
				return enrolling, nil
			}
			return server, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- b.serveEdges(endpoint) }()
	t.Cleanup(func() {
		if err := errors.Join(endpoint.Close(), <-ended); err != nil {
			t.Errorf("the hub ended with: %v", err)
		}
	})
}
