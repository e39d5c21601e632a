package cluster

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"skerry/chaos/engine"
)

// Hub is one hub.
type Hub struct {
	Member
	engine.Hub
	Told           string   // file in which it tells what it applies; "": it does not
	firstStartArgs []string // arguments of the first start alone
	httpHost       string   // address of its HTTP API
}

// startBound is how long a hub may take until it serves.
const startBound = 30 * time.Second

// Start starts the process.
func (h *Hub) Start() error {
	first := h.firstStartArgs
	h.firstStartArgs = nil
	return h.startProcess(nil, first...)
}

// PowerCut is a Machine's.
func (h *Hub) PowerCut() error {
	kill := func() error { h.Kill(); return nil }
	if h.Disk == nil {
		return kill()
	}
	return h.Disk.PowerCut(kill)
}

// AwaitReady waits until the hub serves and knows a leader.
func (h *Hub) AwaitReady(ctx context.Context) error {
	return Eventually(ctx, startBound, h.Name+" is ready", func(ctx context.Context) string {
		if !h.Running() {
			return "its process ended; see " + h.LogFile()
		}
		if err := h.Healthy(ctx); err != nil {
			return err.Error()
		}
		return ""
	})
}

// URL is the base of its HTTP API (reachable from this machine only where the
// network is a proxy).
func (h *Hub) URL() string { return "http://" + h.httpAddress() }

func (h *Hub) httpAddress() string { return net.JoinHostPort(h.httpHost, strconv.Itoa(httpPort)) }

// dialHTTP reaches the HTTP API also while the hub is cut off.
func (h *Hub) dialHTTP(ctx context.Context) (net.Conn, error) {
	return h.net.Dial(ctx, h.Name, h.httpAddress())
}

// Leader finds the hub that leads, as the first one that answers says.
func (c *Cluster) Leader(ctx context.Context) (*Hub, error) {
	for _, h := range c.Hubs {
		if !h.Running() {
			continue
		}
		s, err := h.Fleet(ctx)
		if err != nil || s.Leader == "" {
			continue
		}
		for _, l := range c.Hubs {
			if l.Name == string(s.Leader) && l.Running() {
				return l, nil
			}
		}
	}
	return nil, fmt.Errorf("find the leading hub: none of %d hubs knows one", len(c.Hubs))
}
