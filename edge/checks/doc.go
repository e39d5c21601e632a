// Package checks runs the checks of services (http, tcp, grpc, script) of the allocations on this edge. It
// needs no hub for that.
//
// edge.Open makes Checks. edge/allocs tells it which allocations run (Follow, Forget) and asks if their checks
// pass. Checks reports changes and requests restarts through its Config. Hubs and the command line read Results.
//
// Follow starts one goroutine for each check. It ends with its context, with Forget, or when the checks begin
// again; Wait waits for all of them. A check runs at once and then once per interval. Results are not stored: after a
// restart of the agent all checks are pending. The journal gets a row when the status of a check changes (see statusRow),
// and keeps the status of the newest row of a check that does not pass.
package checks
