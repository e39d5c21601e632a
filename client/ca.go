package client

import (
	"context"
	"net/http"

	"skerry/api"
)

// CAStatus returns the cluster's certificate authorities, and how far a rotation is.
func (c *Client) CAStatus(ctx context.Context) (api.CAStatus, error) {
	return readAnswer[api.CAStatus](ctx, c, "/v1/operator/ca", nil)
}

// RotateCA begins to replace the CA.
func (c *Client) RotateCA(ctx context.Context, req api.RotateCARequest) (api.RotatedCA, error) {
	return writeRequest[api.RotatedCA](ctx, c, http.MethodPut, "/v1/operator/ca/rotate", nil, req)
}
