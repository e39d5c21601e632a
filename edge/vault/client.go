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

// auth is a token, as a login and a renewal return it.
type auth struct {
	Token     string `json:"client_token"`
	Lease     int64  `json:"lease_duration"` // seconds; 0: it does not end
	Renewable bool   `json:"renewable"`
}

// logIn returns a token for the JWT of a task.
func (c *Client) logIn(ctx context.Context, namespace, role, jwt string) (auth, error) {
	body := map[string]string{"jwt": jwt}
	if role = cmp.Or(role, c.cfg.Role); role != "" {
		body["role"] = role
	}
	return c.askForToken(ctx, remoteapi.Request{
		Method: http.MethodPost, Path: "/v1/auth/" + c.cfg.JWTPath + "/login", Namespace: namespace, Body: body, Hidden: jwt,
	})
}

// renewToken renews a token.
func (c *Client) renewToken(ctx context.Context, namespace, token string) (auth, error) {
	return c.askForToken(ctx, remoteapi.Request{Method: http.MethodPost, Path: "/v1/auth/token/renew-self", Namespace: namespace, Token: token, Body: struct{}{}})
}

func (c *Client) askForToken(ctx context.Context, q remoteapi.Request) (auth, error) {
	var answer struct {
		Auth *auth `json:"auth"`
	}
	if err := c.api.Call(ctx, q, &answer); err != nil {
		return auth{}, err
	}
	if answer.Auth == nil || answer.Auth.Token == "" || len(answer.Auth.Token) > maxToken || answer.Auth.Lease < 0 || strings.ContainsAny(answer.Auth.Token, "\r\n\x00") {
		return auth{}, c.api.RequestError(q, errors.New("its answer has no token"))
	}
	return *answer.Auth, nil
}

// lookUpToken returns what is left of a token.
func (c *Client) lookUpToken(ctx context.Context, namespace, token string) (auth, error) {
	var answer struct {
		Data struct {
			TTL       int64 `json:"ttl"`
			Renewable bool  `json:"renewable"`
		} `json:"data"`
	}
	err := c.api.Call(ctx, remoteapi.Request{Method: http.MethodGet, Path: "/v1/auth/token/lookup-self", Namespace: namespace, Token: token}, &answer)
	return auth{token, max(answer.Data.TTL, 0), answer.Data.Renewable}, err
}

// revokeToken ends a token, and the leases that it made.
func (c *Client) revokeToken(ctx context.Context, namespace, token string) error {
	return c.api.Call(ctx, remoteapi.Request{Method: http.MethodPost, Path: "/v1/auth/token/revoke-self", Namespace: namespace, Token: token}, nil)
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
