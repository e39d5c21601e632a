package client

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"skerry/api"
	"skerry/fleet"
)

func volumePath(parts ...string) string { return "/v1/volume/host" + joinPath(parts...) }

// Volumes lists dynamic host volumes. node and pool, if given, narrow the list.
func (c *Client) Volumes(ctx context.Context, l List, node fleet.NodeID, pool string) ([]api.VolumeStub, error) {
	q := l.queryValues()
	q.Set("type", fleet.VolumeHost)
	q.Set("node_id", string(node))
	q.Set("node_pool", pool)
	return readAnswer[[]api.VolumeStub](ctx, c, "/v1/volumes", q)
}

// Volume reads a dynamic host volume with the allocations that use it.
func (c *Client) Volume(ctx context.Context, id fleet.VolumeID) (api.Volume, error) {
	return readAnswer[api.Volume](ctx, c, volumePath(string(id)), nil)
}

// FindVolume returns the only dynamic host volume whose id begins with prefix, in any namespace unless the Client has
// one.
func (c *Client) FindVolume(ctx context.Context, prefix string) (api.VolumeStub, error) {
	list, err := c.inAnyNamespace().Volumes(ctx, List{Prefix: strings.ToLower(prefix)}, "", "")
	if err != nil {
		return api.VolumeStub{}, err
	}
	return pickMatch("volume", prefix, list, func(v api.VolumeStub) (id, label string) { return string(v.ID), v.Name })
}

// CreateVolume has the edge of a node make a volume.
func (c *Client) CreateVolume(ctx context.Context, v fleet.Volume) (api.VolumeAnswer, error) {
	return c.storeVolume(ctx, "create", v)
}

// RegisterVolume makes a folder that a node has already a volume.
func (c *Client) RegisterVolume(ctx context.Context, v fleet.Volume) (api.VolumeAnswer, error) {
	return c.storeVolume(ctx, "register", v)
}

func (c *Client) storeVolume(ctx context.Context, verb string, v fleet.Volume) (api.VolumeAnswer, error) {
	return writeRequest[api.VolumeAnswer](ctx, c, http.MethodPut, volumePath(verb), nil, api.VolumeRequest{Volume: &v})
}

// DeleteVolume has the edge of a volume delete it. force forgets the volume of an edge that never comes back.
func (c *Client) DeleteVolume(ctx context.Context, id fleet.VolumeID, force bool) error {
	q := url.Values{}
	if force {
		q.Set("force", "true")
	}
	return c.sendDelete(ctx, volumePath(string(id)), q)
}
