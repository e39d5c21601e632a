//go:build !planted

package planted

// On reports whether a bug is planted: never, and the compiler knows it.
func On(Bug) bool { return false }

// Environ is what a child process needs to have the same bug: nothing.
func Environ() []string { return nil }
