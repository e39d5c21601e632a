// Package state is the replicated state of a cluster: tables in memory, and every command that changes
// them. Package hub/consensus applies commands to it on every hub, in the order of the log. All other
// components read it in snapshots (View), and wait until something that they have read changes.
//
// Applying a command is pure: the state and the command give the next state and a Result, the same on
// every hub. It reads no clock, draws no random number, and iterates no map where the order would show. It
// starts no goroutine. On disk are only the log, and the snapshots that hub/consensus writes with Persist.
package state
