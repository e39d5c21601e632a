package artifacts_test

import (
	"os"
	"syscall"
	"testing"
)

func mustOwner(tb testing.TB, path string) (uid, gid int) {
	tb.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		tb.Fatal(err)
	}
	st := info.Sys().(*syscall.Stat_t)
	return int(st.Uid), int(st.Gid)
}
