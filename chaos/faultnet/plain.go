package faultnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
)

// Plain is a Network on loopback with nothing in between: each member has an
// address, and its links cannot be broken here. It is for fleets whose edges break
// their own links, and are too many for proxies.
type Plain struct {
	members map[string]bool
	block   int // of their addresses
}

// NewPlain returns a network without members.
func NewPlain() *Plain { return &Plain{members: map[string]bool{}, block: newBlock()} }

// Add makes a member.
func (p *Plain) Add(name string, _ ...Port) (Place, error) {
	if p.members[name] {
		return Place{}, fmt.Errorf("add member %s: it is there already", name)
	}
	p.members[name] = true
	n := len(p.members)
	if n > 250 {
		return Place{}, errors.New("add a member: a plain network holds at most 250")
	}
	addr := loopbackAddress(p.block, n)
	return Place{Name: name, Bind: addr, Advertise: addr}, nil
}

// Command runs a program as it is: loopback is everywhere.
func (p *Plain) Command(_, program string, args ...string) *exec.Cmd {
	return exec.Command(program, args...)
}

// Dial dials directly.
func (p *Plain) Dial(ctx context.Context, _, addr string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr)
}

// errPlain is what breaking a Plain gives.
var errPlain = errors.New("links of a plain network cannot be broken")

// Cut fails: loopback cannot be cut.
func (p *Plain) Cut(string) error { return errPlain }

// Heal fails: loopback cannot be cut.
func (p *Plain) Heal(string) error { return errPlain }

// Close has nothing to give back.
func (p *Plain) Close() error { return nil }

// Impose fails: loopback cannot be impaired.
func (p *Plain) Impose(string, Impairment) (*Imposed, error) { return nil, errPlain }

// Rebind fails: loopback has no NAT.
func (p *Plain) Rebind(string) (func() uint64, error) { return nil, errPlain }
