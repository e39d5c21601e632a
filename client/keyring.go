package client

import (
	"context"
	"net/http"
	"net/url"

	"skerry/api"
	"skerry/fleet"
)

// RootKeys lists the keys of the cluster's keyring, without the keys themselves.
func (c *Client) RootKeys(ctx context.Context, l List) ([]fleet.RootKey, error) {
	return readList[fleet.RootKey](ctx, c, "/v1/operator/keyring/keys", l)
}

// RotateRootKey makes a new key active. With full the hubs encrypt all variables with it, in the background.
func (c *Client) RotateRootKey(ctx context.Context, full bool) (api.RotatedKey, error) {
	return writeRequest[api.RotatedKey](ctx, c, http.MethodPut, "/v1/operator/keyring/rotate", url.Values{"full": {flag(full)}}, nil)
}

// RemoveRootKey removes a key with which nothing is encrypted.
func (c *Client) RemoveRootKey(ctx context.Context, id string) error {
	return c.sendDelete(ctx, "/v1/operator/keyring/key"+joinPath(id), nil)
}
