package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"skerry/api"
	"skerry/fleet"
	"skerry/fleet/usage"
)

// Allocs lists allocations.
func (c *Client) Allocs(ctx context.Context, l List) ([]api.AllocStub, error) {
	return readList[api.AllocStub](ctx, c, "/v1/allocations", l)
}

// Alloc reads an allocation.
func (c *Client) Alloc(ctx context.Context, id fleet.AllocID) (fleet.Alloc, error) {
	return readAnswer[fleet.Alloc](ctx, c, "/v1/allocation"+joinPath(string(id)), nil)
}

// AllocHistory reads the timeline of an allocation.
func (c *Client) AllocHistory(ctx context.Context, id fleet.AllocID) (api.HistoryAnswer, error) {
	return readAnswer[api.HistoryAnswer](ctx, c, "/v1/allocation"+joinPath(string(id), "history"), nil)
}

// StopAlloc stops an allocation; its job gets another one in its place.
func (c *Client) StopAlloc(ctx context.Context, id fleet.AllocID, o StopOptions) (api.AllocStopAnswer, error) {
	q := url.Values{"no_shutdown_delay": {flag(o.NoShutdownDelay)}}
	return writeRequest[api.AllocStopAnswer](ctx, c, http.MethodPut, "/v1/allocation"+joinPath(string(id), "stop"), q, nil)
}

func allocClientPath(id fleet.AllocID, what string) string {
	return "/v1/client/allocation" + joinPath(string(id), what)
}

// RestartAlloc has the node of an allocation restart its tasks.
func (c *Client) RestartAlloc(ctx context.Context, id fleet.AllocID, req api.AllocRestartRequest) error {
	return c.sendPut(ctx, allocClientPath(id, "restart"), nil, req)
}

// SignalAlloc has the node of an allocation send a signal to its tasks.
func (c *Client) SignalAlloc(ctx context.Context, id fleet.AllocID, req api.AllocSignalRequest) error {
	return c.sendPut(ctx, allocClientPath(id, "signal"), nil, req)
}

// AllocChecks asks for the newest results of the checks of an allocation's services from its node.
func (c *Client) AllocChecks(ctx context.Context, id fleet.AllocID) (map[string]fleet.CheckResult, error) {
	return readAnswer[map[string]fleet.CheckResult](ctx, c, allocClientPath(id, "checks"), nil)
}

// AllocUsage asks the node of an allocation for the resources that its tasks use now.
func (c *Client) AllocUsage(ctx context.Context, id fleet.AllocID) (usage.Alloc, error) {
	return readAnswer[usage.Alloc](ctx, c, allocClientPath(id, "stats"), nil)
}

func filePath(what string, id fleet.AllocID) string {
	return "/v1/client/fs" + joinPath(what, string(id))
}

// StatFile describes a file or folder of an allocation.
func (c *Client) StatFile(ctx context.Context, id fleet.AllocID, path string) (fleet.FileInfo, error) {
	return readAnswer[fleet.FileInfo](ctx, c, filePath("stat", id), url.Values{"path": {path}})
}

// ListFiles lists a folder of an allocation.
func (c *Client) ListFiles(ctx context.Context, id fleet.AllocID, path string) ([]fleet.FileInfo, error) {
	return readAnswer[[]fleet.FileInfo](ctx, c, filePath("ls", id), url.Values{"path": {path}})
}

func fileQuery(path string, offset int64) url.Values {
	return url.Values{"path": {path}, "offset": {strconv.FormatInt(max(offset, 0), 10)}}
}

// ReadFile opens a file of an allocation from an offset.
func (c *Client) ReadFile(ctx context.Context, id fleet.AllocID, path string, offset int64) (io.ReadCloser, error) {
	return c.openStream(ctx, filePath("readat", id), fileQuery(path, offset))
}

// FollowFile writes to w a file of an allocation from an offset, and everything that is added to it, until ctx ends.
func (c *Client) FollowFile(ctx context.Context, w io.Writer, id fleet.AllocID, path string, offset int64) error {
	out, err := c.openStream(ctx, filePath("stream", id), fileQuery(path, offset))
	if err != nil {
		return err
	}
	defer out.Close()
	for frames := json.NewDecoder(out); ; {
		var frame api.StreamFrame
		if err := frames.Decode(&frame); ctx.Err() != nil || err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("follow a file: %w", err)
		}
		if _, err := w.Write(frame.Data); err != nil {
			return err
		}
	}
}

// LogQuery says which part of a task's output is read.
type LogQuery struct {
	Task    string // "": the only one
	Stderr  bool
	Follow  bool
	FromEnd bool // Offset counts back from the end
	Offset  int64
}

// TaskLogs opens the output of a task.
func (c *Client) TaskLogs(ctx context.Context, id fleet.AllocID, l LogQuery) (io.ReadCloser, error) {
	q := url.Values{"plain": {"true"}, "task": {l.Task}, "type": {"stdout"}, "follow": {flag(l.Follow)}, "offset": {strconv.FormatInt(l.Offset, 10)}}
	if l.Stderr {
		q.Set("type", "stderr")
	}
	if l.FromEnd {
		q.Set("origin", "end")
	}
	return c.openStream(ctx, filePath("logs", id), q)
}
