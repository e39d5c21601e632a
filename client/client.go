// Package client is a typed client of a hub's HTTP API, /v1: jobs, allocations, nodes, deployments,
// evaluations, the hubs themselves and the event stream. The commands, chaos and users call it. It
// starts no goroutine but those of net/http and of a command's websocket, and persists nothing.
package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
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

// Config of a Client.
type Config struct {
	Addr string // http://HOST:PORT, https://HOST:PORT or HOST:PORT
	// Dial makes the connections; nil: net.Dialer. The address is the one of Addr.
	Dial    func(ctx context.Context) (net.Conn, error)
	Timeout time.Duration // of a request with its answer; 0: none
	// NoKeepAlive opens a connection for each request: an idle one to a killed process would look alive.
	NoKeepAlive bool

	// CACert (PEM) has the CAs of hubs that serve HTTPS; nil: those of the system. ServerName is the name that the
	// hub's certificate must have; "": the host of Addr.
	CACert     []byte
	ServerName string
	// ClientCert and ClientKey (PEM) are shown to a hub that asks for them.
	ClientCert, ClientKey []byte
	Token                 string // sent with every request; "": none

	// Wrap returns what sends the requests, from what sends them otherwise; nil: nothing is wrapped. For tests.
	Wrap func(http.RoundTripper) http.RoundTripper
}

// Client calls one hub. It is safe for concurrent use.
type Client struct {
	base    *url.URL
	http    *http.Client
	ownCA   bool         // the system's CAs do not count
	header  http.Header  // of every request
	params  url.Values   // of every request that does not give them itself
	index   *fleet.Index // see Watch; nil: reads answer at once
	onStale func()       // see OnStale; nil: nobody asks
}

// New makes a Client. It does not connect.
func New(cfg Config) (*Client, error) {
	base, err := parseAddr(cfg.Addr)
	if err != nil {
		return nil, err
	}
	if !validToken(cfg.Token) {
		return nil, fleet.Errorf(fleet.CodeTokenBad, "read the token: it has spaces or other characters that no token has").
			WithHint("look at SKERRY_TOKEN, --token, or the file of the token")
	}
	t, err := cfg.newTLS()
	if err != nil {
		return nil, err
	}
	return newClient(cfg, base, t), nil
}

// parseAddr parses Config.Addr.
func parseAddr(addr string) (*url.URL, error) {
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	base, err := url.Parse(addr)
	if err != nil || base.Host == "" || base.User != nil || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fleet.Errorf(fleet.CodeInvalid, "%q is not the address of a hub", addr).
			WithHint("write it like %s, in --addr or SKERRY_ADDR", DefaultAddr)
	}
	return base, nil
}

// validToken reports whether a token can be sent in a header.
func validToken(token string) bool {
	return !strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' })
}

func newClient(cfg Config, base *url.URL, t *tls.Config) *Client {
	dial := (&net.Dialer{Timeout: 5 * time.Second}).DialContext
	if cfg.Dial != nil {
		dial = func(ctx context.Context, _, _ string) (net.Conn, error) { return cfg.Dial(ctx) }
	}
	header := http.Header{}
	if cfg.Token != "" {
		header.Set(api.TokenHeader, cfg.Token)
	}
	var sends http.RoundTripper = &http.Transport{
		DialContext: dial, ResponseHeaderTimeout: 2 * Wait, DisableKeepAlives: cfg.NoKeepAlive, TLSClientConfig: t,
	}
	if cfg.Wrap != nil {
		sends = cfg.Wrap(sends)
	}
	return &Client{base: base, header: header, ownCA: cfg.CACert != nil, http: &http.Client{
		Timeout: cfg.Timeout,
		// A hub redirects nobody, and the token is for the hub alone.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     sends,
	}}
}

// withParam returns a copy of the Client that adds the parameter to every request.
func (c *Client) withParam(name, value string) *Client {
	other := *c
	other.params = url.Values{name: {value}}
	for k, v := range c.params {
		if k != name {
			other.params[k] = v
		}
	}
	return &other
}

// In returns a copy of the Client for a namespace: "*" is all, "" the hub's default.
func (c *Client) In(namespace string) *Client { return c.withParam("namespace", namespace) }

// AllowStale returns a copy of the Client whose reads the hub answers from its own state, even without a leader.
func (c *Client) AllowStale() *Client { return c.withParam("stale", "") }

// WithToken returns a copy of the Client that sends a token with every request; "": none.
func (c *Client) WithToken(token string) *Client {
	other := *c
	other.header = c.header.Clone()
	other.header.Del(api.TokenHeader)
	if token != "" {
		other.header.Set(api.TokenHeader, token)
	}
	return &other
}

// OnStale returns a copy of the Client that calls f for each answer of a hub that knows no leader: the answer may
// be old.
func (c *Client) OnStale(f func()) *Client {
	other := *c
	other.onStale = f
	return &other
}

// Watch returns a copy of the Client for blocking queries: a read waits until its index exceeds *index, or for
// Wait, and sets *index. It does not wait if *index is 0.
func (c *Client) Watch(index *fleet.Index) *Client {
	other := *c
	other.index = index
	return &other
}

// readAnswer sends a GET and decodes the answer.
func readAnswer[T any](ctx context.Context, c *Client, path string, q url.Values) (T, error) {
	var answer T
	if c.index != nil && *c.index > 0 {
		waiting := url.Values{"index": {strconv.FormatUint(uint64(*c.index), 10)}, "wait": {Wait.String()}}
		for k, v := range q {
			waiting[k] = v
		}
		q = waiting
	}
	resp, err := c.sendHubRequest(ctx, http.MethodGet, path, q, nil)
	if err != nil {
		return answer, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return answer, fmt.Errorf("read the hub's answer to %s: %w", path, err)
	}
	if c.index != nil {
		// An answer without an index is not about the state.
		index, _ := strconv.ParseUint(resp.Header.Get("X-Nomad-Index"), 10, 64)
		*c.index = fleet.Index(index)
	}
	return answer, nil
}

// writeRequest sends body (nil: none; an io.Reader: as it is) and decodes the answer.
func writeRequest[T any](ctx context.Context, c *Client, method, path string, q url.Values, body any) (T, error) {
	var answer T
	raw, isRaw := body.(io.Reader)
	if body != nil && !isRaw {
		b, err := json.Marshal(body)
		if err != nil {
			return answer, fmt.Errorf("encode the request to %s: %w", path, err)
		}
		raw = bytes.NewReader(b)
	}
	resp, err := c.sendHubRequest(ctx, method, path, q, raw)
	if err != nil {
		return answer, err
	}
	defer resp.Body.Close()
	if _, none := any(answer).(noAnswer); none {
		return answer, nil
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return answer, fmt.Errorf("read the hub's answer to %s: %w", path, err)
	}
	return answer, nil
}

// Call calls an endpoint that has no method here: it sends in (nil: no body) to an escaped path with its
// parameters, and decodes the answer into out (nil: only the success counts).
func (c *Client) Call(ctx context.Context, method, path string, in, out any) error {
	path, params, _ := strings.Cut(path, "?")
	q, err := url.ParseQuery(params)
	if err != nil {
		return fleet.Errorf(fleet.CodeInvalid, "ask the hub for %s: %w", path, err)
	}
	if out == nil {
		_, err = writeRequest[noAnswer](ctx, c, method, path, q, in)
		return err
	}
	answer, err := writeRequest[json.RawMessage](ctx, c, method, path, q, in)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("read the hub's answer to %s: %w", path, err)
	}
	return nil
}

// noAnswer is the answer of a request of which only the success counts.
type noAnswer struct{}

// sendPut is writeRequest by PUT where only the success counts.
func (c *Client) sendPut(ctx context.Context, path string, q url.Values, body any) error {
	_, err := writeRequest[noAnswer](ctx, c, http.MethodPut, path, q, body)
	return err
}

// sendDelete sends a DELETE.
func (c *Client) sendDelete(ctx context.Context, path string, q url.Values) error {
	_, err := writeRequest[noAnswer](ctx, c, http.MethodDelete, path, q, nil)
	return err
}

// openStream sends a GET and returns the answer's bytes as they come.
func (c *Client) openStream(ctx context.Context, path string, q url.Values) (io.ReadCloser, error) {
	resp, err := c.sendHubRequest(ctx, http.MethodGet, path, q, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// sendHubRequest sends a request and returns the answer, whose body the caller must close. An HTTP status of 300 or
// more becomes an *Error.
func (c *Client) sendHubRequest(ctx context.Context, method, path string, q url.Values, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.requestURL(path, q), body)
	if err != nil {
		return nil, fmt.Errorf("ask the hub for %s: %w", path, err)
	}
	maps.Copy(req.Header, c.header)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachableError(ctx, path, err)
	}
	if resp.StatusCode < 300 {
		if c.onStale != nil && resp.Header.Get("X-Nomad-KnownLeader") == "false" {
			c.onStale()
		}
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, readErrorAnswer(resp, path)
}

// requestURL returns the URL of an escaped path with the parameters of the Client and of q, which override them.
// Empty ones are left out.
func (c *Client) requestURL(path string, q url.Values) string {
	merged := url.Values{}
	for _, params := range []url.Values{c.params, q} {
		for k, v := range params {
			if len(v) > 0 && (v[0] != "" || k == "stale") {
				merged[k] = v
			}
		}
	}
	u := strings.TrimSuffix(c.base.String(), "/") + path
	if len(merged) > 0 {
		u += "?" + merged.Encode()
	}
	return u
}

// joinPath returns "/" and the escaped element, for each element.
func joinPath(elements ...string) string {
	var b strings.Builder
	for _, e := range elements {
		b.WriteString("/" + url.PathEscape(e))
	}
	return b.String()
}
