// Package virtual runs whole clusters in one process and in virtual time: the hubs
// and edges of production, with their Raft, QUIC, gossip and SQLite, on the network
// of package fabric, inside a testing/synctest bubble. The network, the tasks (driver
// sim), the clocks and the death of machines are simulated. Package chaos/schedule
// describes the faults and jobs of a run, package chaos/check judges it.
//
// A Cluster and a Play must be used inside a bubble; Bubble makes one in a test, and Main
// in an ordinary program. All goroutines end with Cluster.Close. Data directories are real
// ones, below Config.Dir.
//
// A Campaign plays many schedules, each in a process of its own: a Job, which the same
// program plays as Work. The files of a run are below Campaign.Dir.
package virtual
