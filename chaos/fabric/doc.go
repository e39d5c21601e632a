// Package fabric is a network in memory, on which whole clusters run inside a
// testing/synctest bubble: machines with addresses, NATs, UDP sockets
// (net.PacketConn), TCP streams (net.Conn, net.Listener), and the faults of a
// network. Package chaos/virtual builds clusters on it; it also works in real time.
//
// It starts no goroutine and uses one timer for each socket that a goroutine waits
// on. A packet lies in the receiver's queue with the instant of its arrival, and the
// reader sleeps until then. One mutex guards a whole Net; no code sleeps or blocks
// while it holds the mutex, so virtual time never stalls. Close closes every socket.
//
// All randomness comes from the seed, through one generator for each direction
// between two hosts. So the random numbers of one pair do not depend on the traffic
// of others. Events of one instant happen in the order in which goroutines reach
// them, which the seed does not decide.
//
// It does not model routes (every pair of hosts has a path of its own; only a Shape's
// bandwidth is shared between pairs), packets that are too large for a path, ECN, or
// TCP's congestion control and slow retransmissions: a stream that a cut has stalled
// continues in the instant of the healing.
package fabric
