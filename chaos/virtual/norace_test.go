//go:build !race

package virtual_test

import "testing"

// whole reports whether the longest tests are played at their whole length: by make
// test-long.
func whole() bool { return !testing.Short() }
