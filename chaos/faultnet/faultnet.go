// Package faultnet is a network that can be broken: each member (a hub, an edge)
// has an address of its own, and the links between members are impaired and
// healed while they run: cut in both directions or in one, lossy, slow, doubling,
// reordering. Netns gives every member a network namespace whose packets a switch
// in this process carries, and needs root; Proxy gives it a loopback address
// behind proxies and needs nothing.
//
// Package chaos/real uses it. A goroutine runs for every member or flow and one for
// delayed packets; Close waits for them. Nothing is persisted; Close takes
// namespaces away again.
package faultnet

import (
	"context"
	"net"
	"os/exec"
)

// Place is where a member lives.
type Place struct {
	Name string
	// Bind is the address to listen on and to dial from, Advertise the one that
	// others reach the member at.
	Bind, Advertise string
}

// Port is a port that a member serves.
type Port struct {
	Number int
	TCP    bool // else UDP
}

// Network places members and breaks the links between them.
type Network interface {
	// Add makes a member, which serves ports.
	Add(name string, ports ...Port) (Place, error)
	// Command prepares a command to run at a member's place.
	Command(member, program string, args ...string) *exec.Cmd
	// Dial opens a TCP connection from inside a member's place, so that it is
	// reached also while it is cut off.
	Dial(ctx context.Context, member, addr string) (net.Conn, error)
	// Impose impairs a member's link until the impairment is lifted.
	Impose(member string, i Impairment) (*Imposed, error)
	// Rebind has a NAT in front of a member forget its flows: its packets come
	// from other ports, and answers to the old ones vanish. The function says how
	// many packets have come through under the new ports so far.
	Rebind(member string) (through func() uint64, err error)
	// Close gives back what the network holds. Its members' processes are gone.
	Close() error
}
