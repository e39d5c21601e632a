// Package ownthread runs code on a thread of its own, whose namespaces the code may change.
package ownthread

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Run calls do on a thread that ends afterwards, and with it all that do changed of the thread. It is never the main
// thread: that one ends only with the process, and its namespaces are the ones that /proc/self shows.
func Run(do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			defer runtime.UnlockOSThread()
			done <- Run(do) // on another thread, because this goroutine keeps the main one
			return
		}
		done <- do() // the thread is never unlocked: it ends with this goroutine
	}()
	return <-done
}
