// Package real runs fleets of real processes, injects faults, and judges the observations
// with package chaos/check. Campaign plays scenarios and drawn schedules: many faults at a
// time, of every kind that real processes allow. Each of the other runs measures one
// guarantee. The command skerry-chaos calls them.
//
// A run persists the files of its fleet in a directory of its own, which is kept if
// it found a violation.
package real
