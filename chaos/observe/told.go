package observe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"skerry/chaos/check"
	"skerry/fleet"
	"skerry/hub/consensus"
)

// A hub in a process of its own writes each entry that it applies as a line of a file. The harness reads the file in
// place of the hub's memory, also after a kill.

// EntryWriter writes the entries that a hub applies into a file, as JSON lines.
type EntryWriter struct {
	hub string
	out *os.File
}

// NewEntryWriter opens a file to append a hub's entries, and creates a missing one. It first completes a line that a
// kill cut off. The caller must call Close.
func NewEntryWriter(hub, path string) (*EntryWriter, error) {
	out, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("write the entries of hub %s: %w", hub, err)
	}
	if _, err := out.Write([]byte("\n")); err != nil {
		return nil, errors.Join(fmt.Errorf("write the entries of hub %s: %w", hub, err), out.Close())
	}
	return &EntryWriter{hub: hub, out: out}, nil
}

// WriteEntry appends an entry with its effects. Calls must be in the order of entries, from one goroutine at a time.
func (t *EntryWriter) WriteEntry(a consensus.Applied) error {
	line, err := json.Marshal(Applied(t.hub, a, true))
	if err != nil {
		return fmt.Errorf("write entry %d: %w", a.Index, err)
	}
	if _, err := t.out.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write entry %d: %w", a.Index, err)
	}
	return nil
}

// Close closes the file.
func (t *EntryWriter) Close() error { return t.out.Close() }

// errNotAnEntry is the error of a line that is no entry of the hub and was not cut off by a kill.
var errNotAnEntry = errors.New("a line is no entry")

// EntryReader reads the entries that a hub writes into a file.
type EntryReader struct {
	hub  string
	tail FileTail
}

// NewEntryReader returns a reader from the beginning of a file, which may not exist yet.
func NewEntryReader(hub, path string) *EntryReader {
	return &EntryReader{hub: hub, tail: FileTail{Path: path}}
}

// Next calls each with every entry that was written since the last call. Effects are decoded only of entries
// for which wants is true.
func (t *EntryReader) Next(wants func(fleet.Index) bool, each func(*check.Applied)) error {
	err := t.tail.Next(func(line []byte) error { return t.decodeEntryLine(line, wants, each) })
	if err != nil {
		return fmt.Errorf("read the entries of hub %s: %w", t.hub, err)
	}
	return nil
}

// decodeEntryLine decodes a line and calls each with its entry. It ignores empty lines, and lines that a kill
// cut off: the hub writes that entry again after its start.
func (t *EntryReader) decodeEntryLine(line []byte, wants func(fleet.Index) bool, each func(*check.Applied)) error {
	text := bytes.TrimSpace(line)
	if len(text) == 0 {
		return nil
	}
	var told struct {
		check.Applied
		Effects json.RawMessage
	}
	err := json.Unmarshal(text, &told)
	if end := new(json.SyntaxError); errors.As(err, &end) && int(end.Offset) >= len(text) {
		return nil
	}
	a := told.Applied
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errNotAnEntry, err)
	case a.Index == 0 || a.Hub != t.hub:
		return fmt.Errorf("%w of this hub: index %d of hub %q", errNotAnEntry, a.Index, a.Hub)
	case wants(a.Index):
		if err := json.Unmarshal(told.Effects, &a.Effects); err != nil {
			return fmt.Errorf("%w: its effects: %w", errNotAnEntry, err)
		}
	}
	each(&a)
	return nil
}
