package hashchain

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
)

// Reader reads the lines of a Log in order, while others append. One goroutine uses it. It passes over lines whose file was
// removed because it was the oldest.
type Reader[E any] struct {
	log   *Log[E]
	after uint64 // number of the last line that was returned
	first uint64 // number of the first line of the file that is read
	at    uint64 // number of the next line to read in it
	start int64  // of that line in the file
	file  *os.File
	lines *bufio.Reader
}

// ReadAfter returns a Reader of the lines after a number.
func (l *Log[E]) ReadAfter(after uint64) *Reader[E] { return &Reader[E]{log: l, after: after} }

// Close closes the file. A later Next opens it again.
func (r *Reader[E]) Close() {
	if r.file != nil {
		r.file.Close() // it was only read
		r.file = nil
	}
}

// Last returns the number of the last line that Next returned, or that was removed before Next came to it.
func (r *Reader[E]) Last() uint64 { return r.after }

// Next returns the next line with its end, and io.EOF where there is none yet.
func (r *Reader[E]) Next() ([]byte, error) {
	for {
		if r.after >= r.log.Last() {
			r.Close() // what is buffered of the next line may be half of one that could not be written
			return nil, io.EOF
		}
		if r.file == nil {
			if err := r.openNext(); err != nil {
				return nil, err
			}
		}
		line, err := r.lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			ended := r.first
			r.Close()
			if err := r.openNext(); err != nil {
				return nil, err
			}
			if r.first == ended { // somebody has shortened the file
				r.Close()
				return nil, io.EOF
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		r.at++
		r.start += int64(len(line))
		if r.at-1 > r.after {
			r.after = r.at - 1
			return line, nil
		}
	}
}

// openNext opens the file that has the line after the last one, or the oldest file behind it.
func (r *Reader[E]) openNext() error {
	firsts, err := r.log.listFiles()
	if err != nil {
		return err
	}
	for len(firsts) > 1 && firsts[1] <= r.after+1 {
		firsts = firsts[1:] // all lines of the first are before
	}
	var file *os.File
	for ; len(firsts) > 0; firsts = firsts[1:] {
		if file, err = os.Open(r.log.filePath(firsts[0])); !errors.Is(err, fs.ErrNotExist) {
			break // otherwise it was the oldest one, and is removed by now
		}
	}
	if len(firsts) == 0 {
		return io.EOF
	}
	if err != nil {
		return err
	}
	if first := firsts[0]; first != r.first {
		r.first, r.at, r.start = first, first, 0
		r.after = max(r.after, first-1)
	}
	if _, err := file.Seek(r.start, io.SeekStart); err != nil {
		file.Close()
		return err
	}
	r.file, r.lines = file, bufio.NewReader(file)
	return nil
}
