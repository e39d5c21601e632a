// Package mutate measures what the tests of this repository notice. It makes small
// mistakes in the source, one at a time (a comparison flipped, a call dropped, a number
// off by one, a branch removed, a boolean swapped), has the unit tests of the changed
// package run, then those of the packages that import it, and where all of them pass a
// campaign in virtual time. A mutant that nothing notices shows what nobody checks.
//
// A mutant is a source overlay (go build -overlay): the files of the repository stay as
// they are. Mutants are drawn from a seed. Package chaos/mutations has the mistakes that people
// thought of.
//
// Command "skerry-chaos mutate" is the user. Results are appended to a file of JSON lines,
// and a run goes on where the last one ended. Everything else is below Config.Work.
package mutate
