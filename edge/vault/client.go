package vault

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
	"strings"
	"sync"
	"time"

	"skerry/fleet"
	"skerry/internal/clienttls"
)

// DefaultJWTPath is where Vault's JWT auth method is mounted, as in Nomad's guides.
const DefaultJWTPath = "jwt-nomad"

// Bounds of a call of Vault's API.
const (
	callTimeout  = 5 * time.Second
	maxAnswer    = 1 << 20
	maxErrorText = 512
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
	cfg  ClientConfig
	base string // URL without a path
	http http.Client

	mu         sync.Mutex
	attributes map[string]string // of Vault, as last read; nil: it never answered
}

// NewClient makes a Client. It reads the files of certificates, and calls nobody.
func NewClient(cfg ClientConfig) (*Client, error) {
	cfg.JWTPath = strings.Trim(cmp.Or(cfg.JWTPath, DefaultJWTPath), "/")
	c := &Client{cfg: cfg}
	transport := &http.Transport{MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10}
	if path, ok := strings.CutPrefix(cfg.Address, "unix://"); ok && path != "" {
		c.base = "http://localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
	} else {
		u, err := url.Parse(cfg.Address)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
			return nil, fleet.Errorf(fleet.CodeInvalid, "address of Vault %q: it is no URL of a server", cfg.Address).
				WithHint("write it as https://vault.example.com:8200 or unix:///run/vault.sock")
		}
		if u.Scheme == "http" && !clienttls.IsLoopback(u.Hostname()) {
			return nil, fleet.Errorf(fleet.CodeInvalid, "address of Vault %q: tokens would cross the network in clear", cfg.Address).
				WithHint("write https://%s; http is for a Vault, or a Vault proxy, on this machine", u.Host)
		}
		c.base = u.Scheme + "://" + u.Host
	}
	var err error
	if transport.TLSClientConfig, err = (clienttls.Files{Server: "Vault", CA: cfg.CAFile, Cert: cfg.CertFile, Key: cfg.KeyFile, ServerName: cfg.ServerName}).Load(); err != nil {
		return nil, err
	}
	c.http.Transport = cfg.Transport
	if c.http.Transport == nil {
		c.http.Transport = transport
	}
	// A redirect is an error: tokens are for this server alone.
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c, nil
}

// Address is Vault's address, as tasks get it.
func (c *Client) Address() string { return c.cfg.Address }

// Namespace is the namespace of a task whose vault block has that one.
func (c *Client) Namespace(ofTask string) string { return cmp.Or(ofTask, c.cfg.Namespace) }

// refusal is an answer that says no. Asking again the same way does not help.
type refusal struct {
	status int
	text   string
}

// Error implements error.
func (r *refusal) Error() string {
	return strings.TrimSpace(fmt.Sprintf("it answered %d %s: %s", r.status, http.StatusText(r.status), r.text))
}

// IsRefused reports whether Vault answered, and said no: asking again the same way does not help.
func IsRefused(err error) bool {
	var r *refusal
	return errors.As(err, &r)
}

// isMissing reports whether Vault has nothing at a path.
func isMissing(err error) bool {
	var r *refusal
	return errors.As(err, &r) && r.status == http.StatusNotFound
}

// call is one request.
type call struct {
	method, path string
	namespace    string
	token        string // "": none
	body         any    // nil: none
	// hidden is what an error may not have, beside the token.
	hidden string
}

// sendCall sends a request, and decodes the answer into answer. Its errors have no token.
func (c *Client) sendCall(ctx context.Context, q call, answer any) error {
	b, err := c.sendRequest(ctx, q, http.StatusOK, http.StatusNoContent)
	if err != nil {
		return fmt.Errorf("ask Vault at %s (%s /v1/%s): %w", c.cfg.Address, q.method, shortPath(q.path), err)
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(b, answer); err != nil {
		return fmt.Errorf("ask Vault at %s (%s /v1/%s): its answer cannot be read", c.cfg.Address, q.method, shortPath(q.path))
	}
	return nil
}

// shortPath returns a path for an error.
func shortPath(path string) string { return strings.ToValidUTF8(path[:min(len(path), 256)], "?") }

// sendRequest sends a request, and returns the body of an answer with one of the wanted statuses.
func (c *Client) sendRequest(ctx context.Context, q call, wanted ...int) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	sent := []byte{}
	if q.body != nil {
		var err error
		if sent, err = json.Marshal(q.body); err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, q.method, c.base+"/v1/"+q.path, bytes.NewReader(sent))
	if err != nil {
		return nil, errors.New("make the request: the path is no URL")
	}
	req.Header.Set("X-Vault-Request", "true")
	if q.token != "" {
		req.Header.Set("X-Vault-Token", q.token)
	}
	if q.namespace != "" {
		req.Header.Set("X-Vault-Namespace", q.namespace)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	for _, status := range wanted {
		switch {
		case status != res.StatusCode:
		case err != nil:
			return nil, fmt.Errorf("read the answer: %w", err)
		case len(b) > maxAnswer:
			return nil, fmt.Errorf("read the answer: it has more than %d bytes", maxAnswer)
		default:
			return b, nil
		}
	}
	return nil, asError(res.StatusCode, errorText(b, q.token, q.hidden))
}

// asError returns the error of an answer: a refusal, or a server that cannot answer now (sealed, a standby, too busy).
func asError(status int, text string) error {
	r := &refusal{status, text}
	if status < 400 || status >= 500 || status == http.StatusTooManyRequests || status == http.StatusPreconditionFailed || status > 451 {
		return errors.New(r.Error())
	}
	return r
}

// errorText returns the errors of an answer, without secrets.
func errorText(b []byte, hidden ...string) string {
	var answer struct {
		Errors []string `json:"errors"`
	}
	if json.Unmarshal(b, &answer) != nil {
		return "" // a proxy's page
	}
	text := strings.Join(answer.Errors, "; ")
	for _, h := range hidden {
		if h != "" {
			text = strings.ReplaceAll(text, h, "…")
		}
	}
	return strings.ToValidUTF8(strings.Join(strings.Fields(text[:min(len(text), maxErrorText)]), " "), "?")
}

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
	return c.askForToken(ctx, call{
		method: http.MethodPost, path: "auth/" + c.cfg.JWTPath + "/login", namespace: namespace, body: body, hidden: jwt,
	})
}

// renewToken renews a token.
func (c *Client) renewToken(ctx context.Context, namespace, token string) (auth, error) {
	return c.askForToken(ctx, call{method: http.MethodPost, path: "auth/token/renew-self", namespace: namespace, token: token, body: struct{}{}})
}

func (c *Client) askForToken(ctx context.Context, q call) (auth, error) {
	var answer struct {
		Auth *auth `json:"auth"`
	}
	if err := c.sendCall(ctx, q, &answer); err != nil {
		return auth{}, err
	}
	if answer.Auth == nil || answer.Auth.Token == "" || len(answer.Auth.Token) > maxToken || answer.Auth.Lease < 0 || strings.ContainsAny(answer.Auth.Token, "\r\n\x00") {
		return auth{}, fmt.Errorf("ask Vault at %s (%s /v1/%s): its answer has no token", c.cfg.Address, q.method, q.path)
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
	err := c.sendCall(ctx, call{method: http.MethodGet, path: "auth/token/lookup-self", namespace: namespace, token: token}, &answer)
	return auth{token, max(answer.Data.TTL, 0), answer.Data.Renewable}, err
}

// revokeToken ends a token, and the leases that it made.
func (c *Client) revokeToken(ctx context.Context, namespace, token string) error {
	return c.sendCall(ctx, call{method: http.MethodPost, path: "auth/token/revoke-self", namespace: namespace, token: token}, nil)
}

// attributesTimeout bounds the question who Vault is: the first start of tasks waits for the answer.
const attributesTimeout = time.Second

// Attributes returns the attributes of a node that has this Vault, with Nomad's names; none if it has not answered yet.
// While it is away, those that it had are returned: tasks go on with what they have.
func (c *Client) Attributes(ctx context.Context) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, attributesTimeout)
	defer cancel()
	// These parameters have each state answered with 200: active, standby, sealed, not initialized.
	const health = "sys/health?standbyok=true&perfstandbyok=true&drsecondarycode=200&sealedcode=200&uninitcode=200"
	var read map[string]string
	if b, err := c.sendRequest(ctx, call{method: http.MethodGet, path: health}, http.StatusOK); err == nil {
		read, _ = decodeHealth(b) // a Vault that cannot be understood is as one that is away
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, v := range read {
		if v == "" { // a sealed Vault does not know its cluster
			read[k] = c.attributes[k]
		}
	}
	if read != nil {
		c.attributes = read
	}
	return c.attributes
}

// maxAttribute bounds a value of an attribute, in bytes.
const maxAttribute = 256

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
	attributes := map[string]string{
		"vault.accessible": "true", fleet.AttributeVaultVersion: strings.TrimPrefix(health.Version, "Vault "),
		"vault.cluster_id": health.ClusterID, "vault.cluster_name": health.ClusterName,
	}
	for k, v := range attributes {
		attributes[k] = strings.ToValidUTF8(v[:min(len(v), maxAttribute)], "")
	}
	return attributes, nil
}
