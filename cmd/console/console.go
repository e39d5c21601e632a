// Package console is the command line of our programs. It reads flags from the arguments, the environment
// and a file, and writes tables, times, JSON and errors, for terminals and for pipes. It starts no goroutine
// and persists nothing.
package console

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"skerry/fleet"
)

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

// LocalTime writes a time as a clock on the wall here shows it.
func LocalTime(at time.Time) string { return at.Local().Format(time.DateTime) }

// LocalNano writes the time of a UnixNano as LocalTime does.
func LocalNano(n int64) string { return LocalTime(Nano(n)) }

// SinceNano says how long ago the time of a UnixNano was.
func SinceNano(n int64) string { return Ago(time.Now(), Nano(n)) }

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

// Bytes writes a number of bytes with its largest unit.
func Bytes(n uint64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.0f KiB", float64(n)/(1<<10))
}

// Counts writes the numbers that are not zero, each with the text behind it.
func Counts(pairs ...any) string {
	var parts []string
	for i := 0; i+1 < len(pairs); i += 2 {
		if n := fmt.Sprint(pairs[i]); n != "0" {
			parts = append(parts, n+" "+fmt.Sprint(pairs[i+1]))
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// WithReason writes a state, and behind it why, where that is known.
func WithReason[T ~string](state T, why string) string {
	if why == "" {
		return string(state)
	}
	return string(state) + ": " + why
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

// FailsWith is the annotation of a command whose exit code for a failure is not 1.
const FailsWith = "fails-with"

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
