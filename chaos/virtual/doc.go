// Package virtual runs whole clusters in one process and in virtual time: the hubs
// and edges that production runs, with their Raft, QUIC, gossip and SQLite, on the
// network of package fabric, inside a testing/synctest bubble. What is simulated is
// the network, the tasks (driver sim), the clocks and the death of machines. Package
// chaos/schedule says what happens to them, package chaos/check judges it.
//
// A Cluster and a Play must be used inside a bubble; Bubble makes one, also in an ordinary
// program. All goroutines end with Cluster.Close. Data directories are real ones,
// below Config.Dir.
//
// A Campaign plays many schedules, each in a process of its own: a Job, which the same
// program plays as Work. What a run leaves is below Campaign.Dir.
package virtual
