// Package console writes what the commands have to say: tables, times, JSON and
// errors, for terminals and for pipes. It starts no goroutine and persists nothing.
package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

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

// Write writes the table, nothing where it has no rows.
func (t *Table) Write(w io.Writer) error {
	if len(t.Rows) == 0 {
		return nil
	}
	var text strings.Builder
	tw := tabwriter.NewWriter(&text, 0, 8, 2, ' ', 0)
	if len(t.Heads) > 0 {
		fmt.Fprintln(tw, strings.Join(t.Heads, "\t"))
	}
	rows, hidden := t.Rows, 0
	if t.Limit > 0 && len(rows) > t.Limit {
		rows, hidden = rows[:t.Limit], len(rows)-t.Limit
	}
	for _, row := range rows {
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if hidden > 0 {
		fmt.Fprintf(&text, "… and %d more\n", hidden)
	}
	for line := range strings.Lines(text.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
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

// ExitError ends the program with a code of its own. Silent ones say nothing more.
type ExitError struct {
	Code   int
	Err    error
	Silent bool
}

func (e *ExitError) Error() string { return e.Err.Error() }
func (e *ExitError) Unwrap() error { return e.Err }

// Fail writes an error for people, its hint on a line of its own, and returns the
// program's exit code: 1 unless the error has one.
func Fail(w io.Writer, program string, err error) int {
	code := 1
	var exit *ExitError
	if errors.As(err, &exit) {
		code = exit.Code
		if exit.Silent {
			return code
		}
	}
	var e *fleet.Error
	if errors.As(err, &e) && e.Hint != "" {
		message := strings.Replace(err.Error(), " ("+e.Hint+")", "", 1)
		fmt.Fprintf(w, "%s: %s\n%s  hint: %s\n", program, Plain(message), strings.Repeat(" ", len(program)), Plain(e.Hint))
		return code
	}
	fmt.Fprintf(w, "%s: %s\n", program, Plain(err.Error()))
	return code
}
