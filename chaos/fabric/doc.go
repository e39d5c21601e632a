// Package fabric is a network in memory, on which whole clusters run inside a
// testing/synctest bubble: machines with addresses, NATs, UDP sockets
// (net.PacketConn), TCP streams (net.Conn, net.Listener), and everything that
// goes wrong between them. Package chaos/virtual builds clusters on it; it also
// works in real time.
//
// It starts no goroutine and uses one timer for each socket that somebody waits
// on: what is under way lies in the receiver's queue with the instant of its
// arrival, and the reader itself sleeps until then. One mutex guards a whole Net;
// nothing sleeps and nothing blocks while holding it, so virtual time never
// stalls. Close closes every socket, and nothing is left.
//
// All randomness comes from the seed, through one generator for each direction
// between two hosts, so that what one pair draws does not depend on when others
// speak. What happens in the same instant happens in the order in which
// goroutines get there, which the seed does not decide.
//
// It does not model routes (every pair of hosts has a path of its own, a Shape's
// bandwidth is the only thing that pairs share), packet sizes that a path cannot
// carry, ECN, or TCP's congestion control and slow retransmissions: a stream that
// a cut has stalled goes on in the instant of the healing.
package fabric
