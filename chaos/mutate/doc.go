// Package mutate measures which mistakes the tests of this repository notice. It makes
// small mistakes in the source, one at a time: a comparison flipped, a call dropped, a
// number off by one, a branch removed, a boolean swapped. For each it runs the unit tests
// of the changed package, then those of the packages that import it, and where all of them
// pass a campaign in virtual time. A surviving mutant points at code that no test checks.
//
// A mutant is a source overlay (go build -overlay): the files of the repository do not
// change. A seed selects the mutants. Package chaos/mutations has mistakes that people
// wrote.
//
// Command "skerry-chaos mutate" calls it. Results are appended to a file of JSON lines, and
// a run continues where the last one ended. All other files are below Config.Work.
package mutate
