// Package httpserver serves HTTP to clients that are slow, or that mean to hold
// connections for ever. hub calls it with the API as the handler.
//
// What is bounded is how long a client takes, and never how long an answer does: a
// header has HeaderTimeout, a body must arrive at MinRate after a grace, and of what
// is answered a piece must be taken within WriteTimeout. Once a request has arrived, its
// connection may be silent for as long as the handler works: blocking queries and
// streams are answered for hours.
//
// A TLS has the certificate with which the server serves HTTPS, from files or from the
// cluster's CA. It starts no goroutine beyond the server's, and persists nothing; the hub
// runs TLS.Run.
package httpserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// Bounds of a client.
const (
	HeaderTimeout = 10 * time.Second
	// MaxHeader bounds a request's line and its header, in bytes. The longest request
	// of ours has a command of 64 KiB in its query, escaped.
	MaxHeader = 256 << 10
	// BodyGrace is how long the first bytes of a body may take, and how long it may
	// lag behind MinRate (bytes a second).
	BodyGrace = 30 * time.Second
	MinRate   = 1 << 10
	// WriteTimeout is how long a client may take for 16 KiB of what is sent to it.
	WriteTimeout = time.Minute
	writePiece   = 16 << 10
	// IdleTimeout is how long a connection is kept between requests.
	IdleTimeout = 2 * time.Minute
)

// New returns a server of handler. The requests' contexts end with ctx. It must be given a listener of Listen.
func New(ctx context.Context, handler http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           boundBodies(handler),
		ReadHeaderTimeout: HeaderTimeout,
		IdleTimeout:       IdleTimeout,
		MaxHeaderBytes:    MaxHeader,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          log.New(serverLog{logger}, "", 0),
	}
}

// serverLog writes what the server reports into a log: a client that ends a handshake is its own problem.
type serverLog struct{ log *slog.Logger }

func (l serverLog) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if problem, ok := strings.CutPrefix(text, "http: TLS handshake error "); ok {
		l.log.Debug("TLS handshake failed", "error", problem)
	} else {
		l.log.Error("HTTP server failed", "error", text)
	}
	return len(line), nil
}

// boundBodies makes reads of a request's body fail if the body arrives slower than MinRate after BodyGrace.
func boundBodies(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody {
			b := &boundBody{ReadCloser: r.Body, control: http.NewResponseController(w)}
			// A handler may read nothing; the server then reads the rest by itself.
			if b.control.SetReadDeadline(time.Now().Add(BodyGrace)) == nil {
				r.Body = b
			}
		}
		next.ServeHTTP(w, r)
	})
}

// boundBody is a body that is given up where it does not arrive in time.
type boundBody struct {
	io.ReadCloser
	control *http.ResponseController
	began   time.Time // when the handler began to read
	read    int64
}

func (b *boundBody) Read(p []byte) (int, error) {
	if b.began.IsZero() { // what the handler did before is not the client's delay
		b.began = time.Now()
		if err := b.extendDeadline(); err != nil {
			return 0, err
		}
	}
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, fmt.Errorf("%d bytes arrived in %s, and at least %d a second are wanted: %w",
			b.read, time.Since(b.began).Round(time.Second), MinRate, err)
	case err != nil: // all of it is there, or the client is gone: what follows may take its time
		if failed := b.control.SetReadDeadline(time.Time{}); failed != nil && err == io.EOF {
			err = failed
		}
		return n, err
	case n > 0:
		return n, b.extendDeadline()
	}
	return n, nil
}

// extendDeadline sets the read deadline to BodyGrace, plus the time that the bytes read so far take at MinRate.
func (b *boundBody) extendDeadline() error {
	allowed := BodyGrace + time.Duration(b.read)*time.Second/MinRate
	return b.control.SetReadDeadline(b.began.Add(allowed))
}

// Listen wraps a listener: a write on its connections fails if the client does not read for WriteTimeout.
func Listen(l net.Listener) net.Listener { return listener{l} }

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &boundConn{Conn: c}, nil
}

// boundConn gives each write WriteTimeout, unless its user has set a deadline.
type boundConn struct {
	net.Conn

	mu              sync.Mutex
	hasUserDeadline bool // a deadline was set by whoever uses the connection
}

func (c *boundConn) SetDeadline(t time.Time) error {
	return errors.Join(c.Conn.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *boundConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hasUserDeadline = !t.IsZero()
	return c.Conn.SetWriteDeadline(t)
}

// Write writes in pieces. Each has WriteTimeout, unless the connection's user has set a deadline, so that a client that
// reads nothing does not keep the connection.
func (c *boundConn) Write(b []byte) (written int, err error) {
	for {
		if err := c.boundWrite(); err != nil {
			return written, err
		}
		n, err := c.Conn.Write(b[written:min(written+writePiece, len(b))])
		if written += n; err != nil || written == len(b) {
			return written, err
		}
	}
}

// boundWrite sets the deadline of the next write to WriteTimeout from now, unless the connection's user has set
// one.
func (c *boundConn) boundWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hasUserDeadline {
		return nil
	}
	return c.Conn.SetWriteDeadline(time.Now().Add(WriteTimeout))
}

// CloseWrite ends what is sent, where the connection can.
func (c *boundConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
