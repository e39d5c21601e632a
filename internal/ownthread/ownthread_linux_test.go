package ownthread_test

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"skerry/internal/ownthread"
)

// TestRun changes the working folder of threads again and again. No other thread, and not the main one, has it changed.
func TestRun(t *testing.T) {
	home, err := os.Readlink("/proc/self/cwd")
	if err != nil {
		t.Fatal(err)
	}
	asked := errors.New("asked for")
	for range 500 {
		err := ownthread.Run(func() error {
			if unix.Gettid() == os.Getpid() {
				t.Error("runs on the main thread")
			}
			return errors.Join(unix.Unshare(unix.CLONE_FS), unix.Chdir("/"), asked)
		})
		if !errors.Is(err, asked) {
			t.Fatal(err)
		}
		for _, name := range []string{"/proc/self/cwd", "/proc/thread-self/cwd"} {
			if dir, err := os.Readlink(name); err != nil || dir != home {
				t.Fatalf("%s is %s, %v; want %s", name, dir, err, home)
			}
		}
	}
}
