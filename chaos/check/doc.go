// Package check judges a run: pure functions and checkers from what was seen (the
// commands that hubs applied, the edges' journals, every hub's state, the tasks
// that really ran, what clients were told) to violations, each under one of a
// closed set of invariants. The same checkers judge runs in virtual and in real
// time.
//
// Quiet judges one Picture, taken when everything has settled. A Monitor is fed
// Observations while a run goes on, by whoever drives the run, from any goroutine,
// and tells of a violation as soon as it is seen; Finish adds what only the end
// shows. Observations are plain values, so that a run that was written down can be
// judged again.
//
// A Monitor also counts what a run has come to (Reached).
//
// Nothing here does I/O, reads a clock or starts a goroutine, but for the search
// for a linearization, which porcupine bounds by the time it is given. What a
// Monitor remembers is bounded by the fleet's size and the length of an absence,
// never by the length of the run.
package check
