// Package operator asks a hub, through client, what the checkers want to know of the whole fleet:
// each answer is the state of this hub alone. Runs in virtual and in real time ask by it. It starts
// no goroutine and keeps nothing.
package operator

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"skerry/api"
	"skerry/client"
	"skerry/fleet"
)

// Hub is one hub's HTTP API.
type Hub struct {
	*client.Client
	own *client.Client // for reads of the hub's own state
}

// NewHub makes a Hub that is reached at base by connections that dial makes.
func NewHub(base string, dial func(ctx context.Context) (net.Conn, error)) (Hub, error) {
	c, err := client.New(client.Config{Addr: base, Dial: dial, Timeout: 30 * time.Second, NoKeepAlive: true})
	if err != nil {
		return Hub{}, fmt.Errorf("make a client of the hub at %s: %w", base, err)
	}
	return Hub{c, c.AllowStale().In("*")}, nil
}

// Fleet reads the status of the fleet.
func (h Hub) Fleet(ctx context.Context) (api.FleetStatus, error) {
	return h.own.Fleet(ctx, client.List{})
}

// Register registers a job and returns its evaluation.
func (h Hub) Register(ctx context.Context, job *fleet.Job) (fleet.EvalID, error) {
	answer, err := h.RegisterJob(ctx, job, api.JobRegisterRequest{})
	return answer.EvalID, err
}

// Deregister stops a job.
func (h Hub) Deregister(ctx context.Context, id fleet.JobID, purge bool) error {
	_, err := h.StopJob(ctx, id, client.StopOptions{Purge: purge})
	return err
}

// Allocs reads all allocations, each whole.
func (h Hub) Allocs(ctx context.Context) ([]fleet.Alloc, error) {
	nodes, err := h.own.Nodes(ctx, client.List{})
	if err != nil {
		return nil, err
	}
	var all []fleet.Alloc
	for _, n := range nodes {
		allocs, err := h.NodeAllocs(ctx, n.ID)
		if err != nil {
			return nil, err
		}
		all = append(all, allocs...)
	}
	return all, nil
}

// Node reads a node.
func (h Hub) Node(ctx context.Context, id fleet.NodeID) (fleet.Node, error) {
	return h.own.Node(ctx, id)
}

// NodeAllocs reads the allocations of a node, each whole.
func (h Hub) NodeAllocs(ctx context.Context, id fleet.NodeID) ([]fleet.Alloc, error) {
	return h.own.NodeAllocs(ctx, id)
}

// NodeHistory reads what the cluster has recorded of a node: sessions, partitions, rows.
func (h Hub) NodeHistory(ctx context.Context, id fleet.NodeID) ([]fleet.HistoryEntry, error) {
	return h.own.NodeHistory(ctx, id, client.HistoryQuery{})
}

// AllocHistory reads the timeline of an allocation, and how many entries the hub has dropped.
func (h Hub) AllocHistory(ctx context.Context, id fleet.AllocID) (entries []fleet.HistoryEntry, dropped uint64, err error) {
	answer, err := h.own.AllocHistory(ctx, id)
	return answer.Entries, answer.Dropped, err
}

// Evals reads all evaluations.
func (h Hub) Evals(ctx context.Context) ([]fleet.Evaluation, error) {
	return h.own.Evals(ctx, client.List{})
}

// Deployments reads the active deployments.
func (h Hub) Deployments(ctx context.Context) ([]fleet.Deployment, error) {
	all, err := h.own.Deployments(ctx, client.List{})
	return slices.DeleteFunc(all, func(d fleet.Deployment) bool { return !d.Active() }), err
}

// Snapshot reads a snapshot of the cluster's state.
func (h Hub) Snapshot(ctx context.Context) ([]byte, error) {
	file, err := h.Client.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(file)
}

// RestoreSnapshot replaces the cluster's state by a snapshot.
func (h Hub) RestoreSnapshot(ctx context.Context, file []byte) (api.RestoreAnswer, error) {
	return h.Client.RestoreSnapshot(ctx, bytes.NewReader(file))
}
