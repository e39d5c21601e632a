// Package report shows people what a run of the harness did and concluded: one
// HTML file for a run, one for a campaign of many runs, one for a rehearsal of
// somebody's own job, and the same on a terminal. The command skerry-chaos calls it.
//
// Each of them is a page: a summary with what was violated first, then sections of
// tables, and a timeline with a row for each fault, hub, edge or instance. A page
// needs no server, no script and nothing beside it. Its size is bounded: what is too
// short or too much is merged or left out, and the page says so.
//
// The package starts no goroutine. DrawRun alone opens files.
package report
