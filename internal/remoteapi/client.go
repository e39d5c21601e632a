// Package remoteapi calls the HTTP API of one server of others, such as Vault or Consul: JSON and a token go to that server alone,
// answers are bounded, and no error has a token.
//
// edge/vault, edge/consul and hub/transit have a Client each. It starts no goroutine and stores nothing.
package remoteapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"skerry/fleet"
	"skerry/internal/clienttls"
	"skerry/internal/redact"
)

// Config of a Client. Address, TokenHeader, Timeout and MaxAnswer are required, and so is the name of the server in TLS.
type Config struct {
	Address     string // https://HOST:PORT, http://LOOPBACK:PORT or unix://PATH
	AddressHint string // on an address that is none
	HTTPSHint   string // on http to another machine; "": AddressHint
	NeedsPort   bool   // the address must have a port
	PlainHTTP   bool   // http to other machines is accepted

	TLS   clienttls.Files
	Proxy bool // requests go through the proxy of the environment

	Header          http.Header // of each request
	TokenHeader     string
	TokenFile       string // its content is the token of requests without one; read again each time. "": none
	NamespaceHeader string
	Timeout         time.Duration // of a request with its answer
	MaxAnswer       int64         // bytes
	// Transport sends the requests; nil: over the network.
	Transport http.RoundTripper
}

// Client calls one server. Its methods may be called from any goroutine.
type Client struct {
	cfg  Config
	base string // URL without a path
	http http.Client

	mu         sync.Mutex
	attributes map[string]string // as Attributes returned them last
}

// New makes a Client. It reads the files of certificates, and calls nobody.
func New(cfg Config) (*Client, error) {
	c := &Client{cfg: cfg, base: "http://localhost"}
	transport := &http.Transport{MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10}
	if cfg.Proxy {
		transport.Proxy = http.ProxyFromEnvironment
	}
	if path, ok := strings.CutPrefix(cfg.Address, "unix://"); ok && path != "" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
	} else if err := c.parseURL(); err != nil {
		return nil, err
	}
	var err error
	if transport.TLSClientConfig, err = cfg.TLS.Load(); err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "%w", err)
	}
	if c.http.Transport = cfg.Transport; cfg.Transport == nil {
		c.http.Transport = transport
	}
	// A redirect is an error: tokens are for this server alone.
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c, nil
}

// parseURL takes the address as the URL of a server.
func (c *Client) parseURL() error {
	u, err := url.Parse(c.cfg.Address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || c.cfg.NeedsPort && u.Port() == "" ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return fleet.Errorf(fleet.CodeInvalid, "address of %s %q: it is not that of a server", c.cfg.TLS.Server, redact.Address(c.cfg.Address)).WithHint("%s", c.cfg.AddressHint)
	}
	if u.Scheme == "http" && !c.cfg.PlainHTTP && !clienttls.IsLoopback(u.Hostname()) {
		return fleet.Errorf(fleet.CodeInvalid, "address of %s %q: tokens would cross the network in clear", c.cfg.TLS.Server, redact.Address(c.cfg.Address)).
			WithHint("%s", cmp.Or(c.cfg.HTTPSHint, c.cfg.AddressHint))
	}
	c.base = u.Scheme + "://" + u.Host
	return nil
}

// Address is the server's address, as it was given.
func (c *Client) Address() string { return c.cfg.Address }

// IsPrivate reports whether nobody else sees what is sent to the server.
func (c *Client) IsPrivate() bool {
	u, err := url.Parse(c.base)
	return err == nil && (u.Scheme == "https" || clienttls.IsLoopback(u.Hostname()))
}

// Request is one request.
type Request struct {
	Method, Path string // the path begins with a slash, and may have a query
	Token        string // "": that of the token file
	NoToken      bool   // not even that of the token file
	Namespace    string // "": none
	Body         any    // is sent in JSON; nil: none
	Hidden       string // what no error may have, beside the token
}

// ErrTooLarge is the error of an answer with more bytes than the bound.
var ErrTooLarge = errors.New("the answer is too large")

// Call sends a request, and decodes the answer into answer, unless that is nil. Its errors name the server and the path.
func (c *Client) Call(ctx context.Context, q Request, answer any) error {
	b, err := c.Send(ctx, q)
	if err == nil && answer != nil && json.Unmarshal(b, answer) != nil {
		err = errors.New("its answer cannot be read")
	}
	if err != nil {
		return c.RequestError(q, err)
	}
	return nil
}

// RequestError returns the error of a request with its server and its path.
func (c *Client) RequestError(q Request, err error) error {
	path := strings.ToValidUTF8(q.Path[:min(len(q.Path), 256)], "?")
	return fmt.Errorf("ask %s at %s (%s %s): %w", c.cfg.TLS.Server, c.cfg.Address, q.Method, path, err)
}

// Send sends a request, and returns the body of an answer of success. Another answer is a *Refusal.
func (c *Client) Send(ctx context.Context, q Request) ([]byte, error) {
	b, _, err := c.SendDated(ctx, q)
	return b, err
}

// SendDated is Send, and returns the time of the answer by the clock of the server; zero: it does not say it.
func (c *Client) SendDated(ctx context.Context, q Request) (body []byte, at time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	if q.Token == "" && c.cfg.TokenFile != "" && !q.NoToken {
		if q.Token, err = readToken(c.cfg.TokenFile); err != nil {
			return nil, at, err
		}
	}
	req, err := c.newRequest(ctx, q)
	if err != nil {
		return nil, at, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, at, err
	}
	defer res.Body.Close()
	at, _ = http.ParseTime(res.Header.Get("Date"))
	b, err := io.ReadAll(io.LimitReader(res.Body, c.cfg.MaxAnswer+1))
	switch {
	case res.StatusCode != http.StatusOK && res.StatusCode != http.StatusNoContent:
		return nil, at, &Refusal{res.StatusCode, errorText(res.Header.Get("Content-Type"), b, q.Token, q.Hidden), res.Header.Get("Location")}
	case err != nil:
		return nil, at, fmt.Errorf("read the answer: %w", err)
	case int64(len(b)) > c.cfg.MaxAnswer:
		return nil, at, fmt.Errorf("%w: it has more than %d bytes", ErrTooLarge, c.cfg.MaxAnswer)
	}
	return b, at, nil
}

// maxTokenFile bounds what is read of a token file, in bytes.
const maxTokenFile = 32 << 10

func readToken(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxTokenFile))
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// newRequest returns the HTTP request of a Request.
func (c *Client) newRequest(ctx context.Context, q Request) (*http.Request, error) {
	sent := []byte{}
	if q.Body != nil {
		var err error
		if sent, err = json.Marshal(q.Body); err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, q.Method, c.base+q.Path, bytes.NewReader(sent))
	if err != nil {
		return nil, errors.New("make the request: the path is no URL")
	}
	for name, values := range c.cfg.Header {
		req.Header[name] = slices.Clone(values)
	}
	if q.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if q.Token != "" {
		req.Header.Set(c.cfg.TokenHeader, q.Token)
	}
	if q.Namespace != "" {
		req.Header.Set(c.cfg.NamespaceHeader, q.Namespace)
	}
	return req, nil
}

// Bounds of the attributes of a node that has the server.
const (
	attributesTimeout = time.Second // the first start of tasks waits for the answer
	maxAttribute      = 256         // bytes of a value
)

// Attributes sends a request for the attributes of a node that has this server; none if it never answered. While it is
// away, or does not say one of them, those are returned that it said before.
func (c *Client) Attributes(ctx context.Context, q Request, decode func(answer []byte) (map[string]string, error)) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, attributesTimeout)
	defer cancel()
	var read map[string]string
	if b, err := c.Send(ctx, q); err == nil {
		read, _ = decode(b) // a server that cannot be understood is as one that is away
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, v := range read {
		read[k] = cmp.Or(strings.ToValidUTF8(v[:min(len(v), maxAttribute)], ""), c.attributes[k])
	}
	if read != nil {
		c.attributes = read
	}
	return c.attributes
}
