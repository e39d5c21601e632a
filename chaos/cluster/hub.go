package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"skerry/chaos/hubclient"
)

// Hub is the machine of one hub.
type Hub struct {
	Member
	hubclient.Hub
	Told           string   // file to which it exports the entries that it applies; "": none
	firstStartArgs []string // arguments for the first start only
	httpHost       string   // host of its HTTP API
}

// startBound is the maximum time from a hub's start until it is ready.
const startBound = 30 * time.Second

// Start starts the process and does not wait until it is ready.
func (h *Hub) Start() error {
	first := h.firstStartArgs
	h.firstStartArgs = nil
	return h.WithPower(func() error { return h.startPowered(nil, first...) })
}

// PowerCut kills the process. If the hub has its own disk, data that was not synced is lost.
func (h *Hub) PowerCut() error {
	kill := func() error { h.Kill(); return nil }
	if h.Disk == nil {
		return kill()
	}
	return h.Disk.PowerCut(kill)
}

// AwaitReady waits up to startBound until the hub reports that it is healthy. It returns an error if
// the process has ended.
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

// URL returns the base URL of the HTTP API. Without network namespaces it can be reached from this
// process.
func (h *Hub) URL() string { return "http://" + h.httpAddress() }

func (h *Hub) httpAddress() string { return net.JoinHostPort(h.httpHost, strconv.Itoa(httpPort)) }

// Read returns the answer to a GET of the HTTP API with a token ("": none), whatever its format.
func (h *Hub) Read(ctx context.Context, path, token string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL()+path, nil)
	if err != nil {
		return nil, fmt.Errorf("ask %s for %s: %w", h.Name, path, err)
	}
	req.Header.Set("X-Nomad-Token", token)
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return h.dialHTTP(ctx) }}
	res, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask %s for %s: %w", h.Name, path, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("it answers %s: %.200s", res.Status, b)
	}
	if err != nil {
		return nil, fmt.Errorf("ask %s for %s: %w", h.Name, path, err)
	}
	return b, nil
}

// dialHTTP connects to the HTTP API from inside the hub's place, so that it works while the hub is
// cut off.
func (h *Hub) dialHTTP(ctx context.Context) (net.Conn, error) {
	return h.net.Dial(ctx, h.Name, h.httpAddress())
}

// Leader returns the leader as the first hub reports it that answers and knows a running one.
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
