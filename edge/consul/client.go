package consul

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"skerry/fleet"
	"skerry/internal/clienttls"
	"skerry/internal/remoteapi"
)

// Bounds of a call of the agent's API.
const (
	callTimeout = 5 * time.Second
	maxAnswer   = 16 << 20
)

// ClientConfig says where the Consul agent is. Address is required.
type ClientConfig struct {
	Address   string // HOST:PORT, http://HOST:PORT, https://HOST:PORT or unix://PATH
	TokenFile string // its content goes with each request; read again each time. "": no token
	CAFile    string // certificates that an https agent must have one of; "": the system's
	CertFile  string // of this client, for an https agent that asks for it
	KeyFile   string
	// TaskMethod and ServiceMethod are the auth methods by which tasks and services log in; "": DefaultAuthMethod.
	TaskMethod    string
	ServiceMethod string
	// Transport sends the requests; nil: over the network, without a proxy.
	Transport http.RoundTripper
}

// DefaultAuthMethod is the auth method of tasks and services, as in Nomad's guides.
const DefaultAuthMethod = "nomad-workloads"

// Client calls the HTTP API of one Consul agent. Its methods may be called from any goroutine.
type Client struct {
	cfg ClientConfig
	api *remoteapi.Client
}

// NewClient makes a Client. It reads the files of certificates, and calls nobody.
func NewClient(cfg ClientConfig) (*Client, error) {
	cfg.TaskMethod, cfg.ServiceMethod = cmp.Or(cfg.TaskMethod, DefaultAuthMethod), cmp.Or(cfg.ServiceMethod, DefaultAuthMethod)
	address := cfg.Address
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	api, err := remoteapi.New(remoteapi.Config{
		Address: address, AddressHint: "write it as 127.0.0.1:8500, https://127.0.0.1:8501 or unix:///run/consul.sock", NeedsPort: true, PlainHTTP: true,
		TLS:         clienttls.Files{Server: "the Consul agent", CA: cfg.CAFile, Cert: cfg.CertFile, Key: cfg.KeyFile},
		TokenHeader: "X-Consul-Token", TokenFile: cfg.TokenFile, Timeout: callTimeout, MaxAnswer: maxAnswer, Transport: cfg.Transport,
	})
	return &Client{cfg, api}, err
}

// putAgent sends a request that changes something, with a token; "": the agent's own.
func (c *Client) putAgent(ctx context.Context, token, path string, body any) error {
	return c.api.Call(ctx, remoteapi.Request{Method: http.MethodPut, Path: path, Token: token, Body: body}, nil)
}

// listServices returns the services that the agent has, by id.
func (c *Client) listServices(ctx context.Context) (found map[string]agentService, err error) {
	err = c.api.Call(ctx, remoteapi.Request{Method: http.MethodGet, Path: "/v1/agent/services"}, &found)
	return found, err
}

// listChecks returns the checks that the agent has, by id.
func (c *Client) listChecks(ctx context.Context) (found map[string]agentCheck, err error) {
	err = c.api.Call(ctx, remoteapi.Request{Method: http.MethodGet, Path: "/v1/agent/checks"}, &found)
	return found, err
}

// registerService registers a service with exactly its checks, or replaces it.
func (c *Client) registerService(ctx context.Context, token string, s *Service) error {
	return c.putAgent(ctx, token, "/v1/agent/service/register?replace-existing-checks=true", s.toRegistration())
}

// deregisterService removes a service and its checks.
func (c *Client) deregisterService(ctx context.Context, id string) error {
	return c.putAgent(ctx, "", "/v1/agent/service/deregister/"+url.PathEscape(id), nil)
}

// updateCheck tells the agent the result of a check.
func (c *Client) updateCheck(ctx context.Context, token string, k *Check) error {
	body := map[string]string{"Status": k.Status, "Output": k.Output}
	return c.putAgent(ctx, token, "/v1/agent/check/update/"+url.PathEscape(k.ID), body)
}

// Attributes returns the attributes of a node that has this agent, with Nomad's names; none if the agent has not
// answered yet. While it is away, those that it had are returned: services are registered when it is back.
func (c *Client) Attributes(ctx context.Context) map[string]string {
	return c.api.Attributes(ctx, remoteapi.Request{Method: http.MethodGet, Path: "/v1/agent/self"}, func(answer []byte) (map[string]string, error) {
		attributes, err := decodeSelf(answer)
		if err == nil && c.LetsLogIn() {
			attributes[fleet.AttributeConsulLogin] = "1"
		}
		return attributes, err
	})
}

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
	return map[string]string{
		fleet.AttributeConsulVersion: self.Config.Version, "consul.datacenter": self.Config.Datacenter, "consul.revision": self.Config.Revision,
		"consul.server": fmt.Sprint(self.Config.Server), "consul.sku": sku, "unique.consul.name": self.Config.NodeName,
	}, nil
}
