// Package check judges a run. Its input are observations: the commands that hubs
// applied, the edges' journals, every hub's state, the tasks that really ran, and
// the answers that clients got. Its output are violations, each of one of a closed
// set of invariants. The same checkers judge runs in virtual and in real time.
//
// Quiet judges one FleetSnapshot, taken when everything has settled. The code that
// drives a run gives a Monitor Observations while the run goes on, from any
// goroutine. Observe returns a violation as soon as an observation shows it, and
// Finish adds those that only the end of the run shows. Observations are plain
// values, so that a recorded run can be judged again.
//
// A Monitor also counts how often a run reached each Branch (Reached).
//
// Nothing here does I/O, reads a clock or starts a goroutine, but for the search
// for a linearization: Limits.Linearize bounds its steps. The memory of a Monitor
// is bounded by the fleet's size and the length of an absence, never by the length
// of the run.
package check
