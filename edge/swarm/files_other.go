//go:build !unix

package swarm

// raiseFileLimit does nothing on a system without a limit of open files.
func raiseFileLimit(int) error { return nil }
