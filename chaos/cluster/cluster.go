// Package cluster runs a whole fleet as real processes on a network that can be
// broken: hubs and edges, each with a data directory, a log file and a place in
// a faultnet.Network. Package chaos breaks it and the demo shows it.
//
// Everything that it starts is gone after Close, tasks and supervisors included.
// It persists what its processes do, below Config.Dir.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"skerry/chaos/faultnet"
	"skerry/chaos/operator"
	"skerry/chaos/proc"
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
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
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
	name := fmt.Sprintf("hub%d", i+1)
	place, err := c.cfg.Net.Add(name,
		faultnet.Port{Number: quicPort}, faultnet.Port{Number: gossipPort}, faultnet.Port{Number: gossipPort, TCP: true})
	if err != nil {
		return err
	}
	h := &Hub{member: member{Name: name, Place: place, Dir: filepath.Join(c.cfg.Dir, name), net: c.cfg.Net}}
	h.binary = c.cfg.HubBinary
	h.http = place.Bind
	if c.cfg.LocalHTTP {
		h.http = "127.0.0.1"
	}
	h.Hub = operator.NewHub(name, h.URL(), h.dialHTTP)
	h.args = append([]string{"hub", "--data-dir", h.Dir, "--name", name, "--bind", place.Bind,
		"--advertise", place.Advertise, "--http-bind", h.http}, c.cfg.HubFlags...)
	if i == 0 {
		h.first = []string{"--bootstrap"}
		c.token = filepath.Join(h.Dir, "join-token")
	} else {
		h.first = []string{"--join", fmt.Sprintf("%s:%d", c.Hubs[0].Place.Advertise, quicPort), "--token-file", c.token}
	}
	c.Hubs = append(c.Hubs, h)
	if err := h.Start(); err != nil {
		return err
	}
	return h.AwaitReady(ctx)
}

func (c *Cluster) addEdge(i int) error {
	e, err := c.NewEdge(fmt.Sprintf("edge%d", i+1))
	if err != nil {
		return err
	}
	c.Edges = append(c.Edges, e)
	return e.Start()
}

// NewEdge makes an edge at a place of its own; it is neither started nor among
// Edges.
func (c *Cluster) NewEdge(name string) (*Edge, error) {
	place, err := c.cfg.Net.Add(name)
	if err != nil {
		return nil, err
	}
	hubs, token := c.Joining()
	e := &Edge{member: member{Name: name, Place: place, Dir: filepath.Join(c.cfg.Dir, name), net: c.cfg.Net}, boot: 1}
	e.binary = c.cfg.EdgeBinary
	e.args = append([]string{"--data-dir", e.Dir, "--hub", strings.Join(hubs, ","), "--token-file", token,
		"--name", name, "--bind", place.Bind}, c.cfg.EdgeFlags...)
	return e, nil
}

// Joining is what an edge needs to join: addresses of hubs, and the file of a token.
func (c *Cluster) Joining() (hubs []string, tokenFile string) {
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
	}
	for _, e := range c.Edges {
		errs = append(errs, e.PowerCut())
	}
	return errors.Join(append(errs, c.cfg.Net.Close())...)
}

// member is what hubs and edges have in common: a process at a place.
type member struct {
	Name  string
	Place faultnet.Place
	Dir   string

	net    faultnet.Network
	binary string
	args   []string
	proc   *proc.Process
}

func (m *member) start(env []string, more ...string) error {
	if err := os.MkdirAll(m.Dir, 0o700); err != nil {
		return fmt.Errorf("make the data directory of %s: %w", m.Name, err)
	}
	cmd := m.net.Command(m.Name, m.binary, append(append([]string{}, m.args...), more...)...)
	cmd.Env = append(os.Environ(), env...)
	p, err := proc.Start(cmd, m.LogFile())
	if err != nil {
		return fmt.Errorf("start %s: %w", m.Name, err)
	}
	m.proc = p
	return nil
}

// LogFile is where the process writes what it has to say.
func (m *member) LogFile() string { return m.Dir + ".log" }

// Binary is the program that the process runs.
func (m *member) Binary() string { return m.binary }

// Running reports whether the process runs.
func (m *member) Running() bool {
	if m.proc == nil {
		return false
	}
	select {
	case <-m.proc.Done():
		return false
	default:
		return true
	}
}

// Pid is the process id, 0 where it does not run.
func (m *member) Pid() int {
	if !m.Running() {
		return 0
	}
	return m.proc.Pid()
}

// Kill ends the process with SIGKILL; what it started lives on.
func (m *member) Kill() {
	if m.proc != nil {
		m.proc.Kill()
	}
}

// Stop ends the process with SIGTERM.
func (m *member) Stop() error {
	if !m.Running() {
		return nil
	}
	return m.proc.Stop(30 * time.Second)
}

// Cut takes the member off the network, Heal puts it back.
func (m *member) Cut() error  { return m.net.Cut(m.Name) }
func (m *member) Heal() error { return m.net.Heal(m.Name) }

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
