// Package scheduler turns evaluations into plans. Workers run on every hub. A worker dequeues an
// evaluation from the leader's broker, waits until its own state is as new as the evaluation, calls
// package reconcile for the decisions, finds nodes for the placements, and submits a plan to the leader's
// planner.
//
// hub.Open makes one Scheduler and runs it for the hub's whole life. If another hub leads, the Broker and
// Planner in Config call that hub. Run starts Config.Workers goroutines and waits for them. Nothing is
// persisted: the broker delivers an evaluation again that a worker did not finish.
//
// An evaluation that changes something costs one entry of the log: its end, its follow-ups and the blocked
// evaluation that waits for capacity are part of the plan. An evaluation that changes nothing costs one
// update of itself.
//
// DryRun does the same for a job that is not registered, and commits nothing.
package scheduler
