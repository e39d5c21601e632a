// Package scheduler turns evaluations into plans. Workers, on every hub, take an
// evaluation from the leader's broker, wait until their own state is as new as
// it, ask package reconcile what is to be done, find nodes for what is to be
// placed, and submit a plan to the leader's planner.
//
// hub.Open makes one Scheduler and runs it for the hub's whole life; where
// another hub leads, the interfaces in Config lead there. Run starts
// Config.Workers goroutines and waits for them. Nothing is persisted: what a
// worker did not finish is delivered again by the broker.
//
// An evaluation that changes something costs one entry of the log: its end, its
// follow-ups and the blocked evaluation that waits for capacity travel in the
// plan. One that changes nothing costs one update of itself.
//
// DryRun does the same on a job that was not registered, and commits nothing.
package scheduler
