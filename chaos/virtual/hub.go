package virtual

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"skerry/chaos/fabric"
	"skerry/chaos/hubclient"
	"skerry/drivers/sim"
	"skerry/fleet/validate"
	"skerry/hub"
	"skerry/hub/state"
)

// firstIP is the address of the hub that bootstraps the cluster.
const firstIP = "10.0.0.1"

// poll is the interval of checks for a state that has no signal.
const poll = 50 * time.Millisecond

// Hub is the machine of one hub.
type Hub struct {
	Name string
	hubclient.Hub
	Host  *fabric.Host
	Clock clock
	Disk  disk
	Dir   string

	c     *Cluster
	ip    string
	first bool // no daemon of this hub was opened yet: it has to bootstrap or join
	log   *slog.Logger

	mu      sync.Mutex
	life    *life
	running *hub.Hub // nil: the daemon is still opening, or is down
}

// newHub returns the machine of hub number i, from 0. It does not start the daemon.
func (c *Cluster) newHub(name string, i int) (*Hub, error) {
	h := &Hub{Name: name, c: c, ip: fmt.Sprintf("10.0.0.%d", i+1), first: true}
	h.Host = c.Net.Host(h.Name, h.ip)
	h.Dir = c.memberDir(h.Name)
	addr := fmt.Sprintf("%s:%d", h.ip, httpPort)
	var err error
	h.Hub, err = hubclient.New(name, "http://"+addr, func(ctx context.Context) (net.Conn, error) {
		return c.operator.Dial(ctx, addr)
	}, c.cfg.Taps.answerObserver(name))
	if err != nil {
		return nil, err
	}
	h.log, err = c.openLog(h.Dir)
	return h, err
}

// Start starts the daemon in a goroutine and does not wait until it is ready. It returns an error
// if the daemon has been started and neither Crash nor KillHub was called since.
func (h *Hub) Start(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.life != nil {
		return fmt.Errorf("start %s: it runs", h.Name)
	}
	cfg, err := h.hubConfig()
	if err != nil {
		return fmt.Errorf("start %s: %w", h.Name, err)
	}
	l := &life{}
	cfg.DiskStep = func(label string) error { return h.Disk.beforeDiskStep(label, l) }
	cfg.Applied = h.c.cfg.Taps.appliedObserver(h.Name)
	l.runProcess(func(ctx context.Context) error { return h.runDaemon(ctx, cfg) })
	h.life = l
	return nil
}

// runDaemon opens the daemon, runs it until ctx is done or it fails, and closes it.
func (h *Hub) runDaemon(ctx context.Context, cfg hub.Config) error {
	d, err := hub.Open(ctx, cfg)
	if err != nil {
		return err
	}
	h.mu.Lock()
	h.running, h.first = d, false
	h.mu.Unlock()
	err = errors.Join(d.Run(ctx), d.Close())
	h.mu.Lock()
	h.running = nil
	h.mu.Unlock()
	return err
}

// hubConfig returns the daemon's configuration. It opens the listeners, reads the join token for
// the first start of another hub, and bootstraps on the first start of the first hub.
func (h *Hub) hubConfig() (hub.Config, error) {
	cfg := h.c.cfg
	hc := hub.Config{
		DataDir: h.Dir, Name: h.Name, Bind: h.ip, HTTPInsecure: true, Workers: 2, Drivers: validate.KnownDrivers{Names: []string{sim.Name}},
		EdgeCertValidity: cfg.EdgeCertValidity,
		Heartbeat:        hub.Heartbeat{MinTTL: cfg.MinTTL, Grace: cfg.Grace},
		Raft:             cfg.Tuning.Raft,
		PeerIdle:         cfg.Tuning.PeerIdle, GossipProbe: cfg.Tuning.GossipProbe,
		Now: h.Clock.Now, Version: "virtual", Log: cfg.Taps.observedLogger(h.Name, h.log),
	}
	if h.first && h.ip == firstIP {
		hc.Bootstrap = true
	} else if h.first {
		token, err := os.ReadFile(h.c.hubTokenFile())
		if err != nil {
			return hc, fmt.Errorf("read the join token: %w", err)
		}
		hc.Join, hc.Token = []string{fmt.Sprintf("%s:%d", firstIP, quicPort)}, strings.TrimSpace(string(token))
	}
	var err error
	if hc.Packets, err = h.Host.ListenPacket(quicPort); err != nil {
		return hc, err
	}
	if hc.Listener, err = h.Host.Listen(httpPort); err != nil {
		return hc, err
	}
	hc.Gossip = &hub.GossipNetwork{Dial: h.Host.Dial}
	if hc.Gossip.Packets, err = h.Host.ListenPacket(gossipPort); err != nil {
		return hc, err
	}
	if hc.Gossip.Listen, err = h.Host.Listen(gossipPort); err != nil || !cfg.RaftStreams {
		return hc, err
	}
	hc.RaftStreams = &hub.RaftStreams{Dial: h.Host.Dial}
	hc.RaftStreams.Listen, err = h.Host.Listen(quicPort)
	return hc, err
}

// awaitReady waits until the daemon is ready. It returns an error if the daemon ends before.
func (h *Hub) awaitReady(ctx context.Context) error {
	for {
		h.mu.Lock()
		d, l := h.running, h.life
		h.mu.Unlock()
		if l == nil {
			return fmt.Errorf("wait for %s: it does not run", h.Name)
		}
		var ready <-chan struct{}
		if d != nil {
			ready = d.Ready()
		}
		select {
		case <-ready:
			return nil
		case <-l.ended:
			return fmt.Errorf("wait for %s: it ended: %w", h.Name, l.err)
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", h.Name, ctx.Err())
		case <-time.After(poll):
		}
	}
}

// runningDaemon returns the open daemon; nil if it is down or still opening.
func (h *Hub) runningDaemon() *hub.Hub {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.running
}

// State returns the hub's replica of the state; nil if the hub is down.
func (h *Hub) State() *state.Store {
	if d := h.runningDaemon(); d != nil {
		return d.State()
	}
	return nil
}

// Running reports whether the daemon's goroutines run.
func (h *Hub) Running() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.life == nil {
		return false
	}
	select {
	case <-h.life.ended:
		return false
	default:
		return true
	}
}

// Crash ends the daemon as SIGKILL does: from then on it sends no packet and writes nothing to
// disk. It waits until the daemon's goroutines have ended. A hub that is down stays down.
func (h *Hub) Crash() error {
	h.Host.Crash()
	h.mu.Lock()
	l := h.life
	h.mu.Unlock()
	if l == nil {
		return nil
	}
	l.dead.Store(true)
	l.stopAndWait()
	h.mu.Lock()
	h.life = nil
	h.mu.Unlock()
	return nil
}
