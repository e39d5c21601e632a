// Package report shows people what a run of the harness did and concluded: one
// HTML file for a run, one for a campaign of many runs, one for a rehearsal of
// somebody's own job, and what of them fits on a terminal. The command
// skerry-chaos calls it.
//
// A page needs no server and nothing beside it. It reads without scripts; with
// them it zooms. Its size is bounded: what is too short or too much to be drawn is
// drawn together or left out, and the page says so. The history beside it has
// everything.
//
// The package starts no goroutine and persists nothing.
package report
