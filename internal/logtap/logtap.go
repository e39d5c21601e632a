// Package logtap copies the log records of a daemon to listeners, each with its own
// level. hub.Open and edge.Open wrap the logger that they are given with a
// Monitor; the HTTP API and an edge's link add listeners.
//
// Logging never waits for a listener: each has a bounded queue. A line that finds it
// full is left out and counted, and the next line says so. Without listeners a record costs one
// additional atomic load. The package starts no goroutine and persists nothing.
package logtap

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"skerry/fleet"
)

// Bounds of the listeners.
const (
	// MaxListeners is how many a daemon has at a time.
	MaxListeners = 16
	// maxQueuedLines is how many lines may wait for a listener that reads slowly.
	maxQueuedLines = 512
	// maxLine is the longest line that is kept whole, in bytes.
	maxLine = 16 << 10
)

// noListenerLevel is above every level of a record: nobody listens.
const noListenerLevel = slog.Level(1 << 16)

// ParseLevel returns the level with a name: "" is info, and "trace", which nothing logs at, is debug. CodeInvalid:
// there is no such level.
func ParseLevel(name string) (slog.Level, error) {
	switch strings.ToLower(name) {
	case "":
		return slog.LevelInfo, nil
	case "trace":
		return slog.LevelDebug, nil
	case "debug", "info", "warn", "error":
		var l slog.Level
		return l, l.UnmarshalText([]byte(name))
	}
	return 0, fleet.Errorf(fleet.CodeInvalid, "log level %q is not known", name).WithHint("it is debug, info, warn or error")
}

// Monitor copies the records of a daemon's logger to listeners.
type Monitor struct {
	// lowestLevel is the lowest level of a listener, or noListenerLevel.
	lowestLevel atomic.Int64

	mu        sync.Mutex
	listeners []*Listener
	line      bytes.Buffer // the record that is being formatted
}

// New returns a Monitor without listeners.
func New() *Monitor {
	t := &Monitor{}
	t.lowestLevel.Store(int64(noListenerLevel))
	return t
}

// WrapLogger returns a logger that logs as log does, and copies each record to the listeners of its level.
func (t *Monitor) WrapLogger(log *slog.Logger) *slog.Logger {
	all := &slog.HandlerOptions{Level: slog.LevelDebug}
	return slog.New(handler{
		monitor: t, inner: log.Handler(), text: slog.NewTextHandler(&t.line, all), json: slog.NewJSONHandler(&t.line, all),
	})
}

// Listen adds a listener for records of at least level, until it is closed. CodeUnavailable: there are
// MaxListeners.
func (t *Monitor) Listen(level slog.Level, asJSON bool) (*Listener, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.listeners) >= MaxListeners {
		return nil, fleet.Errorf(fleet.CodeUnavailable, "listen to logs: %d clients do so already", MaxListeners).
			WithHint("try again later")
	}
	l := &Listener{monitor: t, level: level, json: asJSON, lines: make(chan []byte, maxQueuedLines), closed: make(chan struct{})}
	t.listeners = append(t.listeners, l)
	t.updateLowestLevel()
	return l, nil
}

// updateLowestLevel sets lowestLevel to the lowest level of a listener. mu is held.
func (t *Monitor) updateLowestLevel() {
	least := noListenerLevel
	for _, l := range t.listeners {
		least = min(least, l.level)
	}
	t.lowestLevel.Store(int64(least))
}

// handler is a slog.Handler that passes records to inner and to the listeners. text and json format records into the
// monitor's line, with the attributes that WithAttrs and WithGroup added.
type handler struct {
	monitor           *Monitor
	inner, text, json slog.Handler
}

func (h handler) Enabled(ctx context.Context, level slog.Level) bool {
	return int64(level) >= h.monitor.lowestLevel.Load() || h.inner.Enabled(ctx, level)
}

// Handle sends a record to the listeners of its level, and to the daemon's own handler if that handles the level.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	if int64(r.Level) >= h.monitor.lowestLevel.Load() {
		h.sendToListeners(ctx, r)
	}
	if !h.inner.Enabled(ctx, r.Level) {
		return nil
	}
	return h.inner.Handle(ctx, r)
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.monitor, h.inner.WithAttrs(attrs), h.text.WithAttrs(attrs), h.json.WithAttrs(attrs)}
}

func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.monitor, h.inner.WithGroup(name), h.text.WithGroup(name), h.json.WithGroup(name)}
}

// sendToListeners queues a record for each listener of its level. A listener with a full queue misses it.
func (h handler) sendToListeners(ctx context.Context, r slog.Record) {
	t := h.monitor
	t.mu.Lock()
	defer t.mu.Unlock()
	var text, asJSON []byte
	for _, l := range t.listeners {
		if r.Level < l.level {
			continue
		}
		line, format := &text, h.text
		if l.json {
			line, format = &asJSON, h.json
		}
		if *line == nil {
			*line = t.formatRecord(ctx, format, r)
		}
		select {
		case l.lines <- *line:
		default:
			l.dropped.Add(1)
		}
	}
}

// formatRecord returns a record as one line, cut at maxLine bytes. mu is held.
func (t *Monitor) formatRecord(ctx context.Context, format slog.Handler, r slog.Record) []byte {
	t.line.Reset()
	if err := format.Handle(ctx, r); err != nil {
		return []byte(fmt.Sprintf("a line that cannot be written: %v\n", err))
	}
	line := bytes.Clone(t.line.Bytes())
	if len(line) > maxLine {
		line = append(line[:maxLine:maxLine], "…\n"...)
	}
	return line
}

// Listener receives log lines. One goroutine at a time may call Read.
type Listener struct {
	monitor *Monitor
	level   slog.Level
	json    bool
	lines   chan []byte
	dropped atomic.Uint64
	closed  chan struct{}
	closing sync.Once
	rest    []byte // of the current line, which did not fit into the buffer of Read
}

// Read waits for a line and returns it, or as much of it as fits into p; the next Read returns the rest. It returns
// io.EOF once the listener is closed.
func (l *Listener) Read(p []byte) (int, error) {
	if len(l.rest) == 0 {
		select {
		case <-l.closed:
			return 0, io.EOF
		case line := <-l.lines:
			l.rest = append(l.droppedNotice(), line...)
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// droppedNotice returns a line with the number of lines that were left out since the last one; nil: none were.
func (l *Listener) droppedNotice() []byte {
	n := l.dropped.Swap(0)
	switch {
	case n == 0:
		return nil
	case l.json:
		return fmt.Appendf(nil, "{\"level\":\"WARN\",\"msg\":\"lines left out\",\"lines\":%d}\n", n)
	}
	return fmt.Appendf(nil, "level=WARN msg=\"lines left out\" lines=%d\n", n)
}

// Close removes the listener and ends a waiting Read. It may be called more than once.
func (l *Listener) Close() error {
	l.closing.Do(func() {
		t := l.monitor
		t.mu.Lock()
		defer t.mu.Unlock()
		for i, other := range t.listeners {
			if other == l {
				t.listeners = append(t.listeners[:i:i], t.listeners[i+1:]...)
				break
			}
		}
		t.updateLowestLevel()
		close(l.closed)
	})
	return nil
}
