//go:build planted

package planted

import (
	"fmt"
	"os"
	"slices"
	"sync/atomic"
)

// Environment names the bug that a process of a tagged build starts with.
const Environment = "SKERRY_PLANTED"

// active is the bug that is planted, nil: none. reached counts how often it had
// its way.
var (
	active  = fromEnvironment()
	reached atomic.Uint64
)

func fromEnvironment() *atomic.Pointer[Bug] {
	var p atomic.Pointer[Bug]
	if b := Bug(os.Getenv(Environment)); b != "" {
		mustBeKnown(b)
		p.Store(&b)
	}
	return &p
}

// mustBeKnown panics for a bug that nobody wrote: a run with it would prove
// nothing.
func mustBeKnown(b Bug) {
	if !slices.ContainsFunc(catalogue, func(e Entry) bool { return e.Bug == b }) {
		panic(fmt.Sprintf("plant %q: there is no such bug", b))
	}
}

// On reports whether b is the bug that is planted.
func On(b Bug) bool {
	now := active.Load()
	if now == nil || *now != b {
		return false
	}
	reached.Add(1)
	return true
}

// Plant plants b, in place of what was planted, until restore is called. Reached
// counts from here on.
func Plant(b Bug) (restore func()) {
	mustBeKnown(b)
	before := active.Swap(&b)
	reached.Store(0)
	return func() { active.Store(before) }
}

// Reached is how often the planted bug's place was passed: where it never was, a
// run says nothing about the checkers.
func Reached() uint64 { return reached.Load() }

// Environ is what a child process needs to have the same bug.
func Environ() []string {
	if now := active.Load(); now != nil {
		return []string{Environment + "=" + string(*now)}
	}
	return nil
}
