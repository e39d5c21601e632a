// Package cluster runs a whole fleet as real processes on a network that can be
// broken: hubs and edges, each with a data directory, a log file and a place in
// a faultnet.Network. Package chaos/real breaks it and the demo shows it.
//
// Everything that it starts is gone after Close, tasks and supervisors included.
// It persists what its processes do, below Config.Dir.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry/chaos/clock"
	"skerry/chaos/disk"
	"skerry/chaos/engine"
	"skerry/chaos/faultnet"
	"skerry/chaos/schedule"
)

// Ports of every member: each has an address of its own.
const (
	httpPort   = 4646
	quicPort   = 4647
	gossipPort = 4648
)

// Config of a Cluster.
type Config struct {
	Dir        string // of all its files; short, since unix sockets live below it
	HubBinary  string // skerry
	EdgeBinary string // skerry-edge
	Net        faultnet.Network
	Hubs       int
	Edges      int
	// HubFlags and EdgeFlags are added to every command line.
	HubFlags, EdgeFlags []string
	// EdgeFlagsOf are added to the command line of the n-th edge, from 1; nil: none.
	EdgeFlagsOf func(n int) []string
	// Disk gives a member a disk of its own, mounted at its data directory; nil: all
	// have the machine's.
	Disk func(name, dir string) (*disk.Disk, error)
	// Clocked is a program with the commands hub and edge, whose wall clocks go by a file, and
	// whose hub tells in another one what it applies. All hubs run it, and edges that Clock names;
	// "": none.
	Clocked string
	Clock   func(name string) bool
	// LocalHTTP has hubs serve HTTP on 127.0.0.1 of their place (namespaces), else
	// on the address they bind.
	LocalHTTP bool
}

// Cluster is a running fleet.
type Cluster struct {
	Hubs  []*Hub
	Edges []*Edge

	cfg   Config
	token string // path of the join token
}

// Start starts hubs, waits until they agree, and starts edges. Where it fails
// everything is taken down again.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	c := &Cluster{cfg: cfg}
	if err := c.startMembers(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) startMembers(ctx context.Context) error {
	for i := range c.cfg.Hubs {
		if err := c.addHub(ctx, i); err != nil {
			return err
		}
	}
	for i := range c.cfg.Edges {
		if err := c.addEdge(i); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) addHub(ctx context.Context, i int) error {
	name := schedule.HubName(i + 1)
	place, err := c.cfg.Net.Add(name,
		faultnet.Port{Number: quicPort}, faultnet.Port{Number: gossipPort}, faultnet.Port{Number: gossipPort, TCP: true})
	if err != nil {
		return err
	}
	h := &Hub{}
	c.placeMember(&h.Member, place, c.cfg.HubBinary)
	if err := h.attachDisk(c.cfg.Disk); err != nil {
		return err
	}
	h.httpHost = place.Bind
	if c.cfg.LocalHTTP {
		h.httpHost = "127.0.0.1"
	}
	if h.Hub, err = engine.NewHub(h.URL(), h.dialHTTP); err != nil {
		return err
	}
	h.args = append([]string{"hub", "--data-dir", h.Dir, "--name", name, "--bind", place.Bind,
		"--advertise", place.Advertise, "--http-bind", h.httpHost}, c.cfg.HubFlags...)
	if c.cfg.Clocked != "" {
		h.binary, h.Told = c.cfg.Clocked, h.Dir+".told"
		h.args = append(h.args, "--told", h.Told)
	}
	if i == 0 {
		h.firstStartArgs = []string{"--bootstrap"}
		c.token = filepath.Join(h.Dir, "join-token")
	} else {
		h.firstStartArgs = []string{"--join", fmt.Sprintf("%s:%d", c.Hubs[0].Place.Advertise, quicPort),
			"--token-file", filepath.Join(c.Hubs[0].Dir, "hub-join-token")}
	}
	c.Hubs = append(c.Hubs, h)
	if err := h.Start(); err != nil {
		return err
	}
	return h.AwaitReady(ctx)
}

func (c *Cluster) addEdge(i int) error {
	var flags []string
	if c.cfg.EdgeFlagsOf != nil {
		flags = c.cfg.EdgeFlagsOf(i + 1)
	}
	e, err := c.NewEdge(schedule.EdgeName(i+1), flags...)
	if err != nil {
		return err
	}
	c.Edges = append(c.Edges, e)
	return e.Start()
}

// NewEdge makes an edge at a place of its own, with flags of its own; it is neither
// started nor among Edges.
func (c *Cluster) NewEdge(name string, flags ...string) (*Edge, error) {
	place, err := c.cfg.Net.Add(name)
	if err != nil {
		return nil, err
	}
	hubs, token := c.JoinAddresses()
	e := &Edge{Flags: flags, boot: 1}
	c.placeMember(&e.Member, place, c.cfg.EdgeBinary)
	if err := e.attachDisk(c.cfg.Disk); err != nil {
		return nil, err
	}
	e.args = append([]string{"--data-dir", e.Dir, "--hub", strings.Join(hubs, ","), "--token-file", token,
		"--name", name, "--bind", place.Bind}, append(slices.Clone(c.cfg.EdgeFlags), flags...)...)
	if c.cfg.Clocked != "" && c.cfg.Clock(name) {
		e.binary, e.Clock = c.cfg.Clocked, clock.File(e.Dir+".clock")
		e.args = append(append([]string{"edge"}, e.args...), "--clock", string(e.Clock))
	}
	return e, nil
}

// Machines are all hubs and edges.
func (c *Cluster) Machines() []Machine {
	var all []Machine
	for _, h := range c.Hubs {
		all = append(all, h)
	}
	for _, e := range c.Edges {
		all = append(all, e)
	}
	return all
}

// Machine is the hub or the edge of a name, Edge the edge; nil: there is none.
func (c *Cluster) Machine(name string) Machine {
	for _, m := range c.Machines() {
		if m.Common().Name == name {
			return m
		}
	}
	return nil
}

// Edge is the edge of a name; nil: there is none.
func (c *Cluster) Edge(name string) *Edge {
	e, _ := c.Machine(name).(*Edge)
	return e
}

// JoinAddresses is what an edge needs to join: addresses of hubs, and the file of a token.
func (c *Cluster) JoinAddresses() (hubs []string, tokenFile string) {
	for _, h := range c.Hubs {
		hubs = append(hubs, net.JoinHostPort(h.Place.Advertise, strconv.Itoa(quicPort)))
	}
	return hubs, c.token
}

// Close kills everything and gives the network back.
func (c *Cluster) Close() error {
	var errs []error
	for _, h := range c.Hubs {
		h.Kill()
		errs = append(errs, h.detachDisk())
	}
	for _, e := range c.Edges {
		errs = append(errs, e.Scrap())
	}
	return errors.Join(append(errs, c.cfg.Net.Close())...)
}

// placeMember has a member live at a place.
func (c *Cluster) placeMember(m *Member, at faultnet.Place, program string) {
	m.Name, m.Place, m.net = at.Name, at, c.cfg.Net
	m.Dir, m.binary = filepath.Join(c.cfg.Dir, at.Name), program
}

// Polls of Eventually: soon at first, then less often, so that watching a fleet
// does not keep it from working.
const (
	firstPoll = 20 * time.Millisecond
	lastPoll  = 500 * time.Millisecond
)

// Eventually polls check until it gives "", or bound is over; its last answer
// then says what is missing.
func Eventually(ctx context.Context, bound time.Duration, what string, check func(context.Context) string) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	wait, last := firstPoll, "it was never looked at"
	for {
		missing := check(ctx)
		if missing == "" {
			return nil
		}
		if ctx.Err() == nil {
			last = missing // later answers tell of the time being over
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %s: %s", what, bound, last)
		case <-time.After(wait):
			wait = min(wait+wait/4, lastPoll)
		}
	}
}
