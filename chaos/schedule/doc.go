// Package schedule describes a run of the harness and executes none of it: the hubs
// and edges, the jobs that they run, the faults with their times and lengths, and
// the expected outcome.
//
// A Schedule is a plain value. Draw makes one from a seed, and Parse reads one from
// YAML that a person wrote. Schedule.String prints it as such YAML, so that the
// schedule of a failed run is a file that can be run again. Shrink makes the shortest
// schedule that still fails.
//
// The kinds of fault are a closed set. For each kind, kinds.go lists its targets, its
// parameters, and the faults that must not happen at the same time. Validate checks a
// schedule against that list. So no run breaks the guarantees by accident, for example
// by killing two of three hubs at once.
//
// Package chaos/virtual and the command skerry-chaos run schedules. The package
// starts no goroutine, reads no clock and persists nothing.
package schedule
