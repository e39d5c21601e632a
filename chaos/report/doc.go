// Package report shows the results of the harness to people: an HTML page for a run, for
// a campaign of many runs, and for a rehearsal of a user's own jobs, and campaigns and
// rehearsals also as text on a terminal. The command skerry-chaos calls it.
//
// A page begins with a summary and the violations. Tables follow, and a timeline with a
// row for each fault, hub, edge or instance. A page needs no server, no script and no
// other file. Its size is bounded: states that are too short are merged, rows that are
// too many are left out, and the page says so.
//
// The package starts no goroutine. DrawRun alone opens files.
package report
