// Package checks sees whether what allocations offer is healthy: it runs the checks of
// their services, http and tcp, against the addresses that they have on this edge. It
// needs no hub for any of it.
//
// edge.Open makes it; edge/allocs tells it which allocations run (Follow, Forget), asks
// how their checks stand when it judges an allocation's health, and is told when that
// changes and when a task is to be restarted. The hubs and the command line read Results.
//
// Follow starts a goroutine for each check, which ends with the context that it was
// given, with Forget, or when what it belongs to starts anew; Wait waits for them. A
// check is done at once and then once an interval, one at a time. Nothing is persisted:
// another life of the agent begins with checks that are pending.
package checks
