// Package allocs decides what runs on an edge: it turns the desired state that
// the journal holds into runners, one an allocation, and needs no hub for that.
//
// edge.Open makes it; the link delivers desired state to it, the local API stops
// and restarts through it. Run first takes back or starts everything that the
// journal says shall run, then waits for deliveries and for deadlines of
// stop_on_client_after. It has one goroutine of its own (Run's) and one for each
// allocation that runs. It persists nothing itself: everything is journaled, and
// before it is done.
//
// Nothing stops for being left out of a delivery. An allocation ends for four
// reasons only: the hub named it, somebody on site did, its stop_on_client_after
// is over, or its own tasks ended. A stop that a newer version is the reason of may
// come with windows of updates, and begins while one of them is open (window.go).
package allocs
