// Package engine brings a schedule's faults about on a fleet, heals them, and tells the
// checkers of both, whatever the fleet runs on. Packages chaos/virtual and chaos/real are
// its platforms: a cluster in one process and in virtual time, and real processes.
//
// A kind of fault that both can do has its order of steps here, once. A Platform has what
// these steps are made of: to kill a process, to cut a link, to fill a disk.
//
// Users are those who use the fleet meanwhile: they take the schedule's steps over the HTTP API, which
// is the same everywhere. Expectations hold what is seen against a scenario.
//
// Faults.Play may be called from many goroutines, and starts none that outlives it. It
// persists nothing.
package engine
