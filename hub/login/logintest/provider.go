// Package logintest has an OIDC provider for tests: discovery, authorization with PKCE, tokens, user info and keys over
// HTTPS. Its person agrees to everything. The HTTP server's goroutines end with the test; nothing is persisted.
package logintest

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Provider is an OIDC provider with one client.
type Provider struct {
	*httptest.Server
	ClientID, ClientSecret string

	key ed25519.PrivateKey

	mu     sync.Mutex
	now    func() time.Time
	claims map[string]any // of the next ID tokens
	info   map[string]any // of the user info
	extra  map[string]any // of the description
	codes  map[string]url.Values
}

// NewProvider starts a provider. now is the time of its tokens.
func NewProvider(tb testing.TB, now func() time.Time) *Provider {
	_, key, _ := ed25519.GenerateKey(rand.Reader) // never fails
	p := &Provider{ClientID: "skerry", ClientSecret: "client s3cret +/=", key: key, now: now, codes: map[string]url.Values{},
		info: map[string]any{"sub": "ann"}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", p.serveDescription)
	mux.HandleFunc("GET /authorize", p.serveAuthorize)
	mux.HandleFunc("POST /token", p.serveToken)
	mux.HandleFunc("GET /userinfo", p.serveUserInfo)
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k1", Use: "sig"}}})
	})
	p.Server = httptest.NewTLSServer(mux)
	tb.Cleanup(p.Close)
	return p
}

// CA returns the certificate that the provider's is checked with (PEM).
func (p *Provider) CA() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw}))
}

// SetClaims has ID tokens have these claims besides, or instead of those that they have; nil leaves one out.
func (p *Provider) SetClaims(claims map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claims = claims
}

// SetUserInfo replaces the user info.
func (p *Provider) SetUserInfo(info map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.info = info
}

// SetDescription has the description say this besides, or instead of what it says.
func (p *Provider) SetDescription(extra map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.extra = extra
}

// LogIn follows the URL of a login as a browser does, and returns the query that the provider sends back.
func (p *Provider) LogIn(tb testing.TB, authURL string) url.Values {
	tb.Helper()
	client := *p.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := client.Get(authURL)
	if err != nil {
		tb.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusFound {
		tb.Fatalf("log in at %s: %s", authURL, res.Status)
	}
	back, err := res.Location()
	if err != nil {
		tb.Fatal(err)
	}
	return back.Query()
}

func writeJSON(w http.ResponseWriter, status int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // an error means that the client has left
}

func (p *Provider) serveDescription(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	says := map[string]any{
		"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token", "userinfo_endpoint": p.URL + "/userinfo", "jwks_uri": p.URL + "/keys",
		"response_types_supported": []string{"code"}, "id_token_signing_alg_values_supported": []string{"EdDSA"}, "code_challenge_methods_supported": []string{"S256"},
	}
	maps.Copy(says, p.extra)
	writeJSON(w, http.StatusOK, says)
}

// serveAuthorize sends a person who agrees back with a code.
func (p *Provider) serveAuthorize(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := r.URL.Query()
	back, err := url.Parse(q.Get("redirect_uri"))
	if err != nil || q.Get("client_id") != p.ClientID || q.Get("response_type") != "code" || q.Get("state") == "" {
		http.Error(w, "invalid_request", http.StatusBadRequest)
		return
	}
	code := rand.Text()
	p.codes[code] = q
	answer := back.Query()
	answer.Set("code", code)
	answer.Set("state", q.Get("state"))
	answer.Set("iss", p.URL)
	back.RawQuery = answer.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound)
}

// serveToken exchanges a code, once: for the client that shows its secret, and whoever has begun the login.
func (p *Provider) serveToken(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q, known := p.codes[r.PostFormValue("code")]
	delete(p.codes, r.PostFormValue("code"))
	id, secret, basic := r.BasicAuth()
	if basic {
		id, _ = url.QueryUnescape(id)
		secret, _ = url.QueryUnescape(secret)
	} else {
		id, secret = r.PostFormValue("client_id"), r.PostFormValue("client_secret")
	}
	refuse := func(code, why string) {
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": code, "error_description": why})
	}
	if id != p.ClientID || secret != p.ClientSecret {
		refuse("invalid_client", "another secret than "+secret) // some providers repeat what they were sent
		return
	}
	if !known || r.PostFormValue("redirect_uri") != q.Get("redirect_uri") {
		refuse("invalid_grant", "unknown code "+r.PostFormValue("code"))
		return
	}
	if challenge := q.Get("code_challenge"); challenge != "" {
		sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
		if q.Get("code_challenge_method") != "S256" || challenge != base64.RawURLEncoding.EncodeToString(sum[:]) {
			refuse("invalid_grant", "another verifier")
			return
		}
	}
	access := rand.Text()
	answer := map[string]any{"access_token": access, "token_type": "Bearer", "expires_in": 300}
	if signed := p.signIDToken(q, access); signed != "" {
		answer["id_token"] = signed
	}
	writeJSON(w, http.StatusOK, answer)
}

// signIDToken returns the ID token of a login; "": its claims say that there is none.
func (p *Provider) signIDToken(q url.Values, access string) string {
	sum := sha512.Sum512([]byte(access))
	all := map[string]any{
		"iss": p.URL, "aud": p.ClientID, "sub": "ann", "nonce": q.Get("nonce"), "iat": p.now().Unix(), "exp": p.now().Add(5 * time.Minute).Unix(), "at_hash": base64.RawURLEncoding.EncodeToString(sum[:sha512.Size/2]),
	}
	maps.Copy(all, p.claims)
	if all["no token"] != nil {
		return ""
	}
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	payload, _ := json.Marshal(all)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: p.key, KeyID: "k1"}}, nil)
	if err != nil {
		panic(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		panic(err)
	}
	raw, err := signed.CompactSerialize()
	if err != nil {
		panic(err)
	}
	return raw
}

func (p *Provider) serveUserInfo(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Header.Get("Authorization") == "" {
		http.Error(w, "no token", http.StatusUnauthorized)
		return
	}
	writeJSON(w, http.StatusOK, p.info)
}
