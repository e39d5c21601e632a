package cluster

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"skerry/fleet"
	"skerry/hub/api"
)

// Hub is one hub.
type Hub struct {
	member
	first []string // arguments of the first start alone
	http  string   // address of its HTTP API
}

// startBound is how long a hub may take until it serves.
const startBound = 30 * time.Second

// Start starts the process.
func (h *Hub) Start() error {
	first := h.first
	h.first = nil
	return h.start(nil, first...)
}

// AwaitReady waits until the hub serves and knows a leader.
func (h *Hub) AwaitReady(ctx context.Context) error {
	return Eventually(ctx, startBound, h.Name+" is ready", func(ctx context.Context) string {
		if !h.Running() {
			return "its process ended; see " + h.LogFile()
		}
		if err := h.Call(ctx, http.MethodGet, "/v1/agent/health", nil, nil); err != nil {
			return err.Error()
		}
		return ""
	})
}

// URL is the base of its HTTP API (reachable from this machine only where the
// network is a proxy).
func (h *Hub) URL() string { return "http://" + h.addr() }

func (h *Hub) addr() string { return net.JoinHostPort(h.http, strconv.Itoa(httpPort)) }

// Call calls the hub's HTTP API, also while it is cut off. out may be nil.
func (h *Hub) Call(ctx context.Context, method, path string, in, out any) error {
	c := newClient("http://"+h.addr(), func(ctx context.Context) (net.Conn, error) { return h.net.Dial(ctx, h.Name, h.addr()) })
	if err := c.call(ctx, method, path, in, out); err != nil {
		return fmt.Errorf("%s: %w", h.Name, err)
	}
	return nil
}

// Fleet reads the fleet's status as this hub has it.
func (h *Hub) Fleet(ctx context.Context) (api.FleetStatus, error) {
	var s api.FleetStatus
	err := h.Call(ctx, http.MethodGet, "/v1/fleet/status?stale", nil, &s)
	return s, err
}

// Register registers a job and returns its evaluation.
func (h *Hub) Register(ctx context.Context, job *fleet.Job) (fleet.EvalID, error) {
	var answer api.EvalAnswer
	err := h.Call(ctx, http.MethodPost, "/v1/jobs", map[string]any{"Job": job}, &answer)
	return answer.EvalID, err
}

// Deregister stops a job.
func (h *Hub) Deregister(ctx context.Context, id fleet.JobID, purge bool) error {
	return h.Call(ctx, http.MethodDelete, fmt.Sprintf("/v1/job/%s?purge=%t", url.PathEscape(string(id)), purge), nil, nil)
}

// Allocs reads all allocations, each whole.
func (h *Hub) Allocs(ctx context.Context) ([]fleet.Alloc, error) {
	var nodes []api.NodeStub
	if err := h.Call(ctx, http.MethodGet, "/v1/nodes?stale", nil, &nodes); err != nil {
		return nil, err
	}
	var all []fleet.Alloc
	for _, n := range nodes {
		var allocs []fleet.Alloc
		if err := h.Call(ctx, http.MethodGet, "/v1/node/"+string(n.ID)+"/allocations?stale", nil, &allocs); err != nil {
			return nil, err
		}
		all = append(all, allocs...)
	}
	return all, nil
}

// Node reads one node.
func (h *Hub) Node(ctx context.Context, id fleet.NodeID) (fleet.Node, error) {
	var n fleet.Node
	err := h.Call(ctx, http.MethodGet, "/v1/node/"+string(id)+"?stale", nil, &n)
	return n, err
}

// NodeHistory reads what the cluster has of a node: sessions, partitions, rows.
func (h *Hub) NodeHistory(ctx context.Context, id fleet.NodeID) ([]fleet.HistoryEntry, error) {
	var entries []fleet.HistoryEntry
	err := h.Call(ctx, http.MethodGet, "/v1/node/"+string(id)+"/history?stale", nil, &entries)
	return entries, err
}

// AllocHistory reads an allocation's timeline, and how much of it the hub let go.
func (h *Hub) AllocHistory(ctx context.Context, id fleet.AllocID) (entries []fleet.HistoryEntry, dropped uint64, err error) {
	var answer api.HistoryAnswer
	err = h.Call(ctx, http.MethodGet, "/v1/allocation/"+string(id)+"/history?stale", nil, &answer)
	return answer.Entries, answer.Dropped, err
}

// Evals reads all evaluations.
func (h *Hub) Evals(ctx context.Context) ([]fleet.Evaluation, error) {
	var evals []fleet.Evaluation
	err := h.Call(ctx, http.MethodGet, "/v1/evaluations?stale&namespace=*", nil, &evals)
	return evals, err
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
