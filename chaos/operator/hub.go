// Package operator is the fleet as its operator sees it: the HTTP API of a hub, over
// whatever connection the run makes (a namespace's, a simulated network's). Runs in
// virtual and in real time ask by it. It starts no goroutine of its own and keeps
// nothing.
package operator

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"

	"skerry/api"
	"skerry/fleet"
)

// Hub is one hub's HTTP API.
type Hub struct {
	name string
	http *client
}

// NewHub makes a Hub that is reached at base by connections that dial makes.
func NewHub(name, base string, dial func(ctx context.Context) (net.Conn, error)) Hub {
	return Hub{name: name, http: newClient(base, dial)}
}

// Call calls the API. in and out may be nil.
func (h Hub) Call(ctx context.Context, method, path string, in, out any) error {
	if err := h.http.callEndpoint(ctx, method, path, in, out); err != nil {
		return fmt.Errorf("%s: %w", h.name, err)
	}
	return nil
}

// Fleet reads the fleet's status as this hub has it.
func (h Hub) Fleet(ctx context.Context) (api.FleetStatus, error) {
	var s api.FleetStatus
	err := h.Call(ctx, http.MethodGet, "/v1/fleet/status?stale", nil, &s)
	return s, err
}

// Register registers a job and returns its evaluation.
func (h Hub) Register(ctx context.Context, job *fleet.Job) (fleet.EvalID, error) {
	var answer api.EvalAnswer
	err := h.Call(ctx, http.MethodPost, "/v1/jobs", map[string]any{"Job": job}, &answer)
	return answer.EvalID, err
}

// Deregister stops a job.
func (h Hub) Deregister(ctx context.Context, id fleet.JobID, purge bool) error {
	return h.Call(ctx, http.MethodDelete, fmt.Sprintf("/v1/job/%s?purge=%t", url.PathEscape(string(id)), purge), nil, nil)
}

// RegisterPool makes a node pool, or gives it other rules.
func (h Hub) RegisterPool(ctx context.Context, p fleet.Pool) error {
	return h.Call(ctx, http.MethodPut, "/v1/node/pools", p, nil)
}

// Allocs reads all allocations, each whole.
func (h Hub) Allocs(ctx context.Context) ([]fleet.Alloc, error) {
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
func (h Hub) Node(ctx context.Context, id fleet.NodeID) (fleet.Node, error) {
	var n fleet.Node
	err := h.Call(ctx, http.MethodGet, "/v1/node/"+string(id)+"?stale", nil, &n)
	return n, err
}

// NodeHistory reads what the cluster has of a node: sessions, partitions, rows.
func (h Hub) NodeHistory(ctx context.Context, id fleet.NodeID) ([]fleet.HistoryEntry, error) {
	var entries []fleet.HistoryEntry
	err := h.Call(ctx, http.MethodGet, "/v1/node/"+string(id)+"/history?stale", nil, &entries)
	return entries, err
}

// AllocHistory reads an allocation's timeline, and how much of it the hub let go.
func (h Hub) AllocHistory(ctx context.Context, id fleet.AllocID) (entries []fleet.HistoryEntry, dropped uint64, err error) {
	var answer api.HistoryAnswer
	err = h.Call(ctx, http.MethodGet, "/v1/allocation/"+string(id)+"/history?stale", nil, &answer)
	return answer.Entries, answer.Dropped, err
}

// Evals reads all evaluations.
func (h Hub) Evals(ctx context.Context) ([]fleet.Evaluation, error) {
	var evals []fleet.Evaluation
	err := h.Call(ctx, http.MethodGet, "/v1/evaluations?stale&namespace=*", nil, &evals)
	return evals, err
}

// Deployments reads the deployments that go on.
func (h Hub) Deployments(ctx context.Context) ([]fleet.Deployment, error) {
	var all []fleet.Deployment
	err := h.Call(ctx, http.MethodGet, "/v1/deployments?stale&namespace=*", nil, &all)
	return slices.DeleteFunc(all, func(d fleet.Deployment) bool { return !d.Active() }), err
}

// Snapshot saves the cluster's state.
func (h Hub) Snapshot(ctx context.Context) (file []byte, err error) {
	err = h.Call(ctx, http.MethodGet, "/v1/operator/snapshot", nil, &file)
	return file, err
}

// RestoreSnapshot has a snapshot replace the cluster's state.
func (h Hub) RestoreSnapshot(ctx context.Context, file []byte) (done api.RestoreAnswer, err error) {
	err = h.Call(ctx, http.MethodPut, "/v1/operator/snapshot", file, &done)
	return done, err
}
