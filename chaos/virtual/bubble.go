package virtual

import (
	"fmt"
	"os"
	"testing"
	"testing/synctest"
)

// Main runs f in a bubble of virtual time, in a program that is no test, and ends the
// program, as package testing does: it never returns. An error is printed, and the program
// ends with 1. f's goroutines must have ended when it returns.
func Main(f func() error) {
	play := func() {
		if err := f(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Args = os.Args[:1] // the flags of package testing are not ours
	testing.Main(func(string, string) (bool, error) { return true, nil },
		[]testing.InternalTest{{Name: "virtual", F: func(t *testing.T) { Bubble(t, play) }}}, nil, nil)
}

// Bubble runs f in a bubble of virtual time.
func Bubble(t *testing.T, f func()) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { f() })
}
