package httpserver_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/hub/httpserver"
)

// pipeListener is a listener in memory.
type pipeListener struct {
	dialed chan net.Conn
	closed chan struct{}
}

func (p *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-p.dialed:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipeListener) Close() error   { close(p.closed); return nil }
func (p *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4646} }

// serveInBubble runs f in virtual time beside a server of handler; dial connects to it.
func serveInBubble(t *testing.T, handler http.HandlerFunc, f func(t *testing.T, dial func() net.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &pipeListener{dialed: make(chan net.Conn), closed: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		server := httpserver.New(ctx, handler, slog.New(slog.DiscardHandler))
		served := make(chan error, 1)
		go func() { served <- server.Serve(httpserver.Listen(p)) }()
		var dialed []net.Conn
		f(t, func() net.Conn {
			mine, its := net.Pipe()
			p.dialed <- its
			dialed = append(dialed, mine)
			return mine
		})
		cancel()
		for _, conn := range dialed {
			conn.Close()
		}
		time.Sleep(3 * httpserver.BodyGrace) // slow clients notice; the server lingers over what it refused
		if err := errors.Join(server.Close(), <-served); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// writeSlowly writes text in pieces, one each pause, and returns how long the other side
// took them.
func writeSlowly(conn net.Conn, text string, piece int, pause time.Duration) time.Duration {
	began := time.Now()
	for ; len(text) > 0; text = text[min(piece, len(text)):] {
		if _, err := io.WriteString(conn, text[:min(piece, len(text))]); err != nil {
			break
		}
		time.Sleep(pause)
	}
	return time.Since(began)
}

func checkDuration(t *testing.T, took, least, most time.Duration) {
	t.Helper()
	if took < least || took > most {
		t.Errorf("it took %s, want between %s and %s", took, least, most)
	}
}

func mustReadAnswer(t *testing.T, conn net.Conn) *http.Response {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func TestSlowHeadersAreGivenUp(t *testing.T) {
	serveInBubble(t, func(http.ResponseWriter, *http.Request) { t.Error("it was served") }, func(t *testing.T, dial func() net.Conn) {
		conn := dial()
		go io.Copy(io.Discard, conn)
		checkDuration(t, writeSlowly(conn, "GET / HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", 1000), 1, time.Second),
			httpserver.HeaderTimeout, httpserver.HeaderTimeout+2*time.Second)
	})
}

func TestHugeHeadersAreRefused(t *testing.T) {
	serveInBubble(t, func(http.ResponseWriter, *http.Request) { t.Error("it was served") }, func(t *testing.T, dial func() net.Conn) {
		conn := dial()
		go io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", 300<<10)+"\r\n\r\n")
		if resp := mustReadAnswer(t, conn); resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("answered %s", resp.Status)
		}
	})
}

// A body that stalls, or comes by the byte, is given up; its handler hears why.
func TestSlowBodiesAreGivenUp(t *testing.T) {
	for name, tc := range map[string]struct {
		pause time.Duration
		ahead int // bytes that come at once before
	}{
		"stalls": {2 * httpserver.BodyGrace, 1}, "a byte a second": {time.Second, 0}, "well at first": {time.Second, 30 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			var failed chan error
			serveInBubble(t, func(w http.ResponseWriter, r *http.Request) {
				_, err := io.ReadAll(r.Body)
				failed <- err
			}, func(t *testing.T, dial func() net.Conn) {
				failed = make(chan error, 1) // of the bubble
				conn := dial()
				go io.Copy(io.Discard, conn)
				body := strings.Repeat("x", 60<<10)
				if _, err := fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body[:tc.ahead]); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				go writeSlowly(conn, body[tc.ahead:], 1, tc.pause)
				err := <-failed
				most := httpserver.BodyGrace + time.Duration(tc.ahead/httpserver.MinRate+1)*time.Second
				checkDuration(t, time.Since(began), httpserver.BodyGrace, most)
				if !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), "1024 a second are wanted") {
					t.Errorf("the handler was told %v", err)
				}
			})
		})
	}
}

// A body that nobody reads holds its connection no longer.
func TestUnreadBodiesAreGivenUp(t *testing.T) {
	serveInBubble(t, func(http.ResponseWriter, *http.Request) {}, func(t *testing.T, dial func() net.Conn) {
		conn := dial()
		began := time.Now()
		if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(conn); err != nil {
			t.Fatal(err)
		}
		checkDuration(t, time.Since(began), 0, httpserver.BodyGrace+time.Second)
	})
}

// An upload over a slow link that makes progress is taken, however long it is, and
// what answers it may be silent for hours: so may what had no body at all.
func TestProgressAndSilenceAreBorne(t *testing.T) {
	const silence = 3 * time.Hour
	serveInBubble(t, func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		select {
		case <-time.After(silence):
		case <-r.Context().Done():
			t.Error("the request ended: ", context.Cause(r.Context()))
		}
		fmt.Fprintf(w, "%d", len(b))
	}, func(t *testing.T, dial func() net.Conn) {
		body := strings.Repeat("x", 1<<20)
		for request, want := range map[string]string{
			"GET / HTTP/1.1\r\nHost: x\r\n\r\n": "0",
			fmt.Sprintf("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body): fmt.Sprint(len(body)),
		} {
			conn := dial()
			go writeSlowly(conn, request, 2<<10, time.Second)
			resp := mustReadAnswer(t, conn)
			if got, err := io.ReadAll(resp.Body); err != nil || string(got) != want {
				t.Errorf("%.3s was answered %q, %v", request, got, err)
			}
		}
	})
}

// An answer that nobody takes is given up; one that is taken slowly is not.
func TestAnswersThatNobodyTakesAreGivenUp(t *testing.T) {
	answer := bytes.Repeat([]byte("x"), 1<<20)
	var wrote chan error
	serveInBubble(t, func(w http.ResponseWriter, r *http.Request) {
		_, err := w.Write(answer)
		wrote <- err
	}, func(t *testing.T, dial func() net.Conn) {
		wrote = make(chan error, 1) // of the bubble
		const request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
		mute := dial()
		if _, err := io.WriteString(mute, request); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := <-wrote; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the handler was told %v", err)
		}
		checkDuration(t, time.Since(began), httpserver.WriteTimeout, httpserver.WriteTimeout+time.Second)

		slow := dial()
		if _, err := io.WriteString(slow, request); err != nil {
			t.Fatal(err)
		}
		resp := mustReadAnswer(t, slow)
		taken := 0
		for piece := make([]byte, 64<<10); taken < len(answer); time.Sleep(20 * time.Second) {
			n, err := io.ReadFull(resp.Body, piece)
			if taken += n; err != nil {
				t.Fatalf("after %d bytes: %v", taken, err)
			}
		}
		if err := <-wrote; err != nil {
			t.Error(err)
		}
	})
}

// A connection that was taken over is its handler's alone: it sets its own deadlines.
func TestConnectionsThatAreTakenOverMayBeSilent(t *testing.T) {
	serveInBubble(t, func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		if n, err := conn.Read(make([]byte, 1)); n != 1 || err != nil { // hours later
			t.Error(n, err)
		}
		if err := conn.SetWriteDeadline(time.Now().Add(3 * time.Minute)); err != nil {
			t.Error(err)
		}
		if _, err := io.WriteString(conn, "here"); err != nil { // which is read after two minutes
			t.Error(err)
		}
	}, func(t *testing.T, dial func() net.Conn) {
		conn := dial()
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Hour)
		if _, err := io.WriteString(conn, "x"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if b, err := io.ReadAll(conn); string(b) != "here" || err != nil {
			t.Errorf("read %q, %v", b, err)
		}
	})
}
