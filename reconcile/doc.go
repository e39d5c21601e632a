// Package reconcile decides: given what is desired, what is observed and the
// time, what is to be done. It does no I/O, reads no clock and holds no lock;
// the same input gives the same output, in the same order, and every decision
// carries a reason that people are shown.
//
// Decide looks at a service or batch job, one group at a time, and within a
// group at one name (JOB.GROUP[INDEX]) at a time. All allocations of one name
// form a slot. A slot has at most one holder, the allocation that counts; beside
// it stand originals that are out of sight (unknown), whose replacement the
// holder then is. When an original is back, the slot is settled: one of the two
// stays. Slots are what is counted, so that nothing is placed twice.
//
// DecideSystem looks at a system or sysbatch job: there a group has one allocation
// on each node that suits it, all of the same name, and a node's allocations of a
// group stand where a slot does otherwise.
//
// Package hub/scheduler is the caller: it makes the Input from a snapshot, finds
// nodes for what is to be placed, and turns the Output into a plan.
//
// # Where this differs from Nomad
//
//   - Without a disconnect block an allocation on a node that is away becomes
//     unknown and is not replaced (pool default "keep"). Pool default "nomad"
//     gives Nomad's behaviour. See AbsenceOf.
//   - A window that is not over holds on a node that is down as it does on one
//     that is disconnected.
//   - An allocation on a node whose history is still being replayed
//     (initializing) is left alone, also when its window runs out meanwhile.
//   - An operator's stop of an allocation wins over its absence.
//   - In settling, a running allocation beats one that is not, before scores are
//     looked at; "older version" means that its tasks would have to be started
//     anew, not merely that the number is lower.
//   - A system job's allocation that failed is started anew on its node: at once,
//     and after a delay that grows from 30 s to an hour where it fails again.
//   - Delays count from when the hub heard of a failure, never from an edge's
//     wall clock.
package reconcile
