// Package client calls a hub's HTTP API for the command line. It starts no goroutine
// beyond those of net/http and persists nothing.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"skerry/api"
	"skerry/fleet"
)

// DefaultAddr is where a hub on this machine serves.
const DefaultAddr = "http://127.0.0.1:4646"

// Wait is how long one blocking query lasts at most.
const Wait = time.Minute

// maxError bounds what is read of a refusal's text.
const maxError = 64 << 10

// Client calls one hub. It is safe for concurrent use.
type Client struct {
	base      *url.URL
	http      *http.Client
	namespace string // of every request that names none; "": the hub's default
	stale     func() // called where an answer may be old; nil: nobody asks
}

// New makes a Client of the hub at addr (http://HOST:PORT, or HOST:PORT). It does not
// connect.
func New(addr string) (*Client, error) {
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	base, err := url.Parse(addr)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fleet.Errorf(fleet.CodeInvalid, "%q is not the address of a hub", addr).
			WithHint("write it like %s, with --addr or as SKERRY_ADDR", DefaultAddr)
	}
	return &Client{base: base, http: &http.Client{Transport: &http.Transport{
		DialContext:           (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		ResponseHeaderTimeout: 2 * Wait,
	}}}, nil
}

// In is the same Client for a namespace ("*": all, where that can be asked).
func (c *Client) In(namespace string) *Client {
	other := *c
	other.namespace = namespace
	return &other
}

// Stale is the same Client, and calls f with each answer of a hub that knows no leader:
// what it shows may be old.
func (c *Client) Stale(f func()) *Client {
	other := *c
	other.stale = f
	return &other
}

// withNamespace adds the Client's namespace to what is asked.
func (c *Client) withNamespace(q url.Values) url.Values {
	if c.namespace == "" || q.Has("namespace") {
		return q
	}
	out := url.Values{"namespace": {c.namespace}}
	for k, v := range q {
		out[k] = v
	}
	return out
}

// Read asks for path and decodes the answer into out. It returns the answer's index.
func (c *Client) Read(ctx context.Context, path string, q url.Values, out any) (fleet.Index, error) {
	resp, err := c.sendRequest(ctx, http.MethodGet, path, q, nil)
	if err != nil {
		return 0, err
	}
	return decodeAnswer(resp, path, out)
}

// ReadAfter is Read, but answers only when the answer is newer than after, or Wait is
// over. 0 answers at once.
func (c *Client) ReadAfter(ctx context.Context, after fleet.Index, path string, q url.Values, out any) (fleet.Index, error) {
	if after > 0 {
		waiting := url.Values{"index": {strconv.FormatUint(uint64(after), 10)}, "wait": {Wait.String()}}
		for k, v := range q {
			waiting[k] = v
		}
		q = waiting
	}
	return c.Read(ctx, path, q, out)
}

// Write sends in (nil: nothing) and decodes the answer into out (nil: it is dropped).
func (c *Client) Write(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("write the request to %s: %w", path, err)
		}
		body = bytes.NewReader(b)
	}
	resp, err := c.sendRequest(ctx, method, path, nil, body)
	if err != nil {
		return err
	}
	_, err = decodeAnswer(resp, path, out)
	return err
}

// Stream asks for path and returns the answer's bytes as they come.
func (c *Client) Stream(ctx context.Context, path string, q url.Values) (io.ReadCloser, error) {
	resp, err := c.sendRequest(ctx, http.MethodGet, path, q, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Upload sends a body as it is, and decodes the answer into out.
func (c *Client) Upload(ctx context.Context, path string, body io.Reader, out any) error {
	resp, err := c.sendRequest(ctx, http.MethodPut, path, nil, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("read the hub's answer to %s: %w", path, err)
	}
	return nil
}

func (c *Client) sendRequest(ctx context.Context, method, path string, q url.Values, body io.Reader) (*http.Response, error) {
	ref, err := url.Parse(path)
	if err != nil {
		return nil, fmt.Errorf("ask the hub for %s: %w", path, err)
	}
	u := c.base.ResolveReference(ref)
	merged := u.Query()
	for k, v := range q {
		merged[k] = v
	}
	u.RawQuery = c.withNamespace(merged).Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("ask the hub for %s: %w", path, err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachableError(ctx, path, err)
	}
	if resp.StatusCode < 300 {
		if c.stale != nil && resp.Header.Get("X-Nomad-KnownLeader") == "false" {
			c.stale()
		}
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, readErrorAnswer(resp, path)
}

func (c *Client) unreachableError(ctx context.Context, path string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return fleet.Errorf(fleet.CodeUnavailable, "no hub answers at %s: %v", c.base, op.Err).
			WithHint("is a hub running there? Another one is named with --addr or SKERRY_ADDR")
	}
	return fmt.Errorf("ask the hub for %s: %w", path, err)
}

// readErrorAnswer reads the error out of an answer.
func readErrorAnswer(resp *http.Response, path string) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxError))
	if err != nil {
		return fmt.Errorf("read the hub's answer to %s: %w", path, err)
	}
	hint := resp.Header.Get(api.HintHeader)
	e := &fleet.Error{
		Code: fleet.Code(resp.Header.Get(api.CodeHeader)), Hint: hint,
		Message: strings.TrimSuffix(strings.TrimSpace(string(text)), " ("+hint+")"),
	}
	if e.Code == "" {
		e.Code = fleet.CodeInternal
	}
	if e.Message == "" {
		e.Message = fmt.Sprintf("ask the hub for %s: %s", path, resp.Status)
	}
	return e
}

func decodeAnswer(resp *http.Response, path string, out any) (fleet.Index, error) {
	defer resp.Body.Close()
	index, err := strconv.ParseUint(resp.Header.Get("X-Nomad-Index"), 10, 64)
	if err != nil {
		index = 0 // an answer without one is not about the state
	}
	if out == nil {
		return fleet.Index(index), nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return 0, fmt.Errorf("read the hub's answer to %s: %w", path, err)
	}
	return fleet.Index(index), nil
}
