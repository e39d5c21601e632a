// Package transit wraps the state keys of a hub by the transit secrets engine of Vault, or of a server that speaks its API, such
// as OpenBao: the key that wraps never leaves that server.
//
// Client implements pki.KeyWrapper. It asks the server when a hub starts and when it gets a state key, and at no other time. It
// starts no goroutine and stores nothing.
package transit

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"skerry/fleet"
	"skerry/internal/clienttls"
)

const (
	// DefaultMount is where Vault mounts the engine by default.
	DefaultMount = "transit"

	requestTimeout = 10 * time.Second
	maxAnswer      = 1 << 20
)

// Config of a Client, by the names of Nomad's keyring block. Address, KeyName and TokenFile are required.
type Config struct {
	Address   string // https://HOST:PORT
	KeyName   string // of the key in the engine
	MountPath string // "": DefaultMount
	Namespace string // of Vault Enterprise; "": none
	TokenFile string // read before each request, so that an agent of Vault can renew it
	CACert    string // file with the authorities (PEM) of the server's certificate; "": those of the machine
}

// Client is a client of one key. It is safe for concurrent use.
type Client struct {
	cfg  Config
	http *http.Client
}

// New checks the configuration. It sends nothing.
func New(cfg Config) (*Client, error) {
	invalid := func(format string, args ...any) error {
		return fleet.Errorf(fleet.CodeInvalid, "wrap state keys by transit: "+format, args...)
	}
	if cfg.MountPath = strings.Trim(cfg.MountPath, "/"); cfg.MountPath == "" {
		cfg.MountPath = DefaultMount
	}
	switch u, err := url.Parse(cfg.Address); {
	case cfg.Address == "" || cfg.KeyName == "" || cfg.TokenFile == "":
		return nil, fleet.AsError(invalid("the address, the key's name or the token's file is missing")).
			WithHint("give --keyring-transit-address, --keyring-transit-key-name and --keyring-transit-token-file")
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return nil, fleet.AsError(invalid("%q is not the address of a server", cfg.Address)).WithHint("write it like https://vault.example.com:8200")
	case u.Scheme == "http" && !clienttls.IsLoopback(u.Hostname()):
		return nil, fleet.AsError(invalid("%s is not on this machine, and HTTP is not encrypted", cfg.Address)).WithHint("write it like https://vault.example.com:8200")
	case !isName(cfg.KeyName) || strings.Contains(cfg.KeyName, "/"):
		return nil, invalid("%q is not the name of a key", cfg.KeyName)
	case !isName(cfg.MountPath):
		return nil, invalid("%q is not a mount path", cfg.MountPath)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.CACert != "" {
		text, err := os.ReadFile(cfg.CACert)
		if err != nil {
			return nil, invalid("read the authorities of the server's certificate: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, invalid("%s has no certificate (PEM)", cfg.CACert)
		}
	}
	cfg.Address = strings.TrimRight(cfg.Address, "/")
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig, transport.DisableKeepAlives = config, true
	return &Client{cfg, &http.Client{
		Transport: transport, Timeout: requestTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the token is for this server
	}}, nil
}

// isName reports whether text can be a part of a path without being escaped, and stays below it.
func isName(text string) bool {
	for part := range strings.SplitSeq(text, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return !strings.ContainsFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("/-_.", r)
	})
}

// Kind returns "transit".
func (c *Client) Kind() string { return "transit" }

// Wrap encrypts by the newest version of the key.
func (c *Client) Wrap(ctx context.Context, plain []byte) (string, error) {
	answer, err := c.sendRequest(ctx, "encrypt", map[string]string{"plaintext": base64.StdEncoding.EncodeToString(plain)})
	if err != nil {
		return "", err
	}
	if !strings.HasPrefix(answer.Ciphertext, "vault:v") {
		return "", c.requestError("encrypt", fleet.CodeInvalid, "its answer has no ciphertext")
	}
	return answer.Ciphertext, nil
}

// Unwrap reverses Wrap.
func (c *Client) Unwrap(ctx context.Context, wrapped string) ([]byte, error) {
	answer, err := c.sendRequest(ctx, "decrypt", map[string]string{"ciphertext": wrapped})
	if err != nil {
		return nil, err
	}
	plain, err := base64.StdEncoding.DecodeString(answer.Plaintext)
	if err != nil || len(plain) == 0 {
		return nil, c.requestError("decrypt", fleet.CodeInvalid, "its answer has no plaintext")
	}
	return plain, nil
}

// answer is the part of an answer's data that is of use.
type answer struct {
	Ciphertext string `json:"ciphertext"`
	Plaintext  string `json:"plaintext"`
}

// requestError returns an error of a request.
func (c *Client) requestError(operation string, code fleet.Code, format string, args ...any) *fleet.Error {
	err := fmt.Errorf(format, args...)
	return fleet.Errorf(code, "%s by the transit key %s of %s: %w", operation, c.cfg.KeyName, c.cfg.Address, err)
}

// sendRequest sends one request about the key.
func (c *Client) sendRequest(ctx context.Context, operation string, body map[string]string) (answer, error) {
	token, err := os.ReadFile(c.cfg.TokenFile)
	if err != nil {
		return answer{}, c.requestError(operation, fleet.CodeUnavailable, "read the token: %w", err)
	}
	text, err := json.Marshal(body)
	if err != nil {
		return answer{}, c.requestError(operation, fleet.CodeInternal, "%w", err)
	}
	address := c.cfg.Address + "/v1/" + c.cfg.MountPath + "/" + operation + "/" + c.cfg.KeyName
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(text))
	if err != nil {
		return answer{}, c.requestError(operation, fleet.CodeInvalid, "%w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Vault-Request", "true")
	req.Header.Set("X-Vault-Token", strings.TrimSpace(string(token)))
	if c.cfg.Namespace != "" {
		req.Header.Set("X-Vault-Namespace", c.cfg.Namespace)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return answer{}, c.requestError(operation, fleet.CodeUnavailable, "%w", err).
			WithHint("start it, or let this hub reach it")
	}
	defer res.Body.Close()
	content, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err != nil {
		return answer{}, c.requestError(operation, fleet.CodeUnavailable, "read its answer: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return answer{}, c.refusalError(operation, res, content)
	}
	got, err := decodeAnswer(content)
	if err != nil {
		return answer{}, c.requestError(operation, fleet.CodeInvalid, "%w", err)
	}
	return got, nil
}

// decodeAnswer reads the content of an answer to a request that has succeeded.
func decodeAnswer(content []byte) (answer, error) {
	if len(content) > maxAnswer {
		return answer{}, fmt.Errorf("its answer has more than %d bytes", maxAnswer)
	}
	var got struct {
		Data answer `json:"data"`
	}
	if err := json.Unmarshal(content, &got); err != nil {
		return answer{}, fmt.Errorf("read its answer: %w", err)
	}
	return got.Data, nil
}

// refusalError turns an answer other than 200 into an error. It shows what the server says of the reason, bounded.
func (c *Client) refusalError(operation string, res *http.Response, content []byte) error {
	var said struct {
		Errors []string `json:"errors"`
	}
	_ = json.Unmarshal(content[:min(len(content), maxAnswer)], &said) // of use only in the error
	why := res.Status
	if len(said.Errors) > 0 {
		why = fmt.Sprintf("%s: %.300s", res.Status, strings.TrimSpace(strings.Join(said.Errors, "; ")))
	}
	switch {
	case res.StatusCode/100 == 3:
		return c.requestError(operation, fleet.CodeUnavailable, "it answers %s, to %s", res.Status, res.Header.Get("Location")).
			WithHint("give the address of the active server, or of a load balancer, with --keyring-transit-address")
	case res.StatusCode == http.StatusForbidden || res.StatusCode == http.StatusUnauthorized:
		return c.requestError(operation, fleet.CodeForbidden, "it answers %s", why).
			WithHint("the token needs the capability update on %s/encrypt/%s and %s/decrypt/%s, and must not have expired", c.cfg.MountPath, c.cfg.KeyName, c.cfg.MountPath, c.cfg.KeyName)
	case res.StatusCode == http.StatusNotFound:
		return c.requestError(operation, fleet.CodeNotFound, "it answers %s", why).
			WithHint("enable the engine (vault secrets enable -path=%s transit), or give its path with --keyring-transit-mount-path", c.cfg.MountPath)
	case res.StatusCode == http.StatusBadRequest:
		return c.requestError(operation, fleet.CodeInvalid, "it answers %s", why).
			WithHint("make the key with vault write -f %s/keys/%s; it opens what an older version wrapped only down to its min_decryption_version", c.cfg.MountPath, c.cfg.KeyName)
	case res.StatusCode == http.StatusServiceUnavailable:
		return c.requestError(operation, fleet.CodeUnavailable, "it answers %s", why).WithHint("unseal it")
	}
	return c.requestError(operation, fleet.CodeUnavailable, "it answers %s", why)
}
