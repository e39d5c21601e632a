package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// ErrCutShort is the error of Reader where a history has no End: its run was killed, or never finished.
var ErrCutShort = errors.New("the history was cut short: it has no end")

// Reader reads a history record by record. It may be used from one goroutine at a time.
type Reader struct {
	header   Header
	in       *bufio.Scanner
	number   int           // number of the last line that was read, from 1
	last     time.Duration // time of the last record
	memory   memory
	snapshot snapshotAssembly
	ended    bool
	file     *os.File // the file to close; nil: NewReader made the Reader
}

// NewReader returns a Reader of r. It reads the header, and fails where that is missing, of another format, or
// has an unknown clock.
func NewReader(r io.Reader) (*Reader, error) {
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 0, 64<<10), MaxLine+1)
	hr := &Reader{in: in, memory: newMemory()}
	text, err := hr.nextLine()
	if errors.Is(err, io.EOF) {
		err = errors.New("the file is empty")
	}
	if err == nil {
		err = checkFormat(text)
	}
	if err == nil {
		err = decodeStrict(text, &hr.header)
	}
	if c := hr.header.Clock; err == nil && c != Virtual && c != Real {
		err = fmt.Errorf("unknown clock %q", c)
	}
	if err != nil {
		return nil, fmt.Errorf("read the header of a history: %w", err)
	}
	return hr, nil
}

// Header returns the header that NewReader read.
func (r *Reader) Header() Header { return r.header }

// Next returns the next record. After the End it returns io.EOF. Where the history stops without an End it
// returns ErrCutShort.
func (r *Reader) Next() (Record, error) {
	for {
		text, err := r.nextLine()
		if errors.Is(err, io.EOF) && !r.ended {
			return Record{}, ErrCutShort
		}
		if errors.Is(err, io.EOF) {
			return Record{}, io.EOF
		}
		var rec Record
		if err == nil {
			rec, err = r.parseRecord(text)
		}
		if err != nil {
			return Record{}, fmt.Errorf("read history, line %d: %w", r.number, err)
		}
		if rec.kindCount() > 0 {
			return rec, nil
		} // else it is a part of a snapshot that is not complete
	}
}

// ForEach calls f with each remaining record. It stops at the first error of reading or of f, and returns it:
// ErrCutShort where the history has no End.
func (r *Reader) ForEach(f func(*Record) error) error {
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = f(&rec)
		}
		if err != nil {
			return err
		}
	}
}

// parseRecord decodes a line, checks its time and kind, and returns its record. The record is empty for a part
// of a snapshot that is not complete.
func (r *Reader) parseRecord(text []byte) (Record, error) {
	if r.ended {
		return Record{}, errors.New("a record stands behind the end")
	}
	var l line
	if err := decodeStrict(text, &l); err != nil {
		return Record{}, fmt.Errorf("%w: the line is damaged, or a newer program wrote it", err)
	}
	if l.At < r.last {
		return Record{}, fmt.Errorf("a record at %s stands behind one at %s", l.At, r.last)
	}
	if l.At > MaxLength {
		return Record{}, fmt.Errorf("a record at %s is beyond any run's end", l.At)
	}
	r.last = l.At
	if err := l.validateKinds(r.snapshot.snapshot != nil); err != nil {
		return Record{}, err
	}
	if err := r.memory.recordJobVersions(l.Bodies); err != nil {
		return Record{}, err
	}
	return r.restoreRecord(&l)
}

// restoreRecord returns the record that the Writer was given for a line, and updates the memory that later
// lines depend on.
func (r *Reader) restoreRecord(l *line) (Record, error) {
	rec := l.Record
	var err error
	switch {
	case l.Picture != nil:
		rec.Picture, err = r.snapshot.addPart(&r.memory, l.Picture)
	case l.Hub != nil:
		rec.Hub = r.memory.applyHubChange(l.Hub)
	case l.Still != nil:
		rec.Edge, err = r.memory.restoreUnchangedEdge(l.Still)
	case rec.Edge != nil:
		r.memory.rememberAndCompareEdge(rec.Edge)
	case l.Applied != nil:
		rec.Applied = l.Applied.restoreApplied(&r.memory)
	case rec.End != nil:
		r.ended = true
		if !rec.End.Outcome.isKnownOutcome() {
			err = fmt.Errorf("unknown outcome %q", rec.End.Outcome)
		}
	}
	return rec, err
}

// validateKinds checks that a line is of exactly one kind. Where within is true a snapshot is not complete, and
// only a part of it may follow.
func (l *line) validateKinds(within bool) error {
	kinds := l.Record.kindCount()
	for _, set := range []bool{l.Applied != nil, l.Hub != nil, l.Still != nil, l.Picture != nil} {
		if set {
			kinds++
		}
	}
	if kinds != 1 {
		return fmt.Errorf("a record has %d kinds, not one", kinds)
	}
	if within && l.Picture == nil {
		return errors.New("a snapshot is not complete")
	}
	return nil
}

// nextLine reads the next line, which is valid until the next call; io.EOF after the last one. A line longer
// than MaxLine is an error.
func (r *Reader) nextLine() ([]byte, error) {
	r.number++
	if r.in.Scan() {
		return r.in.Bytes(), nil
	}
	if err := r.in.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("it is longer than %d bytes", MaxLine)
	} else if err != nil {
		return nil, err
	}
	return nil, io.EOF
}

// decodeStrict decodes exactly one JSON value into v. Unknown fields, and anything after the value, are errors.
func decodeStrict(text []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more text stands behind the value")
	}
	return nil
}
