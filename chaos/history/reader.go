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
	header  Header
	in      *bufio.Scanner
	number  int // of the line read last, from 1
	last    time.Duration
	memory  memory
	picture assembly
	ended   bool
	closers []io.Closer // of what Open opened
}

// NewReader begins to read a history, and reads its header.
func NewReader(r io.Reader) (*Reader, error) {
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 0, 64<<10), MaxLine+1)
	hr := &Reader{in: in, memory: newMemory()}
	text, err := hr.next()
	if errors.Is(err, io.EOF) {
		err = errors.New("it is empty")
	}
	if err == nil {
		err = sameFormat(text)
	}
	if err == nil {
		err = strictly(text, &hr.header)
	}
	if c := hr.header.Clock; err == nil && c != Virtual && c != Real {
		err = fmt.Errorf("unknown clock %q", c)
	}
	if err != nil {
		return nil, fmt.Errorf("read the header of a history: %w", err)
	}
	return hr, nil
}

// Header returns the history's first line.
func (r *Reader) Header() Header { return r.header }

// Next returns the next record; io.EOF behind an End, ErrCutShort where there is
// none.
func (r *Reader) Next() (Record, error) {
	for {
		text, err := r.next()
		if errors.Is(err, io.EOF) {
			return Record{}, r.end()
		}
		var rec Record
		if err == nil {
			rec, err = r.record(text)
		}
		if err != nil {
			return Record{}, fmt.Errorf("read history, line %d: %w", r.number, err)
		}
		if rec.kinds() > 0 {
			return rec, nil
		} // else it is a part of a picture
	}
}

// end is the error that stands for the end of the file.
func (r *Reader) end() error {
	if !r.ended {
		return ErrCutShort
	}
	return io.EOF
}

func (r *Reader) record(text []byte) (Record, error) {
	if r.ended {
		return Record{}, errors.New("a record stands behind the end")
	}
	var l line
	if err := strictly(text, &l); err != nil {
		return Record{}, fmt.Errorf("%w: it is damaged, or a newer program has written it", err)
	}
	if l.At < r.last {
		return Record{}, fmt.Errorf("a record at %s stands behind one at %s", l.At, r.last)
	}
	if l.At > MaxLength {
		return Record{}, fmt.Errorf("a record at %s is beyond any run's end", l.At)
	}
	r.last = l.At
	if err := l.sound(r.picture.picture != nil); err != nil {
		return Record{}, err
	}
	if err := r.memory.learn(l.Bodies); err != nil {
		return Record{}, err
	}
	return r.restore(&l)
}

// restore makes of a line the record that was written.
func (r *Reader) restore(l *line) (Record, error) {
	rec := l.Record
	var err error
	switch {
	case l.Picture != nil:
		rec.Picture, err = r.picture.take(&r.memory, l.Picture)
	case l.Hub != nil:
		rec.Hub = r.memory.whole(l.Hub)
	case l.Still != nil:
		rec.Edge, err = r.memory.stand(l.Still)
	case rec.Edge != nil:
		r.memory.standing(rec.Edge)
	case l.Applied != nil:
		rec.Applied = l.Applied.whole(&r.memory)
	case rec.End != nil:
		r.ended = true
		if !rec.End.Outcome.known() {
			err = fmt.Errorf("unknown outcome %q", rec.End.Outcome)
		}
	}
	return rec, err
}

// sound checks that a line is of one kind, and that nothing stands between the
// parts of a picture.
func (l *line) sound(within bool) error {
	kinds := l.Record.kinds()
	for _, set := range []bool{l.Applied != nil, l.Hub != nil, l.Still != nil, l.Picture != nil} {
		if set {
			kinds++
		}
	}
	if kinds != 1 {
		return fmt.Errorf("a record of %d kinds, not one", kinds)
	}
	if within && l.Picture == nil {
		return errors.New("a picture is not complete")
	}
	return nil
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
