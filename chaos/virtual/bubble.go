package virtual

import (
	"os"
	"testing"
	"testing/synctest"
)

// Main runs f in a bubble of virtual time, in a program that is no test, and ends the
// program: with 0 where f returned, else as package testing does. f's goroutines must
// have ended when it returns.
func Main(f func()) {
	os.Args = os.Args[:1] // the flags of package testing are not ours
	testing.Main(func(string, string) (bool, error) { return true, nil },
		[]testing.InternalTest{{Name: "virtual", F: func(t *testing.T) { Bubble(t, f) }}}, nil, nil)
}

// Bubble runs f in a bubble of virtual time.
func Bubble(t *testing.T, f func()) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { f() })
}

// Environ is the environment of a process that plays one bubble: that is one thread of
// events, and a second processor costs it more than it gives; and nobody listens whom a
// quantum computer could help.
func Environ() []string {
	return append(os.Environ(), "GOMAXPROCS=1", "GOGC=800", "GODEBUG=tlsmlkem=0")
}
