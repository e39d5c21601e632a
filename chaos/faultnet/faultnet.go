// Package faultnet is a network that can be broken: each member (a hub, an edge)
// has an address of its own, and the links between members are cut and healed
// while they run. Netns gives every member a network namespace behind one bridge
// and needs root; Proxy gives it a loopback address behind proxies and needs
// nothing.
//
// Package chaos uses it. A Proxy runs a goroutine for every flow, which Close
// waits for. Nothing is persisted; Close takes namespaces away again.
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

// Network places members and breaks the links between them. A cut is silent:
// packets vanish, nothing answers.
type Network interface {
	// Add makes a member, which serves ports.
	Add(name string, ports ...Port) (Place, error)
	// Command prepares a command to run at a member's place.
	Command(member, program string, args ...string) *exec.Cmd
	// Dial opens a TCP connection from inside a member's place, so that it is
	// reached also while it is cut off.
	Dial(ctx context.Context, member, addr string) (net.Conn, error)
	// Cut takes a member off the network, Heal puts it back.
	Cut(member string) error
	Heal(member string) error
	// Close gives back what the network holds. Its members' processes are gone.
	Close() error
}
