package consul

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
	"os"
	"strings"
	"sync"
	"time"

	"skerry/fleet"
	"skerry/internal/clienttls"
)

// Bounds of a call of the agent's API.
const (
	callTimeout   = 5 * time.Second
	maxAnswer     = 16 << 20
	maxTokenBytes = 4 << 10
	maxErrorText  = 512
)

// ClientConfig says where the Consul agent is. Address is required.
type ClientConfig struct {
	Address   string // HOST:PORT, http://HOST:PORT, https://HOST:PORT or unix://PATH
	TokenFile string // its content goes with each request; read again each time. "": no token
	CAFile    string // certificates that an https agent must have one of; "": the system's
	CertFile  string // of this client, for an https agent that asks for it
	KeyFile   string
	// Transport sends the requests; nil: over the network, without a proxy.
	Transport http.RoundTripper
}

// Client calls the HTTP API of one Consul agent. Its methods may be called from any goroutine.
type Client struct {
	cfg  ClientConfig
	base string // URL without a path
	http http.Client

	mu         sync.Mutex
	attributes map[string]string // of the agent, as last read; nil: it never answered
}

// NewClient makes a Client. It reads the files of certificates, and calls nobody.
func NewClient(cfg ClientConfig) (*Client, error) {
	invalid := func(why string) error {
		return fleet.Errorf(fleet.CodeInvalid, "address of the Consul agent %q: %s", cfg.Address, why).
			WithHint("write it as 127.0.0.1:8500, https://127.0.0.1:8501 or unix:///run/consul.sock")
	}
	c := &Client{cfg: cfg}
	transport := &http.Transport{MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10}
	if path, ok := strings.CutPrefix(cfg.Address, "unix://"); ok {
		if path == "" {
			return nil, invalid("it has no path")
		}
		c.base = "http://localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
	} else {
		address := cfg.Address
		if !strings.Contains(address, "://") {
			address = "http://" + address
		}
		u, err := url.Parse(address)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Port() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
			return nil, invalid("it is not HOST:PORT")
		}
		c.base = u.Scheme + "://" + u.Host
	}
	var err error
	if transport.TLSClientConfig, err = (clienttls.Files{Server: "the Consul agent", CA: cfg.CAFile, Cert: cfg.CertFile, Key: cfg.KeyFile}).Load(); err != nil {
		return nil, err
	}
	c.http.Transport = cfg.Transport
	if c.http.Transport == nil {
		c.http.Transport = transport
	}
	// A redirect is an error: the token is for this agent alone.
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c, nil
}

// refusal is an answer of the agent other than 200: it is there, and does not do what it was asked.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string {
	return strings.TrimSpace(fmt.Sprintf("it answered %d %s: %s", r.status, http.StatusText(r.status), r.text))
}

// refused reports whether the agent answered, and refused what it was asked.
func refused(err error) bool {
	var r *refusal
	return errors.As(err, &r)
}

// callAgent sends one request and returns the body of the answer.
func (c *Client) callAgent(ctx context.Context, method, path string, body any) ([]byte, error) {
	b, err := c.sendRequest(ctx, method, path, body)
	if err != nil {
		return nil, fmt.Errorf("ask the Consul agent at %s (%s %s): %w", c.cfg.Address, method, path, err)
	}
	return b, nil
}

func (c *Client) sendRequest(ctx context.Context, method, path string, body any) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	sent := []byte{}
	if body != nil {
		var err error
		if sent, err = json.Marshal(body); err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(sent))
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	token, err := c.readToken()
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("X-Consul-Token", token)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case res.StatusCode != http.StatusOK:
		return nil, &refusal{res.StatusCode, strings.ToValidUTF8(string(bytes.TrimSpace(answer[:min(len(answer), maxErrorText)])), "?")}
	case err != nil:
		return nil, fmt.Errorf("read the answer: %w", err)
	case len(answer) > maxAnswer:
		return nil, fmt.Errorf("read the answer: it has more than %d bytes", maxAnswer)
	}
	return answer, nil
}

// readToken reads the token file; "": there is none.
func (c *Client) readToken() (string, error) {
	if c.cfg.TokenFile == "" {
		return "", nil
	}
	f, err := os.Open(c.cfg.TokenFile)
	if err != nil {
		return "", fmt.Errorf("open the token file: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxTokenBytes))
	if err != nil {
		return "", fmt.Errorf("read the token file %s: %w", c.cfg.TokenFile, err)
	}
	return strings.TrimSpace(string(b)), nil
}

// listServices returns the services that the agent has, by id.
func (c *Client) listServices(ctx context.Context) (map[string]agentService, error) {
	b, err := c.callAgent(ctx, http.MethodGet, "/v1/agent/services", nil)
	if err != nil {
		return nil, err
	}
	return decodeServices(b)
}

// listChecks returns the checks that the agent has, by id.
func (c *Client) listChecks(ctx context.Context) (map[string]agentCheck, error) {
	b, err := c.callAgent(ctx, http.MethodGet, "/v1/agent/checks", nil)
	if err != nil {
		return nil, err
	}
	return decodeChecks(b)
}

// registerService registers a service with exactly its checks, or replaces it.
func (c *Client) registerService(ctx context.Context, s *Service) error {
	_, err := c.callAgent(ctx, http.MethodPut, "/v1/agent/service/register?replace-existing-checks=true", s.toRegistration())
	return err
}

// deregisterService removes a service and its checks.
func (c *Client) deregisterService(ctx context.Context, id string) error {
	_, err := c.callAgent(ctx, http.MethodPut, "/v1/agent/service/deregister/"+url.PathEscape(id), nil)
	return err
}

// updateCheck tells the agent the result of a check.
func (c *Client) updateCheck(ctx context.Context, k *Check) error {
	body := map[string]string{"Status": k.Status, "Output": k.Output}
	_, err := c.callAgent(ctx, http.MethodPut, "/v1/agent/check/update/"+url.PathEscape(k.ID), body)
	return err
}

// attributesTimeout bounds the question who the agent is: the first start of tasks waits for the answer.
const attributesTimeout = time.Second

// Attributes returns the attributes of a node that has this agent, with Nomad's names; none if the agent has not
// answered yet. While it is away, those that it had are returned: services are registered when it is back.
func (c *Client) Attributes(ctx context.Context) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, attributesTimeout)
	defer cancel()
	var read map[string]string
	if b, err := c.callAgent(ctx, http.MethodGet, "/v1/agent/self", nil); err == nil {
		read, _ = decodeSelf(b) // an agent that cannot be understood is as one that is away
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if read != nil {
		c.attributes = read
	}
	return c.attributes
}

// decodeServices reads the answer of /v1/agent/services.
func decodeServices(b []byte) (map[string]agentService, error) {
	var found map[string]agentService
	if err := json.Unmarshal(b, &found); err != nil {
		return nil, fmt.Errorf("decode the services of the Consul agent: %w", err)
	}
	return found, nil
}

// decodeChecks reads the answer of /v1/agent/checks.
func decodeChecks(b []byte) (map[string]agentCheck, error) {
	var found map[string]agentCheck
	if err := json.Unmarshal(b, &found); err != nil {
		return nil, fmt.Errorf("decode the checks of the Consul agent: %w", err)
	}
	return found, nil
}

// maxAttribute bounds a value of an attribute, in bytes.
const maxAttribute = 256

// decodeSelf reads the answer of /v1/agent/self into attributes.
func decodeSelf(b []byte) (map[string]string, error) {
	var self struct {
		Config struct {
			Datacenter, NodeName, Version, VersionMetadata, Revision string
			Server                                                   bool
		}
	}
	if err := json.Unmarshal(b, &self); err != nil {
		return nil, fmt.Errorf("decode the configuration of the Consul agent: %w", err)
	}
	if self.Config.Version == "" {
		return nil, errors.New("decode the configuration of the Consul agent: it has no version")
	}
	sku := "oss"
	if strings.Contains(self.Config.Version+"+"+self.Config.VersionMetadata, "+ent") {
		sku = "ent"
	}
	attributes := map[string]string{
		fleet.AttributeConsulVersion: self.Config.Version, "consul.datacenter": self.Config.Datacenter, "consul.revision": self.Config.Revision,
		"consul.server": fmt.Sprint(self.Config.Server), "consul.sku": sku, "unique.consul.name": self.Config.NodeName,
	}
	for k, v := range attributes {
		attributes[k] = strings.ToValidUTF8(v[:min(len(v), maxAttribute)], "")
	}
	return attributes, nil
}
