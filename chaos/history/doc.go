// Package history is the record of one run: its faults, the operations of its
// clients, the states of hubs and edges, and the violations and verdicts. A run
// writes it while it goes on, one JSON value a line, so that newer checkers can
// judge old runs again and reports can be made again.
//
// The first line is the Header, each further one a Record, the last one an End. A
// history without an End was cut short. The observations are those of package
// check that the run's Monitor got. Times are offsets from the run's start, by the
// run's own clock: virtual, or monotonic. A file is compressed where its name ends
// in .gz. Campaign sums up many runs.
//
// The package starts no goroutine. Writer and Reader hold one line, and the last
// state of each hub and edge, so that lines have only changes. Their memory is
// bounded by the fleet's size and the number of its jobs' versions, not by the
// length of the run.
package history
