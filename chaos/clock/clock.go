// Package clock moves the wall clock of one process. A small file has the offset; the
// harness rewrites it while the process reads it. Only the clock that the process gets
// from File.Now moves. Monotonic clocks do not, as on a machine whose clock is set.
//
// Package chaos/real writes the file, and skerry-chaos's own hub and edge read it. It
// starts no goroutine and persists that file.
package clock

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// File is the path of a file with a clock's offset.
type File string

// maxText is the maximum size of the file, in bytes. It has a number of nanoseconds.
const maxText = 32

// Set sets the offset from the machine's clock. It replaces the file atomically.
func (f File) Set(by time.Duration) error {
	next := string(f) + ".new"
	if err := os.WriteFile(next, []byte(strconv.FormatInt(int64(by), 10)+"\n"), 0o644); err != nil {
		return fmt.Errorf("move a clock: %w", err)
	}
	if err := os.Rename(next, string(f)); err != nil {
		return fmt.Errorf("move a clock: %w", err)
	}
	return nil
}

// Offset returns the offset; 0 if the file does not exist.
func (f File) Offset() (time.Duration, error) {
	in, err := os.Open(string(f))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read a moved clock: %w", err)
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, maxText+1))
	if err != nil {
		return 0, fmt.Errorf("read a moved clock: %w", err)
	}
	return parse(string(text))
}

// parse reads the content of the file.
func parse(text string) (time.Duration, error) {
	if len(text) > maxText {
		return 0, fmt.Errorf("read a moved clock: more than %d bytes", maxText)
	}
	by, err := strconv.ParseInt(strings.TrimSuffix(text, "\n"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read a moved clock: %w", err)
	}
	return time.Duration(by), nil
}

// Now returns the machine's time plus the offset, without a monotonic reading, so that a jump of the
// clock shows. If the file cannot be read, the offset is 0.
func (f File) Now() time.Time {
	by, err := f.Offset()
	if err != nil {
		by = 0
	}
	return time.Now().Round(0).Add(by)
}
