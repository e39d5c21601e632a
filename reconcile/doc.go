// Package reconcile decides which allocations to place, stop, update and reconnect, from the
// desired state, the observed state and the time. It does no I/O, reads no clock and holds no
// lock; the same input gives the same output, in the same order. Every decision has a reason
// that people are shown.
//
// Decide handles a service or batch job: one group at a time, and within a group one name
// (JOB.GROUP[INDEX]) at a time. All allocations of one name share a name index, which has at
// most one current allocation. The others are unknown originals, which the current one
// replaces. When an original is back, one of the two stays. Name indexes are counted, so that
// nothing is placed twice.
//
// DecideSystem handles a system or sysbatch job: each group has one allocation on each suitable
// node, all of the same name. It decides for one node at a time.
//
// Package hub/scheduler is the caller: it makes the Input from a snapshot, finds nodes for the
// placements, and turns the Output into a plan.
//
// # Where this differs from Nomad
//
//   - Without a disconnect block an allocation on a node that is away becomes
//     unknown and is not replaced (pool default "keep"). Pool default "nomad"
//     gives Nomad's behaviour. See AbsenceOf.
//   - A disconnect window holds on a node that is down as on one that is disconnected.
//   - An allocation on a node whose history is still replayed (initializing) does not change, even
//     when its window ends.
//   - An operator's stop of an allocation wins over its absence.
//   - Between an original and its replacement, a running allocation wins before scores count;
//     "older version" means a destructive update, not merely a lower number.
//   - A system job's failed allocation is replaced on its node: at once, and after a delay that
//     grows from 30 s to an hour if it fails again.
//   - Delays count from when the hub heard of a failure, never from an edge's
//     wall clock.
package reconcile
