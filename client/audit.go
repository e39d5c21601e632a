package client

import (
	"context"
	"io"
	"net/url"
	"strconv"
)

// Audit returns the lines of the hub's own audit after an entry, as JSON. The caller closes it.
func (c *Client) Audit(ctx context.Context, after uint64) (io.ReadCloser, error) {
	return c.openStream(ctx, "/v1/operator/audit", url.Values{"after": {strconv.FormatUint(after, 10)}})
}
