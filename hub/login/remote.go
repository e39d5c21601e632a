package login

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"golang.org/x/sync/singleflight"

	"skerry/fleet"
	"skerry/fleet/syntax"
	"skerry/internal/clienttls"
	"skerry/internal/redact"
)

// How long hubs wait for other servers, and keep what they said.
const (
	fetchTimeout  = 10 * time.Second
	freshFor      = 10 * time.Minute // then it is fetched again
	keptFor       = time.Hour        // while it cannot be fetched
	retryInterval = 10 * time.Second // between two fetches of the same
	maxAnswer     = 1 << 20          // bytes of an answer
	maxKeys       = 128              // of a JWKS
	maxRemotes    = 256              // that are kept
	maxRedirects  = 5
)

// remote names a server: its URL, and the CAs (PEM) that it is checked with; none: those of the system.
type remote struct{ url, cas string }

// remoteCache keeps what servers have answered.
type remoteCache[T any] struct {
	now      func() time.Time
	log      *slog.Logger
	fetching singleflight.Group

	mu   sync.Mutex
	kept map[remote]keptAnswer[T]
}

// keptAnswer is what a server has answered last. err is that of the newest try.
type keptAnswer[T any] struct {
	answer  T
	fetched time.Time // zero: never
	tried   time.Time
	err     error
}

func newRemoteCache[T any](now func() time.Time, log *slog.Logger) *remoteCache[T] {
	return &remoteCache[T]{now: now, log: log, kept: map[remote]keptAnswer[T]{}}
}

// answerOf returns what a server answers. It asks again if what it kept is old or does not satisfy the caller, but not
// more often than retryInterval. While the server cannot be reached, it returns what it kept for at most keptFor.
func (c *remoteCache[T]) answerOf(ctx context.Context, from remote, satisfies func(T) bool, fetch func(context.Context) (T, error)) (T, error) {
	now := c.now()
	c.mu.Lock()
	kept := c.kept[from]
	c.mu.Unlock()
	fresh := !kept.fetched.IsZero() && now.Sub(kept.fetched) < freshFor
	if fresh && satisfies(kept.answer) || !kept.tried.IsZero() && now.Sub(kept.tried) < retryInterval {
		return kept.usableAnswer(now)
	}
	done := c.fetching.DoChan(from.url+"\n"+from.cas, func() (any, error) {
		fetchCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
		defer cancel()
		answer, err := fetch(fetchCtx)
		return c.keepAnswer(from, answer, err), nil
	})
	select {
	case <-ctx.Done():
		return kept.answer, ctx.Err()
	case result := <-done:
		return result.Val.(keptAnswer[T]).usableAnswer(c.now())
	}
}

// keepAnswer keeps the answer to a fetch.
func (c *remoteCache[T]) keepAnswer(from remote, answer T, err error) keptAnswer[T] {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := c.kept[from]
	kept.tried, kept.err = now, err
	if err == nil {
		kept.answer, kept.fetched = answer, now
	} else {
		c.log.Warn("server of an auth method not reached", "url", from.url, "error", err)
	}
	if _, known := c.kept[from]; !known && len(c.kept) >= maxRemotes {
		clear(c.kept)
	}
	c.kept[from] = kept
	return kept
}

// usableAnswer returns the kept answer, unless it is too old.
func (k keptAnswer[T]) usableAnswer(now time.Time) (T, error) {
	if !k.fetched.IsZero() && now.Sub(k.fetched) < keptFor {
		return k.answer, nil
	}
	return k.answer, k.err
}

// keysFor returns the public keys that may have signed a JWT with a key id; "": it has none.
func (l *Logins) keysFor(ctx context.Context, conf *fleet.ACLAuthMethodConfig, id string) ([]crypto.PublicKey, error) {
	var out []crypto.PublicKey
	for _, text := range conf.JWTValidationPubKeys {
		key, err := parsePublicKey(text)
		if err != nil {
			return nil, fmt.Errorf("read a key of the auth method: %w", err)
		}
		out = append(out, key)
	}
	if len(out) > 0 {
		return out, nil
	}
	from := remote{conf.JWKSURL, conf.JWKSCACert}
	if from.url == "" {
		provider, err := l.discoverProvider(ctx, conf)
		if err != nil {
			return nil, err
		}
		var has struct {
			JWKS string `json:"jwks_uri"`
		}
		if err := provider.Claims(&has); err != nil {
			return nil, fmt.Errorf("read the description of the OIDC provider: %w", err)
		}
		from = remote{has.JWKS, strings.Join(conf.DiscoveryCaPem, "\n")}
	}
	keys, err := l.keys.answerOf(ctx, from, func(keys []jose.JSONWebKey) bool { return len(matchingKeys(keys, id)) > 0 },
		func(ctx context.Context) ([]jose.JSONWebKey, error) { return fetchKeys(ctx, from) })
	return matchingKeys(keys, id), err
}

// matchingKeys returns the keys with an id; "": all.
func matchingKeys(keys []jose.JSONWebKey, id string) (out []crypto.PublicKey) {
	for _, key := range keys {
		if id == "" || key.KeyID == id {
			out = append(out, key.Key)
		}
	}
	return out
}

// discoverProvider returns the description of an auth method's OIDC provider.
func (l *Logins) discoverProvider(ctx context.Context, conf *fleet.ACLAuthMethodConfig) (*oidc.Provider, error) {
	from := remote{conf.OIDCDiscoveryURL, strings.Join(conf.DiscoveryCaPem, "\n")}
	return l.providers.answerOf(ctx, from, func(*oidc.Provider) bool { return true }, func(ctx context.Context) (*oidc.Provider, error) {
		client, err := httpClient(from.cas)
		if err != nil {
			return nil, err
		}
		provider, err := oidc.NewProvider(oidc.ClientContext(ctx, client), from.url)
		if err == nil {
			err = checkEndpoints(provider)
		}
		if err != nil {
			return nil, unreachable("description of the OIDC provider", from.url, err)
		}
		return provider, nil
	})
}

// checkEndpoints returns an error for a provider whose endpoints hubs do not ask.
func checkEndpoints(provider *oidc.Provider) error {
	for _, endpoint := range []string{provider.Endpoint().AuthURL, provider.Endpoint().TokenURL, provider.UserInfoEndpoint()} {
		if endpoint == "" {
			continue
		}
		if err := checkURL(endpoint); err != nil {
			return err
		}
	}
	return nil
}

// unreachable returns the error for a server that does not answer as it should.
func unreachable(what, from string, err error) error {
	text := redact.Error(err).Error()
	if len(text) > 300 {
		text = strings.ToValidUTF8(text[:300], "") + "…"
	}
	return fleet.Errorf(fleet.CodeUnavailable, "fetch the %s from %s: %s", what, redact.Address(from), text).
		WithHint("the hub needs a way to this server, and the CA of its certificate in the auth method if the system does not know it")
}

// fetchKeys fetches a JWKS.
func fetchKeys(ctx context.Context, from remote) ([]jose.JSONWebKey, error) {
	keys, err := requestKeys(ctx, from)
	if err != nil {
		return nil, unreachable("keys (JWKS)", from.url, err)
	}
	return keys, nil
}

func requestKeys(ctx context.Context, from remote) ([]jose.JSONWebKey, error) {
	if err := checkURL(from.url); err != nil {
		return nil, err
	}
	client, err := httpClient(from.cas)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from.url, nil)
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return nil, err
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("it answers %s", res.Status)
	}
	return parseKeys(body)
}

// parseKeys reads a JWKS. Keys that cannot verify a signature are left out: those of other types, and secret ones.
func parseKeys(body []byte) ([]jose.JSONWebKey, error) {
	if syntax.JSONDepth(body) > maxNesting {
		return nil, fmt.Errorf("it is nested more than %d deep", maxNesting)
	}
	var set struct{ Keys []json.RawMessage }
	if err := json.Unmarshal(body, &set); err != nil {
		return nil, fmt.Errorf("it is not a JWKS: %w", err)
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("it has %d keys: at most %d are allowed", len(set.Keys), maxKeys)
	}
	var keys []jose.JSONWebKey
	for _, text := range set.Keys {
		var key jose.JSONWebKey
		if json.Unmarshal(text, &key) == nil && key.IsPublic() && key.Valid() && key.Use != "enc" {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("it has no public key that a signature could be checked with, among %d", len(set.Keys))
	}
	return keys, nil
}

// checkURL returns an error for a URL that hubs do not ask. A key that comes over plain HTTP could be anybody's.
func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return redact.Error(err)
	case u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("%q is not a URL", redact.Address(text))
	case u.Scheme == "http" && !clienttls.IsLoopback(u.Hostname()):
		return fmt.Errorf("%q is plain HTTP: whoever is on the way could answer in its place", redact.Address(text))
	}
	return nil
}

// httpClient returns a client for one server. It has bounds for the time and the size of answers.
func httpClient(cas string) (*http.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if cas != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(cas)) {
			return nil, fmt.Errorf("the CA of the auth method is not a certificate (PEM)")
		}
	}
	return &http.Client{
		Timeout:   fetchTimeout,
		Transport: boundedTransport{&http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10}},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return fmt.Errorf("more than %d redirections", maxRedirects)
			}
			return checkURL(r.URL.String())
		},
	}, nil
}

// boundedTransport cuts answers off behind maxAnswer bytes.
type boundedTransport struct{ http.RoundTripper }

// RoundTrip sends a request.
func (t boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := t.RoundTripper.RoundTrip(r)
	if err == nil {
		res.Body = http.MaxBytesReader(nil, res.Body, maxAnswer)
	}
	return res, err
}
