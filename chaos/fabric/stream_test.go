package fabric_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/nettest"

	"skerry/chaos/fabric"
)

// TestConn: streams are what the standard library expects of a net.Conn. It runs
// in real time.
func TestConn(t *testing.T) {
	nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
		n := fabric.New(1)
		c, s := mustStream(t, n.Host("a", "10.0.0.1"), n.Host("b", "10.0.0.2"))
		return c, s, n.Close, nil
	})
}

func TestStreamTakesTheLatency(t *testing.T) {
	inBubble(t, func(t *testing.T, n *fabric.Net, a, b *fabric.Host) {
		n.Shape(hostA, hostB, fabric.Profile{Latency: 50 * time.Millisecond, Bandwidth: 1_000_000})
		l := mustListen(t, b, 80)
		start := time.Now()
		c := mustDial(t, a, "b:80")
		// 60 bytes of 1 Mbit/s each way take 0.48 ms.
		mustBe(t, "dialed after", time.Since(start), 100*time.Millisecond+960*time.Microsecond)
		s, err := l.Accept()
		mustBeNil(t, err)
		mustBe(t, "accepted after", time.Since(start), 150*time.Millisecond+1440*time.Microsecond)
		start = time.Now()
		mustWrite(t, c, string(make([]byte, 460))) // 500 bytes: 4 ms
		mustWrite(t, c, string(make([]byte, 960))) // 1,000 bytes: 8 ms
		mustBe(t, "written after", time.Since(start), 0)
		mustBe(t, "read", len(mustRead(t, s)), 460)
		mustBe(t, "read after", time.Since(start), 54*time.Millisecond)
		mustBe(t, "read", len(mustRead(t, s)), 960)
		mustBe(t, "read after", time.Since(start), 62*time.Millisecond)
		mustBe(t, "traffic", n.Bytes("a").SentBytes, 1500)
	})
}

func TestStreamIsOrderedAndBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, n *fabric.Net, a, b *fabric.Host) {
		f := n.Shape(hostA, hostB, fabric.Profile{Latency: 50 * time.Millisecond, Jitter: 50 * time.Millisecond, Loss: 0.1, Reorder: 0.5, Duplicate: 0.5})
		c, s := mustStream(t, a, b)
		var sent bytes.Buffer
		for i := range 300_000 {
			fmt.Fprintf(&sent, "%d ", i)
		}
		want := sent.String()
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := io.Copy(struct{ io.Writer }{c}, &sent); err != nil {
				t.Errorf("write: %v", err)
			}
			mustBeNil(t, c.(*fabric.Stream).CloseWrite())
			_, err := c.Write([]byte("more"))
			mustFail(t, "write after CloseWrite", err, syscall.EPIPE)
		})
		time.Sleep(time.Minute)
		if taken := len(want) - sent.Len(); taken > 512<<10 {
			t.Errorf("%d bytes were written, and none read", taken)
		}
		got, err := io.ReadAll(s)
		mustBeNil(t, err)
		mustBe(t, "what was read is what was written", string(got) == want, true)
		mustBe(t, "read at the end", err, nil)
		_, err = s.Read(make([]byte, 1))
		mustFail(t, "read after the end", err, io.EOF)
		if c := f.Count(); c.Dropped == 0 || c.Duplicated+c.Reordered > 0 {
			t.Errorf("count: %+v", c)
		}
		mustWrite(t, s, "the other half is open")
		mustRead(t, c)
		wg.Wait()
	})
}

func TestCutStallsStreams(t *testing.T) {
	// The sender learns what was read, where the way back is open.
	for dir, space := range map[fabric.Direction]int{
		fabric.Both: 256<<10 - len("under way stalled"),
		fabric.AToB: 256<<10 - len("stalled"),
	} {
		t.Run(dir.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, n *fabric.Net, a, b *fabric.Host) {
				c, s := mustStream(t, a, b)
				mustWrite(t, c, "under way ")
				cut := n.Cut(hostA, hostB, dir, fabric.Silent)
				mustWrite(t, c, "stalled")
				mustBe(t, "read", mustRead(t, s), "under way ")
				mustBeNil(t, s.SetReadDeadline(time.Now().Add(time.Minute)))
				_, err := s.Read(make([]byte, 9))
				mustFail(t, "read", err, os.ErrDeadlineExceeded)
				mustBeNil(t, c.SetWriteDeadline(time.Now().Add(time.Second)))
				k, err := c.Write(make([]byte, 1<<20))
				mustFail(t, "write more than the window", err, os.ErrDeadlineExceeded)
				mustBe(t, "written of it", k, space)
				mustBe(t, "count", cut.Count(), fabric.Count{Stalled: 2})

				healed := time.Now()
				cut.Heal()
				mustBeNil(t, s.SetReadDeadline(time.Time{}))
				mustBe(t, "read after the healing", mustRead(t, s)[:7], "stalled")
				mustBe(t, "read after", time.Since(healed), fabric.LANLatency)
			})
		})
	}
}

// TestCutOfTheWayBack: data arrives, but the sender does not hear of it.
func TestCutOfTheWayBack(t *testing.T) {
	inBubble(t, func(t *testing.T, n *fabric.Net, a, b *fabric.Host) {
		c, s := mustStream(t, a, b)
		cut := n.Cut(hostA, hostB, fabric.BToA, fabric.Silent)
		go func() { _, _ = io.Copy(io.Discard, s) }()
		start := time.Now()
		mustBeNil(t, c.SetWriteDeadline(start.Add(time.Minute)))
		k, err := c.Write(make([]byte, 1<<20))
		mustFail(t, "write more than the window", err, os.ErrDeadlineExceeded)
		mustBe(t, "written", k, 256<<10)
		mustBe(t, "received", n.Bytes("b").ReceivedBytes > 256<<10, true)
		cut.Heal()
		mustBeNil(t, c.SetWriteDeadline(time.Time{}))
		mustWrite(t, c, string(make([]byte, 1<<20)))
	})
}

func TestRefusedCutResetsStreams(t *testing.T) {
	inBubble(t, func(t *testing.T, n *fabric.Net, a, b *fabric.Host) {
		c, s := mustStream(t, a, b)
		l := mustListen(t, b, 80)
		cut := n.Cut(hostA, hostB, fabric.AToB, fabric.Refused)
		_, err := c.Write([]byte("x"))
		mustFail(t, "write", err, syscall.ECONNRESET)
		_, err = c.Read(make([]byte, 1))
		mustFail(t, "read", err, syscall.ECONNRESET)
		start := time.Now()
		_, err = a.Dial(t.Context(), l.Addr().String())
		mustFail(t, "dial", err, syscall.ECONNREFUSED)
		mustBe(t, "dial failed after", time.Since(start), 0)
		mustBe(t, "count", cut.Count(), fabric.Count{Refused: 2})
		_, err = s.Read(make([]byte, 1))
		mustFail(t, "read of the peer, which hears nothing", err, syscall.ETIMEDOUT)
	})
}

func TestDial(t *testing.T) {
	inBubble(t, func(t *testing.T, n *fabric.Net, a, b *fabric.Host) {
		fails := func(what, addr string, d time.Duration, want error, after time.Duration) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			start := time.Now()
			_, err := a.Dial(ctx, addr)
			mustFail(t, what, err, want)
			mustBe(t, what+": failed after", time.Since(start), after)
		}
		fails("nobody listens", "10.0.0.2:80", time.Hour, syscall.ECONNREFUSED, 2*fabric.LANLatency)
		fails("nobody is there", "10.0.0.9:80", time.Hour, syscall.ETIMEDOUT, 127*time.Second)
		fails("nobody is there, for a while", "10.0.0.9:80", 10*time.Second, context.DeadlineExceeded, 10*time.Second)
		var unknown *net.DNSError
		if _, err := a.Dial(t.Context(), "nobody:80"); !errors.As(err, &unknown) {
			t.Errorf("dial nobody: %v", err)
		}
		for _, addr := range []string{"b", "b:http", "b:70000", ""} {
			if _, err := a.Dial(t.Context(), addr); err == nil {
				t.Errorf("dial %q: no error", addr)
			}
		}

		l := mustListen(t, b, 80)
		cut := n.Cut(hostA, hostB, fabric.BToA, fabric.Silent)
		fails("cut", "b:80", 5*time.Second, context.DeadlineExceeded, 5*time.Second)
		mustBe(t, "attempts", cut.Count(), fabric.Count{Stalled: 3})
		cut.Heal()

		// Of 200 that nobody accepts, 128 wait; others try again.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		dialed := make(chan net.Conn, 200)
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				if c, err := a.Dial(ctx, "b:80"); err == nil {
					dialed <- c
				}
			})
		}
		wg.Wait()
		mustBe(t, "dialed", len(dialed), 128)
		mustBeNil(t, l.Close())
		_, err := (<-dialed).Read(make([]byte, 1))
		mustFail(t, "read after the listener is closed", err, io.EOF)
	})
}

// TestDialGivenUp: what the other side accepts is closed already.
func TestDialGivenUp(t *testing.T) {
	inBubble(t, func(t *testing.T, n *fabric.Net, a, b *fabric.Host) {
		l := mustListen(t, b, 80)
		ctx, cancel := context.WithTimeout(t.Context(), fabric.LANLatency)
		defer cancel()
		_, err := a.Dial(ctx, "b:80")
		mustFail(t, "dial", err, context.DeadlineExceeded)
		s, err := l.Accept()
		mustBeNil(t, err)
		_, err = s.Read(make([]byte, 1))
		mustFail(t, "read", err, io.EOF)
	})
}

func TestCloseOfTheReader(t *testing.T) {
	inBubble(t, func(t *testing.T, n *fabric.Net, a, b *fabric.Host) {
		c, s := mustStream(t, a, b)
		var wg sync.WaitGroup
		start := time.Now()
		wg.Go(func() {
			k, err := c.Write(make([]byte, 1<<20))
			mustFail(t, "write", err, syscall.EPIPE)
			mustBe(t, "written", k, 256<<10)
			mustBe(t, "failed after", time.Since(start), time.Second+fabric.LANLatency)
		})
		time.Sleep(time.Second)
		mustBeNil(t, s.Close())
		mustFail(t, "close twice", s.Close(), net.ErrClosed)
		wg.Wait()
	})
}

// TestWritesDoNotMix: who writes second waits for who is stuck in the middle.
func TestWritesDoNotMix(t *testing.T) {
	inBubble(t, func(t *testing.T, n *fabric.Net, a, b *fabric.Host) {
		c, s := mustStream(t, a, b)
		const size = 300 << 10
		var wg sync.WaitGroup
		for _, letter := range []string{"x", "y", "z"} {
			wg.Go(func() {
				_, err := c.Write(bytes.Repeat([]byte(letter), size))
				mustBeNil(t, err)
			})
			time.Sleep(time.Second)
		}
		got := make([]byte, 3*size)
		_, err := io.ReadFull(s, got)
		mustBeNil(t, err)
		wg.Wait()
		for i, letter := range []string{"x", "y", "z"} {
			mustBe(t, letter, bytes.Count(got[i*size:(i+1)*size], []byte(letter)), size)
		}
	})
}

func TestHTTP(t *testing.T) {
	inBubble(t, func(t *testing.T, n *fabric.Net, a, b *fabric.Host) {
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			mustBeNil(t, err)
			_, _ = w.Write(bytes.ToUpper(body))
		})}
		l := mustListen(t, b, 4646)
		var wg sync.WaitGroup
		wg.Go(func() { mustFail(t, "serve", server.Serve(l), http.ErrServerClosed) })
		transport := &http.Transport{DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) { return a.Dial(ctx, addr) }}
		client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
		post := func(body []byte) ([]byte, error) {
			resp, err := client.Post("http://b:4646/", "text/plain", bytes.NewReader(body))
			if err != nil {
				return nil, err
			}
			defer resp.Body.Close()
			return io.ReadAll(resp.Body)
		}
		for _, size := range []int{0, 1, 3 << 20} {
			got, err := post(bytes.Repeat([]byte("x"), size))
			mustBeNil(t, err)
			mustBe(t, "answer", bytes.Equal(got, bytes.Repeat([]byte("X"), size)), true)
		}
		cut := n.Cut(hostA, hostB, fabric.Both, fabric.Silent)
		start := time.Now()
		_, err := post([]byte("x"))
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("request into a cut: %v", err)
		}
		mustBe(t, "failed after", time.Since(start), 10*time.Second)
		cut.Heal()
		_, err = post([]byte("x"))
		mustBeNil(t, err)
		transport.CloseIdleConnections()
		mustBeNil(t, server.Close())
		wg.Wait()
	})
}

// TestStreamsLeaveNothing: a run of a year opens millions of them.
func TestStreamsLeaveNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, n *fabric.Net, a, b *fabric.Host) {
		heap := func() int {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int(m.HeapAlloc)
		}
		l := mustListen(t, b, 80)
		const streams = 5000
		before := heap()
		for range streams {
			c := mustDial(t, a, "b:80")
			s, err := l.Accept()
			mustBeNil(t, err)
			mustWrite(t, c, "x")
			mustBeNil(t, errors.Join(c.Close(), s.Close()))
		}
		if grown := heap() - before; grown > streams*100 {
			t.Errorf("%d streams have left %d bytes", streams, grown)
		}
	})
}
