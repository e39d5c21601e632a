// Package virtual runs whole clusters in one process and in virtual time: the hubs
// and edges that production runs, with their Raft, QUIC, gossip and SQLite, on the
// network of package fabric, inside a testing/synctest bubble. What is simulated is
// the network, the tasks (driver sim), the clocks and the death of machines. Package
// chaos/schedule says what happens to them, package chaos/check judges it.
//
// Everything here must be used inside a bubble; Bubble makes one, also in an ordinary
// program. All goroutines end with Cluster.Close. Data directories are real ones,
// below Config.Dir.
package virtual
