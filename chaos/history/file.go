package history

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// compressed is the suffix of the names of compressed files.
const compressed = ".gz"

// Create creates or truncates a history's file and writes its header. The file is compressed where its name
// ends in .gz. The caller has to call Close.
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
		out, closers = z, []io.Closer{z, f}
	}
	w, err := NewWriter(out, h)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	w.closers = closers
	return w, nil
}

// Close flushes the history, and closes the file if Create made the Writer. It adds no End.
func (w *Writer) Close() error {
	err := w.Flush()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.closers {
		err = errors.Join(err, c.Close())
	}
	w.closers = nil
	return err
}

// Open opens a history's file, decompresses it where its name ends in .gz, and reads its header. The caller has
// to call Close.
func Open(path string) (*Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open history: %w", err)
	}
	in := io.Reader(f)
	if strings.HasSuffix(path, compressed) {
		in, err = gzip.NewReader(bufio.NewReader(f))
	}
	var r *Reader
	if err == nil {
		r, err = NewReader(in)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open history %s: %w", path, err), f.Close())
	}
	r.file = f
	return r, nil
}

// Close closes the file that Open opened; without one it does nothing.
func (r *Reader) Close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}
