//go:build !linux

package artifacts_test

import "testing"

func mustOwner(tb testing.TB, _ string) (uid, gid int) {
	tb.Skip("written for Linux")
	return 0, 0
}
