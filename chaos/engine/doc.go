// Package engine injects a schedule's faults into a fleet, heals them, and reports both
// to the checkers. Its platforms are packages chaos/virtual (a cluster in one process, in
// virtual time) and chaos/real (real processes).
//
// The order of steps of a fault that both platforms support is here, once. A Platform has
// the single steps: kill a process, cut a link, fill a disk.
//
// Users are the clients of the fleet during a run: they carry out the schedule's steps over
// the HTTP API. Expectations compare a run with what its scenario expects.
//
// Faults.Play may be called from many goroutines, and starts none that outlives it. The
// package persists nothing.
package engine
