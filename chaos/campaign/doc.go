// Package campaign plays many schedules in virtual time, each in a process of its own:
// drawn from seeds, or scenarios from files. It judges what came of them, keeps what
// failed, looks for the shortest schedule that still fails, and sums up.
//
// Command skerry-chaos is its user, on both sides: a Campaign starts the program again
// as a player (Worker), one process a run. So a run that panics, leaks or hangs ends
// alone, two runs use two cores without sharing a garbage collector, and no run sees
// another's memory. What a run leaves is below Config.Dir; its data directories are in
// memory while it goes on.
package campaign
