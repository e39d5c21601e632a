// Package real runs fleets of real processes, breaks them, and has package chaos/check
// judge what was seen. Campaign plays scenarios, or schedules that it draws: faults of every kind
// that real processes allow, many at a time. The other runs
// measure one promise each. The command skerry-chaos calls them.
//
// A run persists what its fleet does below a directory of its own, which stays where a
// violation was found.
package real
