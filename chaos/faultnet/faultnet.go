// Package faultnet is a network with links that can be broken. Each member (a hub or an edge)
// has its own address. Links can be impaired and healed at any time: cut in one or both
// directions, lossy, slow, duplicating, reordering. Netns gives every member a network
// namespace, and a switch in this process forwards the packets; it needs root. Proxy gives
// each member a loopback address behind proxies and needs no privileges.
//
// Package chaos/real uses it. One goroutine runs for every member or flow, and one for
// delayed packets; Close waits for them. Nothing is persisted; Close removes the
// namespaces.
package faultnet

import (
	"context"
	"net"
	"os/exec"
)

// Place is the location of a member in the network.
type Place struct {
	Name string
	// Bind is the address on which the member listens and from which it dials. Others reach
	// it at Advertise.
	Bind, Advertise string
}

// Port is a port on which a member listens.
type Port struct {
	Number int
	TCP    bool // false: UDP
}

// Network places members and breaks the links between them.
type Network interface {
	// Add adds a member that listens on the ports, and returns its place.
	Add(name string, ports ...Port) (Place, error)
	// Command returns a command that will run at a member's place. It does not start it.
	Command(member, program string, args ...string) *exec.Cmd
	// Dial opens a TCP connection from inside a member's place, so that it works while the
	// member is cut off.
	Dial(ctx context.Context, member, addr string) (net.Conn, error)
	// Impose impairs a member's link until Imposed.Lift is called.
	Impose(member string, i Impairment) (*Imposed, error)
	// Rebind makes the NAT in front of a member drop its flows: its packets get new ports,
	// and answers to the old ports are lost. through returns the number of packets that have
	// come in by the new ports so far.
	Rebind(member string) (through func() uint64, err error)
	// Close releases all resources. All processes of members must have ended.
	Close() error
}
