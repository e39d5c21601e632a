// Package schedule says what a run of the harness shall do, and does nothing of
// it: which hubs and edges there are, which jobs they run, what is broken when and
// for how long, and what is expected of the outcome.
//
// A Schedule is a plain value. It is drawn from a seed (Draw), or read from YAML
// that a person wrote (Parse); either way it prints as such YAML (Schedule.String),
// so that the schedule of a run that failed is a file that can be run again. Shrink
// makes the shortest schedule that still fails.
//
// The kinds of fault are a closed set, and kinds.go says of each what it aims at,
// which parameters it takes, and what it excludes. Validate holds a schedule
// against that: it is what keeps a run from breaking what nobody promised to
// survive, such as two of three hubs dying at once by accident.
//
// Package chaos/virtual and the command skerry-chaos run schedules. The package
// starts no goroutine, reads no clock and persists nothing.
package schedule
