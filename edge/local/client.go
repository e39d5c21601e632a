package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"

	"skerry/fleet"
)

// Client calls the local API of the agent on this machine. It is safe for concurrent use.
type Client struct {
	socket   string
	siteCode string // "": none is given
	http     *http.Client
}

// NewClient makes a Client for the unix socket at path. It does not connect.
func NewClient(path string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var c net.Conn
		err := withShortPath(path, func(short string) (err error) {
			c, err = new(net.Dialer).DialContext(ctx, "unix", short)
			return err
		})
		return c, err
	}
	return &Client{socket: path, http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// WithSiteCode returns a Client that gives a site code with each request.
func (c *Client) WithSiteCode(code string) *Client {
	return &Client{socket: c.socket, siteCode: code, http: c.http}
}

// Status returns the status of the edge and of all its allocations.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	err := c.callJSON(ctx, http.MethodGet, "/v1/status", nil, &s)
	return s, err
}

// History returns the rows that the journal still holds: those of an allocation, or all for "".
func (c *Client) History(ctx context.Context, alloc fleet.AllocID) ([]fleet.Transition, error) {
	var ts []fleet.Transition
	err := c.callJSON(ctx, http.MethodGet, "/v1/history", url.Values{"alloc": {string(alloc)}}, &ts)
	return ts, err
}

// Services returns the registrations of a service that the edge knows of, or all for "".
func (c *Client) Services(ctx context.Context, namespace, name string) ([]Service, error) {
	var list []Service
	err := c.callJSON(ctx, http.MethodGet, "/v1/services", url.Values{"namespace": {namespace}, "name": {name}}, &list)
	return list, err
}

// Checks returns the newest results of an allocation's checks, or of all for "".
func (c *Client) Checks(ctx context.Context, alloc fleet.AllocID) ([]Check, error) {
	var list []Check
	err := c.callJSON(ctx, http.MethodGet, "/v1/checks", url.Values{"alloc": {string(alloc)}}, &list)
	return list, err
}

// Logs opens a task's output for reading. With Follow, reading ends with the allocation or with ctx.
func (c *Client) Logs(ctx context.Context, req LogRequest) (io.ReadCloser, error) {
	q := url.Values{
		"alloc": {string(req.Alloc)}, "task": {req.Task}, "stream": {req.Stream}, "origin": {req.Origin},
		"offset": {strconv.FormatInt(req.Offset, 10)}, "follow": {strconv.FormatBool(req.Follow)},
	}
	resp, err := c.sendAgentRequest(ctx, http.MethodGet, "/v1/logs", q)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Stop stops an allocation and, unless req.MayReturn, holds its name. The stop is journaled when Stop returns; the
// tasks end later.
func (c *Client) Stop(ctx context.Context, req StopRequest) error {
	q := url.Values{"alloc": {string(req.Alloc)}, "reason": {req.Reason}}
	if req.NoShutdownDelay { // an older agent does not know the parameter
		q.Set("no_shutdown_delay", "true")
	}
	if req.MayReturn {
		q.Set("may_return", "true")
	}
	return c.postRequest(ctx, "/v1/stop", q)
}

// Start releases the hold on the name of an allocation, after Stop.
func (c *Client) Start(ctx context.Context, alloc fleet.AllocID, reason string) (Started, error) {
	var s Started
	err := c.callJSON(ctx, http.MethodPost, "/v1/start", url.Values{"alloc": {string(alloc)}, "reason": {reason}}, &s)
	return s, err
}

// Restart restarts one task of an allocation, or all running ones for "". It returns when that is journaled.
func (c *Client) Restart(ctx context.Context, alloc fleet.AllocID, task, reason string) error {
	return c.postRequest(ctx, "/v1/restart", url.Values{"alloc": {string(alloc)}, "task": {task}, "reason": {reason}})
}

// postRequest sends a POST request whose answer has no body.
func (c *Client) postRequest(ctx context.Context, path string, q url.Values) error {
	resp, err := c.sendAgentRequest(ctx, http.MethodPost, path, q)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// callJSON sends a request and decodes the JSON answer into the pointer into.
func (c *Client) callJSON(ctx context.Context, method, path string, q url.Values, into any) error {
	resp, err := c.sendAgentRequest(ctx, method, path, q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("read the agent's answer to %s: %w", path, err)
	}
	return nil
}

// forbiddenError returns the error for a socket that this user may not open. Its hint names the owner of the
// socket.
func (c *Client) forbiddenError() error {
	refused := fleet.Errorf(fleet.CodeForbidden, "open the agent's socket %s: permission denied", c.socket)
	for _, path := range []string{c.socket, filepath.Dir(c.socket)} {
		who, ok := ownerOf(path)
		if !ok {
			continue
		}
		hint := fmt.Sprintf("%s belongs to user %s: run the command as that user, or with sudo", path, who.user)
		if who.groupCanUse {
			hint = fmt.Sprintf("%s belongs to user %s and group %s: run the command as a member of that group, or with sudo", path, who.user, who.group)
		}
		return refused.WithHint("%s", hint)
	}
	return refused.WithHint("run the command as the user that the agent runs as, or with sudo")
}

// owner says who may use a file.
type owner struct {
	user, group string
	groupCanUse bool // the group may use the file
}

// sendAgentRequest sends a request and returns a successful response. An error of the agent is a *fleet.Error; if no
// agent answers, it has fleet.CodeUnavailable and a hint.
func (c *Client) sendAgentRequest(ctx context.Context, method, path string, q url.Values) (*http.Response, error) {
	return c.sendBody(ctx, method, path, q, nil)
}

// sendBody is sendAgentRequest with a body.
func (c *Client) sendBody(ctx context.Context, method, path string, q url.Values, body io.Reader) (*http.Response, error) {
	u := url.URL{Scheme: "http", Host: "edge", Path: path, RawQuery: q.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("ask the agent for %s: %w", path, err)
	}
	return c.sendHTTP(ctx, req, path)
}

// sendHTTP sends a request to a path, as sendAgentRequest does.
func (c *Client) sendHTTP(ctx context.Context, req *http.Request, path string) (*http.Response, error) {
	if c.siteCode != "" {
		req.Header.Set(siteCodeHeader, c.siteCode)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var cause *net.OpError
		var gone *fs.PathError
		if errors.Is(err, fs.ErrPermission) {
			return nil, c.forbiddenError()
		}
		if errors.As(err, &cause) || errors.As(err, &gone) {
			return nil, fleet.Errorf(fleet.CodeUnavailable, "no agent answers at %s: %v", c.socket, errors.Unwrap(err)).
				WithHint("check that the edge is running, and that --data-dir is its data directory")
		}
		return nil, fmt.Errorf("ask the agent for %s: %w", path, err)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	failed := new(fleet.Error)
	if err := json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(failed); err != nil || failed.Code == "" {
		return nil, fmt.Errorf("ask the agent for %s: %s", path, resp.Status)
	}
	if resp.StatusCode == http.StatusUnauthorized {
		return nil, &siteCodeNeeded{failed}
	}
	return nil, failed
}
