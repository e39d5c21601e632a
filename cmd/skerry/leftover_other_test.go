//go:build !linux

package main

import (
	"testing"
	"time"
)

// mustLeaveNothing looks for what a script left behind by /proc. Where that is not, no
// driver starts processes that outlive their edge.
func mustLeaveNothing(testing.TB, string, time.Duration) {}
