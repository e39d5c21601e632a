package fleet

import "io"

// TerminalSize is a terminal's, in characters.
type TerminalSize struct{ Width, Height uint16 }

// Exec is a command that is run where a task runs, and what it is connected to.
type Exec struct {
	Command []string // a program, found as a task's own, and its arguments
	// Action is run instead of Command: it names one of the task's, in the version of the
	// job that its edge has, and ${…} in it is replaced as in the task's own config.
	Action string
	TTY    bool // it has a terminal of its own, whose output is Stdout
	// Stdin is closed by whoever runs the command once that has ended: a Read in
	// progress must end then.
	Stdin          io.ReadCloser
	Stdout, Stderr io.Writer
	// Sizes are what the terminal takes, one after the other; nil: it stays as it is.
	Sizes <-chan TerminalSize
}
