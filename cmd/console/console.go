// Package console is the command line of our programs. It reads flags from the arguments, the environment
// and a file, and writes tables, times, JSON and errors, for terminals and for pipes. It starts no goroutine
// and persists nothing.
package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"skerry/fleet"
)

// Table is rows under headings, aligned when it is written. Limit bounds how many rows are
// written; the last line says how many more there are. 0 is no bound.
type Table struct {
	Heads []string
	Rows  [][]string
	Limit int
}

// Add adds a row; what is not text is written as fmt does.
func (t *Table) Add(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = strings.NewReplacer("\n", " ", "\t", " ").Replace(Plain(fmt.Sprint(c)))
	}
	t.Rows = append(t.Rows, row)
}

// Plain makes a text fit for a terminal, which takes some characters for orders: tasks, and
// what answers their checks, say what they like. New lines and tabs stay.
func Plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && unicode.IsControl(r) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// staleMark stands behind the first word of each table that may be old.
const staleMark = " (may be old)"

// Write writes the table, nothing where it has no rows. States have colours where w has them,
// and the first line says where what is written to w may be old.
func (t *Table) Write(w io.Writer) error {
	if len(t.Rows) == 0 {
		return nil
	}
	rows, hidden := t.Rows, 0
	if t.Limit > 0 && len(rows) > t.Limit {
		rows, hidden = rows[:t.Limit], len(rows)-t.Limit
	}
	all := rows
	if len(t.Heads) > 0 {
		all = append([][]string{t.Heads}, rows...)
	}
	if IsStale(w) && len(all[0]) > 1 {
		all = append([][]string{slices.Clone(all[0])}, all[1:]...)
		first := slices.IndexFunc(all[0], func(cell string) bool { return strings.TrimSpace(cell) != "" })
		all[0][max(first, 0)] += staleMark
	}
	widths := columnWidths(all)
	colours := HasColours(w)
	for _, row := range all {
		var line strings.Builder
		for i, cell := range row {
			shown := cell
			if colours && t.isState(row, i) {
				shown = stateColour(cell)
			}
			line.WriteString(shown)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	if hidden == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "… and %d more\n", hidden)
	return err
}

// columnWidths is how many characters the longest cell of each column has. The last cell of a
// row needs no width of its own.
func columnWidths(rows [][]string) []int {
	var widths []int
	for _, row := range rows {
		for i, cell := range row[:max(len(row)-1, 0)] {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

// isState reports whether a cell says in which state something is: it is in a column STATUS, or
// in a table without heads behind the word Status.
func (t *Table) isState(row []string, column int) bool {
	if len(t.Heads) > 0 {
		return column < len(t.Heads) && t.Heads[column] == "STATUS"
	}
	return column == 1 && row[0] == "Status"
}

// JSON writes a value as indented JSON.
func JSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// IsTerminal reports whether w is a terminal, and how many rows and columns it has.
func IsTerminal(w io.Writer) (columns, rows int, ok bool) {
	if o, wrapped := w.(*Output); wrapped {
		w = o.Writer
	}
	f, isFile := w.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return 0, 0, false
	}
	columns, rows, err := term.GetSize(int(f.Fd()))
	return columns, rows, err == nil
}

// LocalTime writes a time as a clock on the wall here shows it.
func LocalTime(at time.Time) string { return at.Local().Format(time.DateTime) }

// Ago says how long ago something was, "never" for the zero time.
func Ago(now, at time.Time) string {
	if at.IsZero() {
		return "never"
	}
	return Span(now.Sub(at)) + " ago"
}

// Span writes a duration with its two largest units.
func Span(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + Span(-d)
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}

// Count writes a number of things: "1 node", "2 nodes".
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Nano is the time of a UnixNano, zero for 0.
func Nano(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n)
}

// Hint writes what the reader may do now, on a line of its own: the one form that hints have.
func Hint(w io.Writer, format string, args ...any) {
	fmt.Fprintf(w, "Hint: %s\n", Plain(fmt.Sprintf(format, args...)))
}

// ExitError ends the program with a code of its own. Silent ones say nothing more.
type ExitError struct {
	Code   int
	Err    error
	Hint   string // "": the one that Err has
	Silent bool
}

// Error returns the text of Err.
func (e *ExitError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *ExitError) Unwrap() error { return e.Err }

// Fail writes an error for people, its hint on a line of its own, and returns the
// program's exit code: 1 unless the error has one.
func Fail(w io.Writer, program string, err error) int {
	code, hint := 1, ""
	var exit *ExitError
	if errors.As(err, &exit) {
		code, hint = exit.Code, exit.Hint
		if exit.Silent {
			return code
		}
	}
	message := err.Error()
	var e *fleet.Error
	if errors.As(err, &e) && e.Hint != "" && hint == "" {
		hint, message = e.Hint, strings.Replace(message, " ("+e.Hint+")", "", 1)
	}
	fmt.Fprintf(w, "%s: %s\n", program, Plain(message))
	if hint != "" {
		Hint(w, "%s", hint)
	}
	return code
}
