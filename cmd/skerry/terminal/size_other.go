//go:build !unix

package terminal

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/term"

	"skerry/fleet"
)

// driveTerminal hands a terminal over to a command. Its size is told once: this
// system does not say when it changes.
func driveTerminal(_ context.Context, tty *os.File) (restore func(), sizes <-chan fleet.TerminalSize, err error) {
	before, err := term.MakeRaw(int(tty.Fd()))
	if err != nil {
		return nil, nil, fmt.Errorf("run a command on this terminal: %w", err)
	}
	out := make(chan fleet.TerminalSize, 1)
	if columns, rows, err := term.GetSize(int(tty.Fd())); err == nil {
		out <- fleet.TerminalSize{Width: uint16(columns), Height: uint16(rows)}
	}
	return func() { _ = term.Restore(int(tty.Fd()), before) }, out, nil
}
