// Package terminal runs a command in a task with the terminal of this process. Run starts a goroutine
// that tells the size of the terminal, which ends with it. Nothing is persisted.
package terminal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/fleet"
)

// Flags say how a command is connected.
type Flags struct {
	Task        string
	interactive bool
	tty         bool
	escape      string
}

// AddFlags gives a command the flags; task says what that one is for.
func (f *Flags) AddFlags(c *cobra.Command, task string) {
	flags := c.Flags()
	flags.StringVar(&f.Task, "task", "", task)
	flags.BoolVarP(&f.interactive, "interactive", "i", true, "pass standard input to the command")
	flags.BoolVarP(&f.tty, "tty", "t", true, "give the command a terminal (default: if it is run on one)")
	flags.Lookup("tty").DefValue = "false" // the help shows none: Run decides
	flags.StringVarP(&f.escape, "escape", "e", "~", `character that ends the session if it is typed with a dot at the start of a line; "none": no character does`)
	// The group's --template has the same short name, and nothing to write here.
	flags.String("template", "", "")
	console.HideFlag(flags, "template")
}

func isTerminal(of io.Reader) bool {
	f, ok := of.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func isOutputTerminal(w io.Writer) bool {
	_, _, ok := console.IsTerminal(w)
	return ok
}

// Run runs a command with the terminal of this one, and ends with its exit code.
func (f *Flags) Run(c *command.Call, run func(context.Context, client.ExecOptions, fleet.Exec) (int, error)) error {
	leave, err := f.escapeCharacter()
	if err != nil {
		return err
	}
	if !c.Flags().Changed("tty") {
		f.tty = f.interactive && isTerminal(c.InOrStdin()) && isOutputTerminal(c.Out)
	}
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	x := fleet.Exec{Stdin: io.NopCloser(io.MultiReader()), Stdout: c.Out, Stderr: c.ErrOrStderr()}
	in := c.InOrStdin()
	var left atomic.Bool // what is typed may be read on when the command has ended
	if f.interactive {
		x.Stdin = io.NopCloser(in)
	}
	if raw := f.tty && f.interactive && isTerminal(in); raw {
		restore, sizes, err := driveTerminal(ctx, in.(*os.File))
		if err != nil {
			return err
		}
		defer restore()
		x.Sizes = sizes
		if leave != 0 {
			x.Stdin = io.NopCloser(&escapeReader{from: in, char: leave, onLeave: func() { left.Store(true); cancel() }})
		}
	}
	code, err := run(ctx, client.ExecOptions{Task: f.Task, TTY: f.tty}, x)
	switch {
	case left.Load() && errors.Is(err, context.Canceled):
		return nil
	case err != nil:
		return err
	case code != 0:
		return &console.ExitError{Code: code, Err: fmt.Errorf("the command ended with exit code %d", code), Silent: true}
	}
	return nil
}

// escapeCharacter is the escape character; 0: there is none.
func (f *Flags) escapeCharacter() (byte, error) {
	switch {
	case f.escape == "none":
		return 0, nil
	case len(f.escape) == 1:
		return f.escape[0], nil
	}
	return 0, fleet.Errorf(fleet.CodeInvalid, `run a command: the escape character %q is neither one character nor "none"`, f.escape)
}

// escapeReader looks for the escape character at the start of a line: with a dot behind
// it, it leaves; twice, it is typed once.
type escapeReader struct {
	from    io.Reader
	char    byte
	onLeave func()

	inLine       bool // something of this line was typed
	pending      bool // the character was, and nothing behind it yet
	pendingInput []byte
}

func (e *escapeReader) Read(b []byte) (int, error) {
	for len(e.pendingInput) == 0 {
		n, err := e.from.Read(b)
		e.pendingInput = e.filterTyped(b[:n])
		if err != nil && len(e.pendingInput) == 0 {
			return 0, err
		}
	}
	n := copy(b, e.pendingInput)
	e.pendingInput = e.pendingInput[n:]
	return n, nil
}

// filterTyped returns what of typed is for the command.
func (e *escapeReader) filterTyped(typed []byte) []byte {
	out := make([]byte, 0, 2*len(typed))
	for _, c := range typed {
		switch {
		case e.pending && c == '.':
			e.onLeave()
			return out
		case e.pending:
			e.pending = false
			out = append(out, e.char)
			if c == e.char {
				e.inLine = true
				continue
			}
		case !e.inLine && c == e.char:
			e.pending = true
			continue
		}
		out = append(out, c)
		e.inLine = c != '\r' && c != '\n'
	}
	return out
}
