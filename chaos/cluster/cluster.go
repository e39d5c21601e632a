// Package cluster runs a fleet of hubs and edges as real processes on a network whose
// links can be broken. Each member has a data directory, a log file and a place in a
// faultnet.Network. Package chaos/real uses it for its runs and the demo.
//
// Close ends everything that it started, with tasks and their supervisors. The files of
// its processes are below Config.Dir.
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

	"golang.org/x/sync/errgroup"

	"skerry/chaos/clock"
	"skerry/chaos/disk"
	"skerry/chaos/faultnet"
	"skerry/chaos/hubclient"
	"skerry/chaos/schedule"
	"skerry/drivers/docker/dockertest"
)

// Ports of every member; each member has its own address.
const (
	httpPort   = 4646
	quicPort   = 4647
	gossipPort = 4648
)

// Config configures a Cluster.
type Config struct {
	Dir        string // directory of all files; a short path, since unix sockets lie below it
	HubBinary  string // path of the program skerry
	EdgeBinary string // path of the program skerry-edge
	Net        faultnet.Network
	Hubs       int
	Edges      int
	// HubFlags and EdgeFlags are added to the command line of every hub and every edge.
	HubFlags, EdgeFlags []string
	// EdgeFlagsOf returns flags for the command line of edge n, from 1; nil: none.
	EdgeFlagsOf func(n int) []string
	// Disk makes a disk for a member, mounted at its data directory; nil: no member has its
	// own disk.
	Disk func(name, dir string) (*disk.Disk, error)
	// Clocked is a program with the commands hub and edge. Its clocks follow a file, and its
	// hub exports the entries that it applies to another file. All hubs run it, and the edges
	// for which Clock returns true. "": all members run HubBinary and EdgeBinary.
	Clocked string
	Clock   func(name string) bool
	// Daemon returns the configuration of the container daemon of edge n, from 1, without its Dir and Log; an empty
	// Name: the edge has none. nil: no edge has one.
	Daemon func(n int) dockertest.Config
	// Image is the name of an image of busybox that each daemon gets. Daemons need it.
	Image string
	// LocalHTTP makes hubs serve HTTP on 127.0.0.1 of their network namespace, and otherwise
	// on the address that they bind.
	LocalHTTP bool
}

// Cluster is a running fleet of real processes.
type Cluster struct {
	Hubs  []*Hub
	Edges []*Edge

	cfg   Config
	token string // path of the join token for edges
}

// Start starts the hubs one after the other, each after the one before is ready, and then the
// edges, without waiting for these. After an error it has stopped everything again.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	c := &Cluster{cfg: cfg}
	if err := c.startMembers(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// startMembers starts all hubs, and then all edges.
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
	starting, ctx := errgroup.WithContext(ctx)
	for _, e := range c.Edges {
		starting.Go(func() error { return e.StartDaemon(ctx) })
	}
	if err := starting.Wait(); err != nil {
		return err
	}
	for _, e := range c.Edges {
		if err := e.Start(); err != nil {
			return err
		}
	}
	return nil
}

// addHub makes hub number i, from 0, starts it, and waits until it is ready. The first one
// bootstraps the cluster, the others join it.
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
	if h.Hub, err = hubclient.New(name, h.URL(), h.dialHTTP, nil); err != nil {
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

// addEdge makes edge number i, from 0, and starts nothing.
func (c *Cluster) addEdge(i int) error {
	var flags []string
	if c.cfg.EdgeFlagsOf != nil {
		flags = c.cfg.EdgeFlagsOf(i + 1)
	}
	name := schedule.EdgeName(i + 1)
	daemon, err := c.makeDaemon(name, i+1)
	if err != nil {
		return err
	}
	if daemon != nil {
		flags = append(slices.Clone(flags), "--"+daemon.Name+"-socket", daemon.Socket, "--docker-volumes")
	}
	e, err := c.NewEdge(name, flags...)
	if err != nil {
		return err // the daemon has not been started
	}
	e.Daemon, e.image = daemon, c.cfg.Image
	c.Edges = append(c.Edges, e)
	return nil
}

// makeDaemon makes the container daemon of edge n. It lies beside the edge's data, on the machine's own disk. nil:
// the edge has none.
func (c *Cluster) makeDaemon(name string, n int) (*dockertest.Daemon, error) {
	if c.cfg.Daemon == nil {
		return nil, nil
	}
	cfg := c.cfg.Daemon(n)
	if cfg.Name == "" {
		return nil, nil
	}
	cfg.Dir = filepath.Join(c.cfg.Dir, name+".d")
	cfg.Log = cfg.Dir + ".log"
	return dockertest.New(cfg)
}

// NewEdge returns an edge of that name with extra flags and its own place in the network. The agent
// is not started, and the edge is not added to Edges.
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

// Machines returns all hubs, then all edges.
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

// Machine returns the hub or the edge of that name; nil: there is none.
func (c *Cluster) Machine(name string) Machine {
	for _, m := range c.Machines() {
		if m.Common().Name == name {
			return m
		}
	}
	return nil
}

// Edge returns the edge of that name; nil: there is none.
func (c *Cluster) Edge(name string) *Edge {
	e, _ := c.Machine(name).(*Edge)
	return e
}

// JoinAddresses returns the QUIC addresses of all hubs, and the path of the join token for edges.
func (c *Cluster) JoinAddresses() (hubs []string, tokenFile string) {
	for _, h := range c.Hubs {
		hubs = append(hubs, net.JoinHostPort(h.Place.Advertise, strconv.Itoa(quicPort)))
	}
	return hubs, c.token
}

// Close kills all processes, unmounts the disks, and closes the network.
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

// placeMember sets the member's name, place, data directory and program.
func (c *Cluster) placeMember(m *Member, at faultnet.Place, program string) {
	m.Name, m.Place, m.net = at.Name, at, c.cfg.Net
	m.Dir, m.binary = filepath.Join(c.cfg.Dir, at.Name), program
}

// First and longest interval of Eventually's polls. The interval grows, so that polling does not
// slow the fleet down.
const (
	firstPoll = 20 * time.Millisecond
	lastPoll  = 500 * time.Millisecond
)

// Eventually polls check until it returns "", and then returns nil. After bound it returns an error
// with the name of the awaited state (`what`) and the last answer of check.
func Eventually(ctx context.Context, bound time.Duration, what string, check func(context.Context) string) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	wait, last := firstPoll, "it was never checked"
	for {
		missing := check(ctx)
		if missing == "" {
			return nil
		}
		if ctx.Err() == nil {
			last = missing // an answer after the deadline would only report the deadline
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %s: %s", what, bound, last)
		case <-time.After(wait):
			wait = min(wait+wait/4, lastPoll)
		}
	}
}
