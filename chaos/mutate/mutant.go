package mutate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"
)

// Kinds of mutants.
const (
	Comparison = "comparison" // < for <=, == for !=
	Logic      = "logic"      // && for ||, a negation removed
	Boolean    = "boolean"    // true for false
	OffByOne   = "off-by-one" // a number one larger
	Call       = "call"       // a call dropped
	Assignment = "assignment" // an assignment dropped
	Branch     = "branch"     // a branch never taken
)

// Edit replaces the bytes from Start up to End of a file by Text.
type Edit struct {
	Start, End int
	Text       string
}

// Mutant is one mistake: an edit of one file, with its description.
type Mutant struct {
	ID       string
	Kind     string
	File     string // path from the root of the module, with slashes
	Line     int
	Function string
	Before   string // the line before the edit, shortened
	After    string // the line after the edit, shortened
	Edit     Edit
}

// Package returns the folder of the mutant's file.
func (m Mutant) Package() string { return filepath.ToSlash(filepath.Dir(m.File)) }

// String returns the place and the change on one line.
func (m Mutant) String() string {
	return fmt.Sprintf("%s:%d %s: %s: %s -> %s", m.File, m.Line, m.Function, m.Kind, m.Before, m.After)
}

// Key returns the mutant's name in the list of equivalent mutants. It has no line number, so that it survives
// changes elsewhere in the file.
func (m Mutant) Key() string {
	return fmt.Sprintf("%s %s %s: %s -> %s", m.File, m.Function, m.Kind, m.Before, m.After)
}

// newID returns an id of an edit. Only the same edit of the same source gives the same id.
func newID(file string, source []byte, e Edit) string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\x00%d\x00%d\x00%s\x00", file, e.Start, e.End, e.Text)
	_, _ = sum.Write(source)
	return hex.EncodeToString(sum.Sum(nil))[:12]
}

// applyToSource returns a copy of the source with the edit.
func (e Edit) applyToSource(source []byte) []byte {
	out := append([]byte(nil), source[:e.Start]...)
	out = append(out, e.Text...)
	return append(out, source[e.End:]...)
}

// oneLine returns a text on one line of at most 90 characters, without bars, which would end a column of a Markdown
// table.
func oneLine(s string) string {
	const most = 90
	s = strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", "¦")
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
