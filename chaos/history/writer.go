package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// MaxLine bounds a line, in bytes: Writer refuses to write a longer one, Reader
// to read it.
const MaxLine = 1 << 20

// Writer writes a history as a run goes. Its methods may be called from any
// goroutine.
type Writer struct {
	mu   sync.Mutex
	out  *bufio.Writer // guarded by mu
	err  error         // guarded by mu: the first failure; nothing is written after it
	last time.Duration // guarded by mu: of the newest record
}

// NewWriter begins a history with its header.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	h.Format = Format
	if h.Clock != Virtual && h.Clock != Real {
		return nil, fmt.Errorf("begin history of %s: unknown clock %q", h.Name, h.Clock)
	}
	hw := &Writer{out: bufio.NewWriter(w)}
	hw.put(h)
	if hw.err != nil {
		return nil, fmt.Errorf("begin history of %s: %w", h.Name, hw.err)
	}
	return hw, nil
}

// Write adds a record. A time before the newest record's is raised to it: clocks
// are read before the writer's turn comes, so that two records may cross. The
// first failure is kept, and told again by every call that follows.
func (w *Writer) Write(at time.Duration, e Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = max(w.last, at)
	body, err := json.Marshal(e)
	if err == nil && w.err == nil {
		w.put(line{At: w.last, Kind: e.kind(), Event: body})
	}
	if err := errors.Join(w.err, err); err != nil {
		return fmt.Errorf("write %s to the history: %w", e.kind(), err)
	}
	return nil
}

// Flush hands everything written so far to the writer below.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = w.out.Flush()
	}
	if w.err != nil {
		return fmt.Errorf("flush the history: %w", w.err)
	}
	return nil
}

// put writes one line.
func (w *Writer) put(v any) {
	text, err := json.Marshal(v)
	if err != nil {
		w.err = err
		return
	}
	if len(text) > MaxLine {
		w.err = fmt.Errorf("a line of %d bytes is longer than %d", len(text), MaxLine)
		return
	}
	_, w.err = w.out.Write(append(text, '\n'))
}

// line is a record in the file.
type line struct {
	At    time.Duration   `json:"at"` // nanoseconds
	Kind  Kind            `json:"kind"`
	Event json.RawMessage `json:"event"`
}
