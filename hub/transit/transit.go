// Package transit wraps the state keys of a hub by the transit secrets engine of Vault, or of a server that speaks its API, such
// as OpenBao: the key that wraps never leaves that server.
//
// Client implements pki.KeyWrapper. It asks the server when a hub starts and when it gets a state key, and at no other time. It
// starts no goroutine and stores nothing.
package transit

import (
	"context"
	"encoding/base64"
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
	cfg Config
	api *remoteapi.Client
}

// New checks the configuration. It sends nothing.
func New(cfg Config) (*Client, error) {
	invalid := func(format string, args ...any) *fleet.Error {
		return fleet.Errorf(fleet.CodeInvalid, "wrap state keys by transit: "+format, args...)
	}
	if cfg.MountPath = strings.Trim(cfg.MountPath, "/"); cfg.MountPath == "" {
		cfg.MountPath = DefaultMount
	}
	switch {
	case cfg.Address == "" || cfg.KeyName == "" || cfg.TokenFile == "":
		return nil, invalid("the address, the key's name or the token's file is missing").
			WithHint("give --keyring-transit-address, --keyring-transit-key-name and --keyring-transit-token-file")
	case !isName(cfg.KeyName) || strings.Contains(cfg.KeyName, "/"):
		return nil, invalid("%q is not the name of a key", cfg.KeyName)
	case !isName(cfg.MountPath):
		return nil, invalid("%q is not a mount path", cfg.MountPath)
	}
	api, err := remoteapi.New(remoteapi.Config{
		Address: cfg.Address, AddressHint: "write it like https://vault.example.com:8200", TLS: clienttls.Files{Server: "Vault", CA: cfg.CACert}, Proxy: true,
		Header: http.Header{"X-Vault-Request": {"true"}}, TokenHeader: "X-Vault-Token", TokenFile: cfg.TokenFile, NamespaceHeader: "X-Vault-Namespace",
		Timeout: requestTimeout, MaxAnswer: maxAnswer,
	})
	if err != nil {
		e := fleet.AsError(err)
		return nil, invalid("%s", e.Message).WithHint("%s", e.Hint)
	}
	return &Client{cfg, api}, nil
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
	answer, err := c.sendTransitRequest(ctx, "encrypt", map[string]string{"plaintext": base64.StdEncoding.EncodeToString(plain)})
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
	answer, err := c.sendTransitRequest(ctx, "decrypt", map[string]string{"ciphertext": wrapped})
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

// sendTransitRequest sends one request about the key.
func (c *Client) sendTransitRequest(ctx context.Context, operation string, body map[string]string) (answer, error) {
	content, err := c.api.Send(ctx, remoteapi.Request{
		Method: http.MethodPost, Path: "/v1/" + c.cfg.MountPath + "/" + operation + "/" + c.cfg.KeyName, Namespace: c.cfg.Namespace, Body: body,
	})
	var unreachable *url.Error
	switch refusal := remoteapi.RefusalOf(err); {
	case refusal != nil:
		return answer{}, c.refusalError(operation, refusal)
	case errors.Is(err, remoteapi.ErrTooLarge):
		return answer{}, c.requestError(operation, fleet.CodeInvalid, "%w", err)
	case errors.As(err, &unreachable):
		return answer{}, c.requestError(operation, fleet.CodeUnavailable, "%w", err).WithHint("start it, or let this hub reach it")
	case err != nil:
		return answer{}, c.requestError(operation, fleet.CodeUnavailable, "%w", err)
	}
	got, err := decodeAnswer(content)
	if err != nil {
		return answer{}, c.requestError(operation, fleet.CodeInvalid, "%w", err)
	}
	return got, nil
}

// decodeAnswer reads the content of an answer to a request that has succeeded.
func decodeAnswer(content []byte) (answer, error) {
	var got struct {
		Data answer `json:"data"`
	}
	if err := json.Unmarshal(content, &got); err != nil {
		return answer{}, fmt.Errorf("read its answer: %w", err)
	}
	return got.Data, nil
}

// refusalError turns a refusal into an error that says what to do.
func (c *Client) refusalError(operation string, r *remoteapi.Refusal) error {
	if r.Status/100 == 3 {
		return c.requestError(operation, fleet.CodeUnavailable, "%w, to %s", r, r.Location).
			WithHint("give the address of the active server, or of a load balancer, with --keyring-transit-address")
	}
	failed := func(code fleet.Code) *fleet.Error { return c.requestError(operation, code, "%w", r) }
	switch r.Status {
	case http.StatusForbidden, http.StatusUnauthorized:
		return failed(fleet.CodeForbidden).
			WithHint("the token needs the capability update on %s/encrypt/%s and %s/decrypt/%s, and must not have expired", c.cfg.MountPath, c.cfg.KeyName, c.cfg.MountPath, c.cfg.KeyName)
	case http.StatusNotFound:
		return failed(fleet.CodeNotFound).
			WithHint("enable the engine (vault secrets enable -path=%s transit), or give its path with --keyring-transit-mount-path", c.cfg.MountPath)
	case http.StatusBadRequest:
		return failed(fleet.CodeInvalid).
			WithHint("make the key with vault write -f %s/keys/%s; it opens what an older version wrapped only down to its min_decryption_version", c.cfg.MountPath, c.cfg.KeyName)
	case http.StatusServiceUnavailable:
		return failed(fleet.CodeUnavailable).WithHint("unseal it")
	}
	return failed(fleet.CodeUnavailable)
}
