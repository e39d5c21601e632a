//go:build !planted

package planted

// On reports whether a bug is planted: never, and the compiler knows it.
func On(Bug) bool { return false }
