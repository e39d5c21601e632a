// Package history is the record of one run: who was broken when, what clients
// asked and were told, what hubs and edges said, and what was concluded. A run
// writes it as it goes, one JSON value a line, so that later checkers can judge
// old runs again and the report can be drawn anew.
//
// The first line is the Header, each further one a Record, the last one an End; a
// history without an End was cut short. What was seen are package check's
// observations, as the run's monitor was fed them. Times are offsets from the
// run's start, by the run's own clock: virtual, or monotonic. A file is
// compressed where its name ends in .gz. Campaign sums up many runs.
//
// The package starts no goroutine. Writer and Reader hold one line, and of each
// hub what it said last, so that only what changed is written; their memory is
// bounded by the fleet's size and the number of its jobs' versions, not by the
// length of the run.
package history
