// Package record reads and writes the small JSON files of a task's state folder, from which a driver finds its task
// again after a restart of the agent. Each is replaced atomically, and a file that is missing or unreadable is told
// apart from a disk that fails. Drivers and supervisors call it, from any goroutine; it keeps nothing itself.
package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Max bounds a record in bytes.
const Max = 8 << 20

// ErrNone is wrapped by errors for a record that is missing or unreadable: after a loss of power it may be empty.
var ErrNone = errors.New("no valid record")

// Record is decoded by Read. ValidateRecord returns an error for a version that this release does not know, and
// for values that a driver cannot use.
type Record interface{ ValidateRecord() error }

// Replacing is durable.Replace or durable.Swap. A file that Swap wrote may be lost with the power: that is enough for
// records of running tasks, which end with the power too.
type Replacing func(path string, content []byte, mode fs.FileMode) error

// Decode decodes a record and validates it. Each error wraps ErrNone.
func Decode(b []byte, into Record) error {
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%w: %w", ErrNone, err)
	}
	if err := into.ValidateRecord(); err != nil {
		return fmt.Errorf("%w: %w", ErrNone, err)
	}
	return nil
}

// Read reads, decodes and validates a record of a state folder. The error for a missing or invalid record wraps
// ErrNone; any other error is one of the disk.
func Read(dir, name string, into Record) error {
	f, err := os.Open(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrNone, err)
	}
	if err != nil {
		return fmt.Errorf("open record: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, Max+1))
	if err != nil {
		return fmt.Errorf("read %s: %w", f.Name(), err)
	}
	if len(b) > Max {
		return fmt.Errorf("%w: %s is larger than %d bytes", ErrNone, f.Name(), Max)
	}
	return Decode(b, into)
}

// Write encodes a record and replaces its file in a state folder.
func Write(replace Replacing, dir, name string, record any) error {
	b, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	if err := replace(filepath.Join(dir, name), b, 0o600); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	return nil
}
