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

// A hub in a process of its own tells what it applies in a file, a line an entry: who
// watches it has what one in its own process would show, however often the hub is killed.

// EntryWriter writes what a hub applies.
type EntryWriter struct {
	hub string
	out *os.File
}

// NewEntryWriter makes a Teller of a hub that goes on with the file. What a kill cut off there
// stays a line of its own.
func NewEntryWriter(hub, path string) (*EntryWriter, error) {
	out, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("tell what hub %s applies: %w", hub, err)
	}
	if _, err := out.Write([]byte("\n")); err != nil {
		return nil, errors.Join(fmt.Errorf("tell what hub %s applies: %w", hub, err), out.Close())
	}
	return &EntryWriter{hub: hub, out: out}, nil
}

// WriteEntry tells of one entry. It is called in the order of entries.
func (t *EntryWriter) WriteEntry(a consensus.Applied) error {
	line, err := json.Marshal(Applied(t.hub, a, true))
	if err != nil {
		return fmt.Errorf("tell of entry %d: %w", a.Index, err)
	}
	if _, err := t.out.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("tell of entry %d: %w", a.Index, err)
	}
	return nil
}

// Close closes the file.
func (t *EntryWriter) Close() error { return t.out.Close() }

// errNotAnEntry is a line that is no entry, and none that a kill cut off.
var errNotAnEntry = errors.New("a line is no entry")

// EntryReader reads what a hub tells in a file.
type EntryReader struct {
	hub  string
	tail FileTail
}

// NewEntryReader makes a reader that has read nothing.
func NewEntryReader(hub, path string) *EntryReader {
	return &EntryReader{hub: hub, tail: FileTail{Path: path}}
}

// Next reads what was told since the last call, and hands on each entry. Effects are read
// of those alone that wants asks for.
func (t *EntryReader) Next(wants func(fleet.Index) bool, each func(*check.Applied)) error {
	err := t.tail.Next(func(line []byte) error { return t.decodeEntryLine(line, wants, each) })
	if err != nil {
		return fmt.Errorf("read what hub %s applies: %w", t.hub, err)
	}
	return nil
}

// decodeEntryLine takes one line. Empty is the first one of each start. One that stops in the middle
// was cut off by a kill: the hub tells of that entry again when it is back.
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
