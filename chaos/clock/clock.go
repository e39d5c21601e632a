// Package clock moves the wall clock of one process: a small file holds by how much,
// which the harness rewrites while the process reads it. Only what the process is
// given as its wall clock moves; what it measures with monotonic clocks does not,
// as on a machine whose clock is set.
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

// File is the path of such a file.
type File string

// maxText bounds what is read of the file, in bytes: a number of nanoseconds.
const maxText = 32

// Set moves the clock by so much from the machine's own. The file is replaced at
// once, so that nobody reads half of it.
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

// Offset is by how much the clock is moved; not at all where there is no file.
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

// Now is the time by the moved clock. It has no monotonic part: a clock that jumps
// is to be seen jumping. A file that cannot be read moves nothing.
func (f File) Now() time.Time {
	by, err := f.Offset()
	if err != nil {
		by = 0
	}
	return time.Now().Round(0).Add(by)
}
