package client

import (
	"context"
	"net/http"

	"skerry/api"
)

// StateKeyStatus returns the keys with which the secrets in the state are encrypted, and how far a rotation is.
func (c *Client) StateKeyStatus(ctx context.Context) (api.StateKeyStatus, error) {
	return readAnswer[api.StateKeyStatus](ctx, c, "/v1/operator/state-key", nil)
}

// RotateStateKey begins to replace the state key.
func (c *Client) RotateStateKey(ctx context.Context, req api.RotateStateKeyRequest) (api.RotatedStateKey, error) {
	return writeRequest[api.RotatedStateKey](ctx, c, http.MethodPut, "/v1/operator/state-key/rotate", nil, req)
}

// ForgetStateKey ends the time for which a replaced state key is kept.
func (c *Client) ForgetStateKey(ctx context.Context, id string) error {
	return c.sendDelete(ctx, "/v1/operator/state-key"+joinPath(id), nil)
}
