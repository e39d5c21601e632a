// Package allocs runs the desired allocations of an edge: it makes a runner for each allocation in the journal.
// It needs no hub for that.
//
// edge.Open makes Allocs; edge/link delivers desired state to it, and the local API stops and restarts through
// it. Run first recovers or starts the allocations of the journal, then waits for deliveries and for
// stop_on_client_after. It has one goroutine (Run's) and one for each running allocation. It stores nothing
// itself: it journals every decision before it acts on it.
//
// A delivery that does not name an allocation does not stop it. An allocation ends for four reasons only: a hub
// stops it, an operator on site ends it, its stop_on_client_after has passed, or its tasks ended. A stop for a
// newer version may have update windows, and begins while one of them is open (window.go). A stop on site holds
// an allocation, which does not end (onsite.go).
package allocs
