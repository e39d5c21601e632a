package client

import (
	"context"

	"skerry/api"
	"skerry/fleet"
)

// NodeExposure lists what an edge knew: allocations, and paths of variables.
func (c *Client) NodeExposure(ctx context.Context, id fleet.NodeID) (api.NodeExposure, error) {
	return readAnswer[api.NodeExposure](ctx, c, nodePath(id, "/exposure"), nil)
}
