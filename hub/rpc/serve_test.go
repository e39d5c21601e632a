package rpc_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/rpc"
	"skerry/syncproto"
	"skerry/syncproto/transport"
)

// hub is one side: a socket, its connections, and its server.
type hub struct {
	addr  string
	peers *rpc.Peers
	pool  *rpc.Pool
	stop  func()
	conns atomic.Int64 // accepted
}

func mustCert(tb testing.TB, name string) tls.Certificate {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "hub:" + name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		tb.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// mustHub starts a hub at addr; register may add methods.
func mustHub(tb testing.TB, name, addr string, cfg rpc.Config, register func(*rpc.Peers)) *hub {
	tb.Helper()
	cert := mustCert(tb, name)
	socket, err := net.ListenPacket("udp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	ep, err := transport.New(transport.Config{Conn: socket, TLS: func([]string) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAnyClientCert, NextProtos: []string{syncproto.ALPNHub}}, nil
	}})
	if err != nil {
		tb.Fatal(err)
	}
	h := &hub{addr: ep.Addr().String()}
	h.pool, err = rpc.NewPool(rpc.PoolConfig{
		Dialer: ep, ALPN: syncproto.ALPNHub, IdleTimeout: time.Minute, KeepAlive: 200 * time.Millisecond,
		TLS: func() *tls.Config {
			return &tls.Config{Certificates: []tls.Certificate{cert}, InsecureSkipVerify: true}
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	cfg.Pool = h.pool
	if h.peers, err = rpc.New(cfg); err != nil {
		tb.Fatal(err)
	}
	if register != nil {
		register(h.peers)
	}
	ctx, cancel := context.WithCancel(tb.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := ep.Accept(ctx)
			if err != nil {
				return
			}
			h.conns.Add(1)
			wg.Go(func() { h.peers.Serve(ctx, conn) })
		}
	})
	var once sync.Once
	h.stop = func() {
		once.Do(func() {
			cancel()
			if err := errors.Join(h.pool.Close(), ep.Close()); err != nil {
				tb.Error(err)
			}
			wg.Wait()
		})
	}
	tb.Cleanup(h.stop)
	return h
}

const anyPort = "127.0.0.1:0"

func serveEcho(p *rpc.Peers) {
	p.Handle("echo", func(_ context.Context, from string, body []byte) ([]byte, error) {
		return append([]byte(from+":"), body...), nil
	})
}

func TestCallOfEverySize(t *testing.T) {
	largest := rpc.MaxBody - 4
	if testing.Short() { // the race detector makes it ten times as slow
		largest /= 10
	}
	server := mustHub(t, "one", anyPort, rpc.Config{}, serveEcho)
	client := mustHub(t, "two", anyPort, rpc.Config{}, nil)
	for _, size := range []int{0, 1, 1 << 20, largest} {
		body := bytes.Repeat([]byte{7}, size)
		got, err := client.peers.Call(t.Context(), server.addr, "echo", body)
		if err != nil || !bytes.Equal(got, append([]byte("two:"), body...)) {
			t.Fatalf("%d bytes: got %d, %v", size, len(got), err)
		}
	}
	if n := server.conns.Load(); n != 1 {
		t.Fatalf("%d connections for calls one after the other", n)
	}
}

func TestManyCallsShareAConnection(t *testing.T) {
	server := mustHub(t, "one", anyPort, rpc.Config{}, serveEcho)
	client := mustHub(t, "two", anyPort, rpc.Config{}, nil)
	var wg sync.WaitGroup
	for i := range 400 {
		wg.Go(func() {
			want := fmt.Sprintf("two:%d", i)
			if got, err := client.peers.Call(t.Context(), server.addr, "echo", []byte(want[4:])); err != nil || string(got) != want {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		})
	}
	wg.Wait()
	if n := server.conns.Load(); n != 1 {
		t.Fatalf("%d connections", n)
	}
}

// TestAnswerBeforeTheEnd has a handler answer, and stop reading, before the end of the
// request went out: the call has succeeded all the same.
func TestAnswerBeforeTheEnd(t *testing.T) {
	server := mustHub(t, "one", anyPort, rpc.Config{}, serveEcho)
	client := mustHub(t, "two", anyPort, rpc.Config{}, nil)
	got, err := client.peers.CallLate(t.Context(), server.addr, "echo", []byte("x"))
	if err != nil || string(got) != "two:x" {
		t.Fatalf("got %q, %v", got, err)
	}
}

func TestErrorsTravel(t *testing.T) {
	refusal := fleet.Errorf(fleet.CodeNotLeader, "ask another").WithHint("two")
	server := mustHub(t, "one", anyPort, rpc.Config{}, func(p *rpc.Peers) {
		p.Handle("refuse", func(context.Context, string, []byte) ([]byte, error) { return nil, refusal })
		p.Handle("fail", func(context.Context, string, []byte) ([]byte, error) { return nil, errors.New("disk full") })
		p.Handle("shout", func(context.Context, string, []byte) ([]byte, error) {
			return nil, errors.New("x" + strings.Repeat("ü", 1<<19))
		})
		p.Handle("flood", func(context.Context, string, []byte) ([]byte, error) { return make([]byte, rpc.MaxBody+1), nil })
		p.HandleStream("refuse-stream", func(context.Context, string, []byte, io.Writer) error { return refusal })
	})
	client := mustHub(t, "two", anyPort, rpc.Config{}, nil)
	for method, want := range map[string]fleet.Code{
		"refuse": fleet.CodeNotLeader, "fail": fleet.CodeInternal, "shout": fleet.CodeInternal,
		"flood": fleet.CodeFrameTooLarge, "no such": fleet.CodeUnsupported,
	} {
		if _, err := client.peers.Call(t.Context(), server.addr, method, nil); fleet.CodeOf(err) != want {
			t.Errorf("%s: got %v, want %s", method, err, want)
		}
	}
	_, err := client.peers.Call(t.Context(), server.addr, "refuse", nil)
	if e := fleet.AsError(err); *e != *refusal {
		t.Errorf("got %+v, want %+v", e, refusal)
	}
	if _, err := client.peers.Stream(t.Context(), server.addr, "refuse-stream", nil); fleet.CodeOf(err) != fleet.CodeNotLeader {
		t.Errorf("stream: got %v", err)
	}
}

func TestStream(t *testing.T) {
	content := bytes.Repeat([]byte("line\n"), 100_000)
	server := mustHub(t, "one", anyPort, rpc.Config{}, func(p *rpc.Peers) {
		p.HandleStream("logs", func(_ context.Context, from string, body []byte, w io.Writer) error {
			if from != "two" || string(body) != "which" {
				return fleet.Errorf(fleet.CodeInvalid, "asked by %s for %s", from, body)
			}
			if _, err := w.Write(content); err != nil {
				return err
			}
			return fleet.Errorf(fleet.CodeNotFound, "the rest was rotated away")
		})
	})
	client := mustHub(t, "two", anyPort, rpc.Config{}, nil)
	r, err := client.peers.Stream(t.Context(), server.addr, "logs", []byte("which"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if !bytes.Equal(got, content) || fleet.CodeOf(err) != fleet.CodeNotFound {
		t.Fatalf("read %d bytes of %d, %v", len(got), len(content), err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestClosingAStreamEndsItsHandler(t *testing.T) {
	ended := make(chan struct{})
	server := mustHub(t, "one", anyPort, rpc.Config{}, func(p *rpc.Peers) {
		p.HandleStream("follow", func(ctx context.Context, _ string, _ []byte, w io.Writer) error {
			defer close(ended)
			if _, err := w.Write([]byte("first")); err != nil {
				return err
			}
			<-ctx.Done() // nothing more to say, for hours
			return ctx.Err()
		})
	})
	client := mustHub(t, "two", anyPort, rpc.Config{}, nil)
	r, err := client.peers.Stream(t.Context(), server.addr, "follow", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	mustClose(t, ended, "the handler goes on after its reader has closed")
}

func TestTooManyStreamsAreRefusedAndCallsGoOn(t *testing.T) {
	server := mustHub(t, "one", anyPort, rpc.Config{MaxStreams: 2}, func(p *rpc.Peers) {
		serveEcho(p)
		p.HandleStream("follow", func(ctx context.Context, _ string, _ []byte, w io.Writer) error {
			if _, err := w.Write([]byte("x")); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		})
	})
	client := mustHub(t, "two", anyPort, rpc.Config{}, nil)
	for range 2 {
		r, err := client.peers.Stream(t.Context(), server.addr, "follow", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
	}
	if _, err := client.peers.Stream(t.Context(), server.addr, "follow", nil); fleet.CodeOf(err) != fleet.CodeUnavailable {
		t.Fatalf("a third stream: %v", err)
	}
	if _, err := client.peers.Call(t.Context(), server.addr, "echo", nil); err != nil {
		t.Fatal(err)
	}
}

func TestInFlightIsBounded(t *testing.T) {
	var running, most atomic.Int64
	server := mustHub(t, "one", anyPort, rpc.Config{MaxInFlight: 3}, func(p *rpc.Peers) {
		p.Handle("work", func(context.Context, string, []byte) ([]byte, error) {
			if n := running.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer running.Add(-1)
			return bytes.Repeat([]byte("x"), 100_000), nil
		})
	})
	client := mustHub(t, "two", anyPort, rpc.Config{}, nil)
	var wg sync.WaitGroup
	for range 60 {
		wg.Go(func() {
			if _, err := client.peers.Call(t.Context(), server.addr, "work", nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if most.Load() > 3 {
		t.Fatalf("%d at a time", most.Load())
	}
}

func TestDeadlineReachesTheHandlerAndTheCaller(t *testing.T) {
	handler := make(chan error, 1)
	server := mustHub(t, "one", anyPort, rpc.Config{}, func(p *rpc.Peers) {
		p.Handle("hang", func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
			<-ctx.Done()
			handler <- ctx.Err()
			return nil, ctx.Err()
		})
	})
	client := mustHub(t, "two", anyPort, rpc.Config{}, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := client.peers.Call(ctx, server.addr, "hang", nil)
	if fleet.CodeOf(err) != fleet.CodeTimeout && fleet.CodeOf(err) != fleet.CodeInternal { // the handler's answer may win the race
		t.Fatalf("got %v", err)
	}
	if notSent(err) {
		t.Fatal("a call that ran is called not sent")
	}
	if err := <-handler; !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("the handler's context ended with %v", err)
	}
}

func TestAHubThatIsNotThere(t *testing.T) {
	gone := mustHub(t, "one", anyPort, rpc.Config{}, nil)
	gone.stop()
	client := mustHub(t, "two", anyPort, rpc.Config{}, nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := client.peers.Call(ctx, gone.addr, "echo", nil)
	if fleet.CodeOf(err) != fleet.CodeTimeout || !notSent(err) {
		t.Fatalf("got %v, not sent: %t", err, notSent(err))
	}
	_, err = client.peers.Call(t.Context(), "no port", "echo", nil)
	if fleet.CodeOf(err) != fleet.CodeUnavailable || !notSent(err) {
		t.Fatalf("an address that is none: %v, not sent: %t", err, notSent(err))
	}
}

func TestARestartedHubIsFoundAgain(t *testing.T) {
	first := mustHub(t, "one", anyPort, rpc.Config{}, serveEcho)
	client := mustHub(t, "two", anyPort, rpc.Config{}, nil)
	if _, err := client.peers.Call(t.Context(), first.addr, "echo", nil); err != nil {
		t.Fatal(err)
	}
	first.stop()
	mustHub(t, "one", first.addr, rpc.Config{}, serveEcho)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		_, err := client.peers.Call(ctx, first.addr, "echo", nil)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

func mustClose(tb testing.TB, c <-chan struct{}, why string) {
	tb.Helper()
	select {
	case <-c:
	case <-time.After(10 * time.Second):
		tb.Fatal(why)
	}
}

func notSent(err error) bool {
	var e interface{ NotSent() bool }
	return errors.As(err, &e) && e.NotSent()
}
