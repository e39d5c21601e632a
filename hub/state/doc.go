// Package state is the replicated state of a cluster: tables in memory and every
// command that changes them. Package hub/consensus applies commands to it, in the
// log's order, on every hub; everyone else reads it, in snapshots, and waits on
// what was read to change.
//
// Applying a command is pure: state and command give the next state and a
// Result, the same on every hub. It reads no clock, draws nothing, and iterates
// no map where the order would show. It starts no goroutine; what is persisted
// is the log and the snapshots that hub/consensus takes through Persist.
package state
