package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// ErrCutShort is what Reader returns where a history stops without an End: its
// run was ended from outside, or never finished.
var ErrCutShort = errors.New("the history was cut short: it has no end")

// Reader reads a history, line by line.
type Reader struct {
	header Header
	in     *bufio.Scanner
	number int // of the line read last, from 1
	last   time.Duration
	ended  bool
}

// NewReader begins to read a history, and reads its header.
func NewReader(r io.Reader) (*Reader, error) {
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 0, 64<<10), MaxLine+1)
	hr := &Reader{in: in}
	text, err := hr.next()
	if errors.Is(err, io.EOF) {
		err = errors.New("it is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	if err := sameFormat(text); err != nil {
		return nil, fmt.Errorf("read the history's header: %w", err)
	}
	if err := strictly(text, &hr.header); err != nil {
		return nil, fmt.Errorf("read the history's header: %w", err)
	}
	if c := hr.header.Clock; c != Virtual && c != Real {
		return nil, fmt.Errorf("read the history's header: unknown clock %q", c)
	}
	return hr, nil
}

// Header returns the history's first line.
func (r *Reader) Header() Header { return r.header }

// Next returns the next record; io.EOF behind an End, ErrCutShort where there is
// none.
func (r *Reader) Next() (Record, error) {
	text, err := r.next()
	if errors.Is(err, io.EOF) && !r.ended {
		return Record{}, ErrCutShort
	}
	if errors.Is(err, io.EOF) {
		return Record{}, io.EOF
	}
	if err != nil {
		return Record{}, fmt.Errorf("read history, line %d: %w", r.number, err)
	}
	rec, err := r.record(text)
	if err != nil {
		return Record{}, fmt.Errorf("read history, line %d: %w", r.number, err)
	}
	return rec, nil
}

func (r *Reader) record(text []byte) (Record, error) {
	if r.ended {
		return Record{}, errors.New("a record stands behind the end")
	}
	var l line
	if err := strictly(text, &l); err != nil {
		return Record{}, err
	}
	if l.At < r.last {
		return Record{}, fmt.Errorf("a record at %s stands behind one at %s", l.At, r.last)
	}
	r.last = l.At
	decode, known := decoders[l.Kind]
	if !known {
		return Record{}, fmt.Errorf("unknown kind of record %q: a newer program may have written it", l.Kind)
	}
	e, err := decode(l.Event)
	if err != nil {
		return Record{}, fmt.Errorf("%s: %w", l.Kind, err)
	}
	_, r.ended = e.(End)
	return Record{At: l.At, Event: e}, nil
}

// next returns the next line, which is valid until the next call.
func (r *Reader) next() ([]byte, error) {
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

// Kinds is how many kinds of records a Reader knows.
func Kinds() int { return len(decoders) }

// decoders read the events of each kind.
var decoders = map[Kind]func(json.RawMessage) (Event, error){
	KindFault:     decode[Fault],
	KindFaultEnd:  decode[FaultEnd],
	KindOperation: decode[Operation],
	KindEnrolled:  decode[Enrolled],
	KindNode:      decode[Node],
	KindLeader:    decode[Leader],
	KindAlloc:     decode[Alloc],
	KindSession:   decode[Session],
	KindJournal:   decode[Journal],
	KindProcess:   decode[Process],
	KindTask:      decode[Task],
	KindRefused:   decode[Refused],
	KindViolation: decode[Violation],
	KindVerdict:   decode[Verdict],
	KindSometimes: decode[Sometimes],
	KindNote:      decode[Note],
	KindEnd:       decode[End],
}

func decode[E Event](text json.RawMessage) (Event, error) {
	var e E
	if len(text) == 0 {
		return nil, errors.New("the event is missing")
	}
	if err := strictly(text, &e); err != nil {
		return nil, err
	}
	return e, nil
}

// strictly decodes one JSON value that has no unknown fields and nothing behind it.
func strictly(text []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something stands behind the value")
	}
	return nil
}
