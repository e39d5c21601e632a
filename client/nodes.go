package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"skerry/api"
	"skerry/fleet"
	"skerry/fleet/usage"
)

func nodePath(id fleet.NodeID, more string) string { return "/v1/node" + joinPath(string(id)) + more }

// Fleet reads the status of hubs, nodes and allocations on one page.
func (c *Client) Fleet(ctx context.Context, l List) (api.FleetStatus, error) {
	return readAnswer[api.FleetStatus](ctx, c, "/v1/fleet/status", l.queryValues())
}

// Held lists the allocations that people on site keep stopped.
func (c *Client) Held(ctx context.Context) ([]api.HeldAlloc, error) {
	return readList[api.HeldAlloc](ctx, c, "/v1/fleet/held", List{})
}

// Nodes lists nodes.
func (c *Client) Nodes(ctx context.Context, l List) ([]api.NodeStub, error) {
	return readList[api.NodeStub](ctx, c, "/v1/nodes", l)
}

// Node reads a node.
func (c *Client) Node(ctx context.Context, id fleet.NodeID) (fleet.Node, error) {
	return readAnswer[fleet.Node](ctx, c, nodePath(id, ""), nil)
}

// NodeAllocs reads the allocations of a node, each whole.
func (c *Client) NodeAllocs(ctx context.Context, id fleet.NodeID) ([]fleet.Alloc, error) {
	return readAnswer[[]fleet.Alloc](ctx, c, nodePath(id, "/allocations"), nil)
}

// HistoryQuery bounds the history of a node.
type HistoryQuery struct {
	Allocations  bool // with the histories of its allocations
	Since, Until time.Time
}

// NodeHistory reads the timeline of a node.
func (c *Client) NodeHistory(ctx context.Context, id fleet.NodeID, h HistoryQuery) ([]fleet.HistoryEntry, error) {
	q := url.Values{"allocations": {flag(h.Allocations)}}
	for name, at := range map[string]time.Time{"since": h.Since, "until": h.Until} {
		if !at.IsZero() {
			q.Set(name, at.UTC().Format(time.RFC3339))
		}
	}
	return readAnswer[[]fleet.HistoryEntry](ctx, c, nodePath(id, "/history"), q)
}

// NodeUsage asks a node for the resources that its machine uses now.
func (c *Client) NodeUsage(ctx context.Context, id fleet.NodeID) (usage.Host, error) {
	return readAnswer[usage.Host](ctx, c, "/v1/client/stats", url.Values{"node_id": {string(id)}})
}

// changeNode sends a change ("/drain", "/purge" and so on) of a node with the body req.
func (c *Client) changeNode(ctx context.Context, id fleet.NodeID, change string, req any) (api.NodeAnswer, error) {
	return writeRequest[api.NodeAnswer](ctx, c, http.MethodPut, nodePath(id, change), nil, req)
}

// DrainNode starts or ends the drain of a node.
func (c *Client) DrainNode(ctx context.Context, id fleet.NodeID, req api.DrainRequest) (api.NodeAnswer, error) {
	return c.changeNode(ctx, id, "/drain", req)
}

// SetNodeEligibility says whether new allocations may be placed on a node.
func (c *Client) SetNodeEligibility(ctx context.Context, id fleet.NodeID, req api.NodeEligibilityRequest) (api.NodeAnswer, error) {
	return c.changeNode(ctx, id, "/eligibility", req)
}

// PurgeNode removes a node from the hubs, and replaces its allocations.
func (c *Client) PurgeNode(ctx context.Context, id fleet.NodeID) (api.NodeAnswer, error) {
	return c.changeNode(ctx, id, "/purge", nil)
}

// RevokeNode expels a node for good.
func (c *Client) RevokeNode(ctx context.Context, id fleet.NodeID, req api.RevokeRequest) (api.NodeAnswer, error) {
	return c.changeNode(ctx, id, "/revoke", req)
}

// ReadmitNode lets a node continue whose data directory was restored from a backup.
func (c *Client) ReadmitNode(ctx context.Context, id fleet.NodeID) (api.NodeAnswer, error) {
	return c.changeNode(ctx, id, "/readmit", nil)
}

// Revocations lists the nodes that were revoked.
func (c *Client) Revocations(ctx context.Context) ([]fleet.Revocation, error) {
	return readList[fleet.Revocation](ctx, c, "/v1/node/revocations", List{})
}

func poolPath(name, more string) string { return "/v1/node/pool" + joinPath(name) + more }

// NodePools lists node pools.
func (c *Client) NodePools(ctx context.Context, l List) ([]fleet.Pool, error) {
	return readList[fleet.Pool](ctx, c, "/v1/node/pools", l)
}

// NodePool reads a node pool.
func (c *Client) NodePool(ctx context.Context, name string) (fleet.Pool, error) {
	return readAnswer[fleet.Pool](ctx, c, poolPath(name, ""), nil)
}

// NodePoolNodes lists the nodes of a pool.
func (c *Client) NodePoolNodes(ctx context.Context, name string) ([]api.NodeStub, error) {
	return readList[api.NodeStub](ctx, c, poolPath(name, "/nodes"), List{})
}

// NodePoolJobs lists the jobs of a pool.
func (c *Client) NodePoolJobs(ctx context.Context, name string) ([]api.JobStub, error) {
	return readList[api.JobStub](ctx, c, poolPath(name, "/jobs"), List{})
}

// ApplyNodePool creates a node pool, or replaces its rules.
func (c *Client) ApplyNodePool(ctx context.Context, p fleet.Pool) error {
	return c.sendPut(ctx, "/v1/node/pools", nil, p)
}

// DeleteNodePool deletes a node pool.
func (c *Client) DeleteNodePool(ctx context.Context, name string) error {
	return c.sendDelete(ctx, poolPath(name, ""), nil)
}
