// Package cell shuts a run up: in a process tree of its own, with mounts, a network
// and names of network namespaces of its own, all of which are gone with the run
// however it ends. Mounts that a run makes are seen by nobody else, so that nobody else keeps
// a disk alive whose power it cuts.
//
// The command skerry-chaos enters a cell by starting itself once more as the first
// process of a PID namespace (Enter), which keeps house there (Keep): it starts the
// run, reaps what nobody waits for, and when the run has ended, ends with it; the
// kernel then kills everything that is left. It needs Linux and root. It persists
// nothing.
package cell
