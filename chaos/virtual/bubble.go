package virtual

import (
	"fmt"
	"os"
	"testing"
	"testing/synctest"
)

// Main runs f in a bubble of virtual time, in a program that is not a test. It never returns: it
// ends the program as package testing does, with an error of f on stderr and status 1. All
// goroutines of f must have ended when f returns.
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

// Bubble runs f in a bubble of virtual time as part of a test, and waits for its goroutines.
func Bubble(t *testing.T, f func()) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { f() })
}
