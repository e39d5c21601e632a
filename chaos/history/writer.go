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

// MaxLine bounds a line, in bytes. Writer does not write a longer one, and Reader does not read it.
const MaxLine = 16 << 20

// MaxLength bounds the length of a run by its own clock.
const MaxLength = 50 * 365 * 24 * time.Hour

// Writer writes a history while a run goes on. Its methods may be called from any goroutine.
type Writer struct {
	mu     sync.Mutex
	out    *bufio.Writer // guarded by mu, as all below; nil: records are only counted
	err    error         // the first failure; nothing is written after it
	last   time.Duration // of the newest record
	memory memory
	tally  *Tally
	ended  bool

	closers []io.Closer // what Create opened, in the order in which it has to be closed
}

// NewWriter returns a Writer to w and writes the header. Where w is nil records are counted for Run, and not
// written.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	h.Format = Format
	if h.Clock != Virtual && h.Clock != Real {
		return nil, fmt.Errorf("begin history of %s: unknown clock %q", h.Name, h.Clock)
	}
	hw := &Writer{memory: newMemory(), tally: NewTally(h)}
	if w == nil {
		return hw, nil
	}
	hw.out = bufio.NewWriterSize(w, 64<<10)
	if hw.writeLine(h); hw.err != nil {
		return nil, fmt.Errorf("begin history of %s: %w", h.Name, hw.err)
	}
	return hw, nil
}

// Write adds a record. A time before the newest record's is raised to that: callers read the clock before they
// wait for the Writer. After a failure to write nothing is written, and each call returns the first error.
func (w *Writer) Write(r Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.err != nil:
	case r.kindCount() != 1:
		return fmt.Errorf("write to the history: the record has %d kinds, not one", r.kindCount())
	case r.At > MaxLength:
		return fmt.Errorf("write to the history: a record at %s is beyond any run's end", r.At)
	case w.ended:
		return errors.New("write to the history: it has an end already")
	default:
		w.last = max(w.last, r.At)
		r.At, w.ended = w.last, r.End != nil
		w.tally.Add(r)
		if w.out != nil {
			w.writeRecord(r)
		}
	}
	if w.err != nil {
		return fmt.Errorf("write to the history: %w", w.err)
	}
	return nil
}

// Run returns the summary of the records so far.
func (w *Writer) Run() Run {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tally.Run()
}

// Flush writes buffered lines to the underlying writer. It does not flush a compressor: Close does.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil && w.out != nil {
		w.err = w.out.Flush()
	}
	if w.err != nil {
		return fmt.Errorf("flush the history: %w", w.err)
	}
	return nil
}

// writeRecord writes a record as one line, or a snapshot as several, and updates the memory that later lines
// depend on. It sets w.err where it fails.
func (w *Writer) writeRecord(r Record) {
	l := line{Record: r}
	switch {
	case r.Picture != nil:
		for _, part := range w.memory.encodeSnapshot(r.Picture) {
			part.At = r.At
			w.writeLine(part)
		}
		return
	case r.Hub != nil:
		l.Hub, l.Bodies = w.memory.encodeHubChange(r.Hub)
	case r.Edge != nil && w.memory.rememberAndCompareEdge(r.Edge):
		w.writeLine(unchangedEdgeLine{r.At, unchangedEdge{r.Edge.Name, r.Edge.Link.Away, r.Edge.Link.NextTry}})
		return
	case r.Applied != nil:
		l.Applied, l.Bodies = w.memory.encodeApplied(r.Applied)
	case r.Process != nil:
		w.memory.recordRestart(r.Process.Name)
	}
	w.writeLine(l)
}

// writeLine writes a value as one line of JSON. It does nothing after an earlier error, and sets w.err where it
// fails or the line is longer than MaxLine.
func (w *Writer) writeLine(v any) {
	if w.err != nil {
		return
	}
	text, err := json.Marshal(v)
	if err == nil && len(text) > MaxLine {
		err = fmt.Errorf("a line of %d bytes is longer than %d", len(text), MaxLine)
	}
	if err != nil {
		w.err = err
		return
	}
	_, w.err = w.out.Write(append(text, '\n'))
}
