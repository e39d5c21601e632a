package history

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// compressed is how the names of compressed files end.
const compressed = ".gz"

// Create begins a history in a new file, compressed where its name ends in .gz.
// Close completes it.
func Create(path string, h Header) (*Writer, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("create history: %w", err)
	}
	out, closers := io.Writer(f), []io.Closer{f}
	if strings.HasSuffix(path, compressed) {
		z, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		out, closers = z, []io.Closer{f, z}
	}
	w, err := NewWriter(out, h)
	if err != nil {
		return nil, errors.Join(err, closeAll(closers))
	}
	w.closers = closers
	return w, nil
}

// Close flushes the history and closes the file that Create made.
func (w *Writer) Close() error {
	err := w.Flush()
	w.mu.Lock()
	defer w.mu.Unlock()
	err = errors.Join(err, closeAll(w.closers))
	w.closers = nil
	return err
}

// Open begins to read a history's file, compressed or not. Close closes it.
func Open(path string) (*Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open history: %w", err)
	}
	in, closers := io.Reader(f), []io.Closer{f}
	if strings.HasSuffix(path, compressed) {
		z, err := gzip.NewReader(bufio.NewReader(f))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open history %s: %w", path, err), f.Close())
		}
		in, closers = z, []io.Closer{f, z}
	}
	r, err := NewReader(in)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open history %s: %w", path, err), closeAll(closers))
	}
	r.closers = closers
	return r, nil
}

// Close closes the file that Open opened.
func (r *Reader) Close() error {
	err := closeAll(r.closers)
	r.closers = nil
	return err
}

// closeAll closes in reverse.
func closeAll(closers []io.Closer) error {
	var errs []error
	for _, c := range slices.Backward(closers) {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
