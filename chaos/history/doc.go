// Package history is the record of one run: who was broken when, what clients
// asked and were told, what hubs and edges said, and what was concluded. A run
// writes it as it goes, one JSON value a line, so that later checkers can judge
// old runs again and the report can be drawn anew.
//
// The first line is the Header, each further one a Record, the last one the
// End; a history without an End was cut short. Times are offsets from the run's
// start, by the run's own clock: virtual, or monotonic. Campaign sums up many
// runs.
//
// The package starts no goroutine and keeps no record in memory: Writer and
// Reader hold one line each.
package history
