//go:build race

package virtual_test

// whole reports whether the longest tests are played at their whole length, which takes
// the race detector twenty times as long.
func whole() bool { return false }
