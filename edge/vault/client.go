// Package vault is the client of Vault: it logs tasks in, renews their tokens, and reads secrets for their templates.
//
// cmd/edged makes a Client, edge.Open a Keeper with it, which keeps tokens and secrets as package logins says.
package vault

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"skerry/edge/logins"
	"skerry/fleet"
	"skerry/internal/clienttls"
	"skerry/internal/remoteapi"
)

// DefaultJWTPath is where Vault's JWT auth method is mounted, as in Nomad's guides.
const DefaultJWTPath = "jwt-nomad"

// Bounds of a call of Vault's API.
const (
	callTimeout = 5 * time.Second
	maxAnswer   = 1 << 20
)

// ClientConfig says where Vault is. Address is required.
type ClientConfig struct {
	Address    string // https://HOST:PORT, http://LOOPBACK:PORT or unix://PATH
	Namespace  string // for tasks whose vault block has none, and of the auth method then; "": root
	JWTPath    string // where the JWT auth method is mounted; "": DefaultJWTPath
	Role       string // for tasks whose vault block has none; "": the auth method's default role
	CAFile     string // certificates that Vault must have one of; "": the system's
	CertFile   string // of this client, for a Vault that asks for it
	KeyFile    string
	ServerName string // in Vault's certificate; "": that of the address
	// Transport sends the requests; nil: over the network, without a proxy.
	Transport http.RoundTripper
}

// Client calls the HTTP API of one Vault. Its methods may be called from any goroutine.
type Client struct {
	cfg ClientConfig
	api *remoteapi.Client
}

// NewClient makes a Client. It reads the files of certificates, and calls nobody.
func NewClient(cfg ClientConfig) (*Client, error) {
	cfg.JWTPath = strings.Trim(cmp.Or(cfg.JWTPath, DefaultJWTPath), "/")
	api, err := remoteapi.New(remoteapi.Config{
		Address:     cfg.Address,
		AddressHint: "write it as https://vault.example.com:8200 or unix:///run/vault.sock",
		HTTPSHint:   "write https://" + strings.TrimPrefix(cfg.Address, "http://") + "; http is for a Vault, or a Vault proxy, on this machine",
		TLS:         clienttls.Files{Server: "Vault", CA: cfg.CAFile, Cert: cfg.CertFile, Key: cfg.KeyFile, ServerName: cfg.ServerName},
		Header:      http.Header{"X-Vault-Request": {"true"}}, TokenHeader: "X-Vault-Token", NamespaceHeader: "X-Vault-Namespace",
		Timeout: callTimeout, MaxAnswer: maxAnswer, Transport: cfg.Transport,
	})
	return &Client{cfg, api}, err
}

// Address is Vault's address, as tasks get it.
func (c *Client) Address() string { return c.cfg.Address }

// Namespace is the namespace of a task whose vault block has that one.
func (c *Client) Namespace(ofTask string) string { return cmp.Or(ofTask, c.cfg.Namespace) }

// Name implements logins.Server.
func (*Client) Name() string { return "Vault" }

// Task returns what the Keeper has to know of a task with a vault block.
func (c *Client) Task(alloc fleet.AllocID, name string, block *fleet.Vault) logins.Task {
	return logins.Task{
		Alloc: alloc, Name: name, Identity: fleet.VaultIdentity,
		Namespace: c.Namespace(block.Namespace), Role: block.Role, LetExpire: block.AllowTokenExpiration,
	}
}

// LogIn implements logins.Server.
func (c *Client) LogIn(ctx context.Context, t logins.Task, jwt string) (logins.Token, error) {
	body := map[string]string{"jwt": jwt}
	if role := cmp.Or(t.Role, c.cfg.Role); role != "" {
		body["role"] = role
	}
	return c.askForToken(ctx, remoteapi.Request{
		Method: http.MethodPost, Path: "/v1/auth/" + c.cfg.JWTPath + "/login", Namespace: t.Namespace, Body: body, Hidden: jwt,
	})
}

// askForToken sends a request that returns a token.
func (c *Client) askForToken(ctx context.Context, q remoteapi.Request) (logins.Token, error) {
	var answer struct {
		Auth struct {
			Token     string `json:"client_token"`
			Lease     int64  `json:"lease_duration"` // seconds; 0: it does not end
			Renewable bool   `json:"renewable"`
		} `json:"auth"`
	}
	if err := c.api.Call(ctx, q, &answer); err != nil {
		return logins.Token{}, err
	}
	if !logins.IsToken(answer.Auth.Token) || answer.Auth.Lease < 0 {
		return logins.Token{}, c.api.RequestError(q, errors.New("its answer has no token"))
	}
	return logins.Token{Text: answer.Auth.Token, Lease: answer.Auth.Lease, Renewable: answer.Auth.Renewable}, nil
}

// Extend implements logins.Server.
func (c *Client) Extend(ctx context.Context, r logins.Record, renew bool) (int64, error) {
	if renew {
		t, err := c.askForToken(ctx, remoteapi.Request{Method: http.MethodPost, Path: "/v1/auth/token/renew-self", Namespace: r.Namespace, Token: r.Token, Body: struct{}{}})
		return t.Lease, err
	}
	var answer struct {
		Data struct {
			TTL int64 `json:"ttl"`
		} `json:"data"`
	}
	err := c.api.Call(ctx, remoteapi.Request{Method: http.MethodGet, Path: "/v1/auth/token/lookup-self", Namespace: r.Namespace, Token: r.Token}, &answer)
	return max(answer.Data.TTL, 0), err
}

// LogOut implements logins.Server: it ends a token, and the leases that it made.
func (c *Client) LogOut(ctx context.Context, r logins.Record) error {
	return c.api.Call(ctx, remoteapi.Request{Method: http.MethodPost, Path: "/v1/auth/token/revoke-self", Namespace: r.Namespace, Token: r.Token}, nil)
}

// Attributes returns the attributes of a node that has this Vault, with Nomad's names; none if it has not answered yet.
// While it is away, those that it had are returned: tasks go on with what they have.
func (c *Client) Attributes(ctx context.Context) map[string]string {
	// These parameters have each state answered with 200: active, standby, sealed (it does not know its cluster), not initialized.
	const health = "/v1/sys/health?standbyok=true&perfstandbyok=true&drsecondarycode=200&sealedcode=200&uninitcode=200"
	return c.api.Attributes(ctx, remoteapi.Request{Method: http.MethodGet, Path: health}, decodeHealth)
}

// decodeHealth reads the answer of sys/health into attributes.
func decodeHealth(b []byte) (map[string]string, error) {
	var health struct {
		Version     string `json:"version"`
		ClusterID   string `json:"cluster_id"`
		ClusterName string `json:"cluster_name"`
	}
	if err := json.Unmarshal(b, &health); err != nil {
		return nil, fmt.Errorf("decode the health of Vault: %w", err)
	}
	if health.Version == "" {
		return nil, errors.New("decode the health of Vault: it has no version")
	}
	return map[string]string{
		"vault.accessible": "true", fleet.AttributeVaultVersion: strings.TrimPrefix(health.Version, "Vault "),
		"vault.cluster_id": health.ClusterID, "vault.cluster_name": health.ClusterName,
	}, nil
}
