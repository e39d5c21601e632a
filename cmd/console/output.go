package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"skerry/fleet"
)

// Output is where a command writes, in the form that its flags ask for. The first error of writing
// stays, and Close returns it: writes before need no check.
type Output struct {
	// Writer and Colours are set by Open, or by a caller that has no flags.
	Writer  io.Writer
	Colours bool
	// AllNamespaces is set where a command lists the objects of all namespaces.
	AllNamespaces bool

	asJSON, noColour, forceColour bool
	template                      string

	shaper *Shaper // nil: no template shapes the JSON
	stale  atomic.Bool
	err    error
}

// wholeIDs is --verbose. One process runs one command: functions that write ids need not hand it on.
var wholeIDs bool

// ID is an id for people: its beginning, or with --verbose all of it.
func ID[T ~string](id T) string {
	if wholeIDs {
		return string(id)
	}
	return fleet.Short(id)
}

// Verbose reports whether the command line has --verbose.
func Verbose() bool { return wholeIDs }

// AddFlags adds the flags that say in which form a command writes.
func (o *Output) AddFlags(flags *pflag.FlagSet) {
	o.AddJSONFlag(flags)
	flags.StringVarP(&o.template, "template", "t", "", "format the JSON output with a Go template")
	flags.BoolVarP(&wholeIDs, "verbose", "v", false, "write full ids and, of a node, its attributes")
	flags.BoolVar(&o.noColour, "no-color", false, "write no colours, also on a terminal; same as NO_COLOR in the environment")
	flags.BoolVar(&o.forceColour, "force-color", false, "write colours, also if the output is not a terminal")
}

// AddJSONFlag adds --json alone.
func (o *Output) AddJSONFlag(flags *pflag.FlagSet) {
	flags.BoolVar(&o.asJSON, "json", false, "write JSON")
}

// Open begins to write to w, in the form that the flags ask for.
func (o *Output) Open(w io.Writer) (err error) {
	o.Writer = w
	o.Colours = o.forceColour || !o.noColour && Coloured(w)
	if o.template != "" {
		o.asJSON = true
		o.shaper, err = NewShaper(w, o.template)
	}
	return err
}

// Close writes what a template shapes, and returns the error with which a command ends. That of the
// output counts more than an exit code that is no failure, as that of job plan.
func (o *Output) Close(err error) error {
	failed := o.err
	if o.shaper != nil {
		failed = errors.Join(failed, o.shaper.Close())
	}
	if failed != nil && (err == nil || errors.As(err, new(*ExitError))) {
		return failed
	}
	return err
}

// Write writes text or, where a template shapes it, JSON.
func (o *Output) Write(b []byte) (n int, err error) {
	if o.shaper != nil {
		n, err = o.shaper.Write(b)
	} else {
		n, err = o.Writer.Write(b)
	}
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// IsJSON reports whether the command writes JSON, also for a template.
func (o *Output) IsJSON() bool { return o.asJSON }

// Show writes v as JSON where that is asked for; else text writes it for people.
func (o *Output) Show(v any, text func()) {
	if o.asJSON {
		o.JSON(v)
		return
	}
	text()
}

// Say writes v as JSON where that is asked for; else a line for people.
func (o *Output) Say(v any, format string, args ...any) {
	o.Show(v, func() { o.Line(format, args...) })
}

// JSON writes a value as JSON, whatever is asked for.
func (o *Output) JSON(v any) { o.keepError(JSON(o, v)) }

// Line writes a line.
func (o *Output) Line(format string, args ...any) { fmt.Fprintf(o, format+"\n", args...) }

// Table writes a table: nothing where it has no rows.
func (o *Output) Table(t *Table) { o.keepError(t.Write(o)) }

// Hint writes what the reader may do now.
func (o *Output) Hint(format string, args ...any) { Hint(o, format, args...) }

// Marked writes lines that begin with marks: in colours where the output has them.
func (o *Output) Marked(write func(out *Output)) {
	var text strings.Builder
	write(&Output{Writer: &text})
	marked := text.String()
	if hasColours(o) {
		marked = Marked(marked)
	}
	fmt.Fprint(o, marked)
}

// keepError remembers the first error, for Close.
func (o *Output) keepError(err error) {
	if o.err == nil {
		o.err = err
	}
}

// CopyText writes a text as it comes, or as one JSON object. A reader who stops following with an
// interrupt has seen enough.
func (o *Output) CopyText(ctx context.Context, from io.Reader) error {
	if !o.asJSON {
		if _, err := io.Copy(o, from); err != nil && ctx.Err() == nil {
			return fmt.Errorf("read the task's output: %w", err)
		}
		return nil
	}
	b, err := io.ReadAll(from)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("read the task's output: %w", err)
	}
	o.JSON(struct{ Output string }{string(b)})
	return nil
}

// SetStale says whether the tables that are written from now on may be old. It is safe for
// concurrent use.
func (o *Output) SetStale(stale bool) { o.stale.Store(stale) }

// isStale reports whether what is written to w may be old.
func isStale(w io.Writer) bool {
	o, ok := w.(*Output)
	return ok && o.stale.Load()
}

// hasColours reports whether what is written to w has colours.
func hasColours(w io.Writer) bool {
	o, ok := w.(*Output)
	return ok && o.Colours && o.shaper == nil
}

// IsTerminal reports whether w is a terminal, and how many rows and columns it has.
func IsTerminal(w io.Writer) (columns, rows int, ok bool) {
	if o, wrapped := w.(*Output); wrapped {
		if o.shaper != nil {
			return 0, 0, false
		}
		w = o.Writer
	}
	f, isFile := w.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return 0, 0, false
	}
	columns, rows, err := term.GetSize(int(f.Fd()))
	return columns, rows, err == nil
}

// JSON writes a value as indented JSON.
func JSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
