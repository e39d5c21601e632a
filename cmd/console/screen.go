package console

import (
	"fmt"
	"slices"
	"strings"
)

// Screen writes a text over the one that it wrote before, where the output is a terminal.
type Screen struct {
	Out     *Output
	columns int // of the terminal; 0: it is none
	height  int
	lines   int // on the screen now
}

// NewScreen is a screen on an output.
func NewScreen(out *Output) *Screen {
	s := &Screen{Out: out}
	if columns, rows, ok := IsTerminal(out); ok {
		s.columns, s.height = columns, rows
	}
	return s
}

// IsTerminal reports whether the screen can be written over.
func (s *Screen) IsTerminal() bool { return s.columns > 0 }

// WriteOver writes a text over the one before.
func (s *Screen) WriteOver(write func(out *Output)) {
	var text strings.Builder
	out := &Output{Writer: &text}
	out.SetStale(isStale(s.Out))
	write(out)
	s.redrawLines(strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n"))
}

// redrawLines writes lines over those that it wrote before, as many as the terminal has.
func (s *Screen) redrawLines(lines []string) {
	if room := max(s.height-2, 1); len(lines) > room {
		hidden := len(lines) - room + 1
		lines = append(slices.Clone(lines[:room-1]), fmt.Sprintf("… and %d more", hidden))
	}
	var b strings.Builder
	if s.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\x1b[J", s.lines)
	}
	for _, line := range lines {
		if r := []rune(line); s.columns > 0 && len(r) > s.columns-1 {
			line = string(r[:s.columns-1])
		}
		b.WriteString(line + "\n")
	}
	s.lines = len(lines)
	fmt.Fprint(s.Out, b.String())
}
