package docker_test

import (
	"fmt"
	"syscall"
	"testing"
)

// mustNamespace returns the name of a network namespace, as /proc/self/ns/net links to it.
func mustNamespace(tb testing.TB, path string) string {
	tb.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		tb.Fatal(err)
	}
	return fmt.Sprintf("net:[%d]", st.Ino)
}
