// Package rehearse answers what would happen to somebody's own jobs on somebody's own
// fleet: what keeps running, what is replaced, where and when, and what is lost. It
// turns job files and a description of a fleet into a schedule, plays it in virtual
// time, and reads the answer from the history; Compare holds such an answer against
// the one that a run of real processes gave.
//
// Placement, absence rules, restarts and reschedules are those of production. Tasks
// are not: the driver sim takes the place of a job's own drivers.
//
// A rehearsal is played in a process of its own, a Worker, since a bubble of virtual
// time is a process. It starts no goroutines that outlive a call, and what it writes
// below Config.Dir is gone when it returns.
package rehearse
