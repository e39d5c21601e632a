//go:build unix

package terminal

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/term"

	"skerry/fleet"
)

// driveTerminal hands a terminal over to a command: what is typed is not looked at
// here, and its size is told whenever it changes. restore gives it back.
func driveTerminal(ctx context.Context, tty *os.File) (restore func(), sizes <-chan fleet.TerminalSize, err error) {
	before, err := term.MakeRaw(int(tty.Fd()))
	if err != nil {
		return nil, nil, fmt.Errorf("run a command on this terminal: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	changed := make(chan os.Signal, 1)
	changed <- syscall.SIGWINCH // its size now
	signal.Notify(changed, syscall.SIGWINCH)
	out := make(chan fleet.TerminalSize)
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
			columns, rows, err := term.GetSize(int(tty.Fd()))
			if err != nil {
				continue // a terminal that does not say has the size that it had
			}
			select {
			case out <- fleet.TerminalSize{Width: uint16(columns), Height: uint16(rows)}:
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		signal.Stop(changed)
		cancel()
		watching.Wait()
		_ = term.Restore(int(tty.Fd()), before) // a terminal that is gone needs nothing
	}, out, nil
}
