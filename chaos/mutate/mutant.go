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

// Edit replaces the bytes from Start to End of a file.
type Edit struct {
	Start, End int
	Text       string
}

// Mutant is one mistake.
type Mutant struct {
	ID       string
	Kind     string
	File     string // from the root of the module
	Line     int
	Function string
	Before   string // the line, or the text that is replaced
	After    string
	Edit     Edit
}

// Package is the folder of the file.
func (m Mutant) Package() string { return filepath.ToSlash(filepath.Dir(m.File)) }

// String returns the place and the change on one line.
func (m Mutant) String() string {
	return fmt.Sprintf("%s:%d %s: %s: %s -> %s", m.File, m.Line, m.Function, m.Kind, m.Before, m.After)
}

// Key names the mutant as the list of equivalent ones does: it survives a change
// elsewhere in the file.
func (m Mutant) Key() string {
	return fmt.Sprintf("%s %s %s: %s -> %s", m.File, m.Function, m.Kind, m.Before, m.After)
}

// newID is the same for the same mistake at the same place of the same source.
func newID(file string, source []byte, e Edit) string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\x00%d\x00%d\x00%s\x00", file, e.Start, e.End, e.Text)
	_, _ = sum.Write(source)
	return hex.EncodeToString(sum.Sum(nil))[:12]
}

// applyToSource returns the source with the mistake in it.
func (e Edit) applyToSource(source []byte) []byte {
	out := append([]byte(nil), source[:e.Start]...)
	out = append(out, e.Text...)
	return append(out, source[e.End:]...)
}

// oneLine shortens a text to one line.
func oneLine(s string) string {
	const most = 90
	s = strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", "¦")
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
