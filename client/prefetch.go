package client

import (
	"context"
	"net/http"

	"skerry/api"
	"skerry/fleet"
)

// PrefetchJob has nodes fetch the artifacts and images of a version of a job before allocations need them.
func (c *Client) PrefetchJob(ctx context.Context, id fleet.JobID, req api.PrefetchRequest) (api.PrefetchAnswer, error) {
	return writeRequest[api.PrefetchAnswer](ctx, c, http.MethodPut, jobPath(id, "/prefetch"), nil, req)
}

// JobPrefetches lists the prefetches of a job, with their states.
func (c *Client) JobPrefetches(ctx context.Context, id fleet.JobID, l List) ([]api.PrefetchStub, error) {
	return readList[api.PrefetchStub](ctx, c, jobPath(id, "/prefetch"), l)
}

// EndPrefetches ends the prefetches of a job: its nodes may evict the fetched contents again.
func (c *Client) EndPrefetches(ctx context.Context, id fleet.JobID) error {
	return c.sendDelete(ctx, jobPath(id, "/prefetch"), nil)
}
