package login

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/internal/clienttls"
	"skerry/internal/redact"
)

const (
	// loginWindow is how long somebody has to log in at the provider.
	loginWindow = 10 * time.Minute
	maxNonce    = 256     // bytes
	maxURI      = 2 << 10 // bytes
	maxCode     = 8 << 10 // bytes
	maxState    = 1 << 10 // bytes
	seedBytes   = 32
)

// OIDCLogin is a login at an OIDC provider: what a client says when it asks for the URL, and again with the code.
type OIDCLogin struct {
	Method      string
	RedirectURI string // where the provider sends the person back to
	ClientNonce string // that the client has drawn, and that the provider's token must have
}

// OIDCAnswer is what the provider has added to the RedirectURI.
type OIDCAnswer struct{ State, Code, Issuer string }

// AuthURL returns where the person has to go. The state in it is encrypted and bound to the login: it has the time and the
// secret of the login, so that any hub can complete it, and no hub has to remember it.
func (l *Logins) AuthURL(ctx context.Context, in OIDCLogin) (string, error) {
	row, err := l.findOIDCMethod(in)
	if err != nil {
		return "", err
	}
	made, err := l.authURL(ctx, row, in)
	if err != nil {
		return "", loginError(in.Method, err)
	}
	return made, nil
}

func (l *Logins) authURL(ctx context.Context, row *state.ACLAuthMethodRecord, in OIDCLogin) (string, error) {
	provider, err := l.discoverProvider(ctx, row.Config)
	if err != nil {
		return "", err
	}
	seed := make([]byte, seedBytes)
	rand.Read(seed) // never fails
	sealed, err := l.sealState(in, seed)
	if err != nil {
		return "", err
	}
	config := oauthConfig(row.Config, provider, in.RedirectURI, "")
	options := []oauth2.AuthCodeOption{oidc.Nonce(in.ClientNonce)}
	if row.Config.OIDCEnablePKCE {
		options = append(options, oauth2.S256ChallengeOption(pkceVerifier(seed)))
	}
	return config.AuthCodeURL(sealed, options...), nil
}

// CompleteOIDC exchanges the code of a provider for the person's claims, and returns the token that the person gets,
// without ids. CodeForbidden: the answer is not one to this login, or the provider does not confirm it.
func (l *Logins) CompleteOIDC(ctx context.Context, in OIDCLogin, answer OIDCAnswer) (fleet.ACLToken, error) {
	row, err := l.findOIDCMethod(in)
	if err != nil {
		return fleet.ACLToken{}, err
	}
	all, err := l.confirmOIDC(ctx, row, in, answer)
	if err != nil {
		return fleet.ACLToken{}, loginError(in.Method, err)
	}
	return l.tokenFor(row, all)
}

// findOIDCMethod returns the auth method of a login, and checks what the client says.
func (l *Logins) findOIDCMethod(in OIDCLogin) (*state.ACLAuthMethodRecord, error) {
	row, err := l.findMethod(in.Method, fleet.ACLAuthMethodOIDC)
	if err != nil {
		return nil, err
	}
	invalid := func(format string, args ...any) *fleet.Error {
		return fleet.Errorf(fleet.CodeInvalid, "log in by the auth method %q: "+format, append([]any{in.Method}, args...)...)
	}
	switch {
	case in.ClientNonce == "" || len(in.ClientNonce) > maxNonce:
		return nil, invalid("the client nonce has %d bytes, not 1 to %d", len(in.ClientNonce), maxNonce)
	case in.RedirectURI == "" || len(in.RedirectURI) > maxURI:
		return nil, invalid("the redirect URI has %d bytes, not 1 to %d", len(in.RedirectURI), maxURI)
	case !slices.ContainsFunc(row.Config.AllowedRedirectURIs, func(allowed string) bool { return sameRedirect(allowed, in.RedirectURI) }):
		return nil, invalid("the redirect URI %q is not one of its AllowedRedirectURIs", in.RedirectURI).
			WithHint("skerry acl auth-method info shows them; a client on the person's own machine may have any port")
	}
	return row, nil
}

// sameRedirect reports whether a redirect URI is the allowed one. On the person's own machine the port does not matter
// (RFC 8252), nor how the machine is called.
func sameRedirect(allowed, asked string) bool {
	if allowed == asked {
		return true
	}
	a, err1 := url.Parse(allowed)
	b, err2 := url.Parse(asked)
	if err1 != nil || err2 != nil || !clienttls.IsLoopback(a.Hostname()) || !clienttls.IsLoopback(b.Hostname()) || b.User != nil {
		return false
	}
	return a.Scheme == b.Scheme && a.EscapedPath() == b.EscapedPath() && a.RawQuery == b.RawQuery && a.Fragment == b.Fragment
}

// oauthConfig returns what the OAuth library needs to speak for an auth method's client.
func oauthConfig(conf *fleet.ACLAuthMethodConfig, provider *oidc.Provider, redirect, secret string) *oauth2.Config {
	endpoint := provider.Endpoint()
	endpoint.AuthStyle = oauth2.AuthStyleInHeader // the default of OIDC
	var has struct {
		Styles []string `json:"token_endpoint_auth_methods_supported"`
	}
	_ = provider.Claims(&has) // discoverProvider has read it
	if secret == "" || len(has.Styles) > 0 && !slices.Contains(has.Styles, "client_secret_basic") {
		endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	scopes := slices.Concat([]string{oidc.ScopeOpenID}, slices.DeleteFunc(slices.Clone(conf.OIDCScopes), func(s string) bool { return s == oidc.ScopeOpenID }))
	return &oauth2.Config{ClientID: conf.OIDCClientID, ClientSecret: secret, Endpoint: endpoint, RedirectURL: redirect, Scopes: scopes}
}

// pkceVerifier returns the secret of PKCE for a login's seed.
func pkceVerifier(seed []byte) string { return base64.RawURLEncoding.EncodeToString(seed) }

// boundToLogin returns what binds a state to its login.
func boundToLogin(in OIDCLogin) []byte {
	return fmt.Appendf(nil, "skerry-login/1 %q %q %q", in.Method, in.RedirectURI, in.ClientNonce)
}

// sealState returns the state of a login: the key's name, and with this key encrypted the time when the login ends and
// its seed.
func (l *Logins) sealState(in OIDCLogin, seed []byte) (string, error) {
	plain := binary.BigEndian.AppendUint64(nil, uint64(l.cfg.Now().Add(loginWindow).Unix()))
	wrapped, by, err := l.cfg.Wrap.Wrap(append(plain, seed...), boundToLogin(in))
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(slices.Concat([]byte{byte(len(by))}, []byte(by), wrapped)), nil
}

// openState returns the seed of a login. CodeForbidden: the state is of another login, or that one has ended.
func (l *Logins) openState(in OIDCLogin, text string) ([]byte, error) {
	foreign := fleet.Errorf(fleet.CodeForbidden, "the state is not that of this login").
		WithHint("begin again, and send the method, the redirect URI and the client nonce as they were for the URL")
	if len(text) > maxState {
		return nil, foreign
	}
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(sealed) == 0 || len(sealed) <= int(sealed[0]) {
		return nil, foreign
	}
	by, wrapped := string(sealed[1:1+sealed[0]]), sealed[1+sealed[0]:]
	plain, err := l.cfg.Wrap.Unwrap(by, wrapped, boundToLogin(in))
	if err != nil || len(plain) != 8+seedBytes {
		return nil, foreign
	}
	if end := int64(binary.BigEndian.Uint64(plain)); l.cfg.Now().Unix() >= end {
		return nil, fleet.Errorf(fleet.CodeForbidden, "this login has ended: it has %s", loginWindow).WithHint("begin again")
	}
	return plain[8:], nil
}

// confirmOIDC returns the claims of a person who has logged in at the provider.
func (l *Logins) confirmOIDC(ctx context.Context, row *state.ACLAuthMethodRecord, in OIDCLogin, answer OIDCAnswer) (map[string]any, error) {
	conf := row.Config
	switch {
	case answer.Code == "" || len(answer.Code) > maxCode:
		return nil, fleet.Errorf(fleet.CodeInvalid, "the code has %d bytes, not 1 to %d", len(answer.Code), maxCode)
	case answer.Issuer != "" && answer.Issuer != conf.OIDCDiscoveryURL:
		return nil, fleet.Errorf(fleet.CodeForbidden, "the answer is of the issuer %q", answer.Issuer)
	}
	seed, err := l.openState(in, answer.State)
	if err != nil {
		return nil, err
	}
	secret := []byte{}
	if len(row.Secret.Data) > 0 {
		if secret, err = l.cfg.Wrap.Unwrap(row.Secret.By, row.Secret.Data, BoundToMethod(row.Name)); err != nil {
			return nil, err
		}
	}
	client, err := httpClient(strings.Join(conf.DiscoveryCaPem, "\n"))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, client), fetchTimeout)
	defer cancel()
	provider, err := l.discoverProvider(ctx, conf)
	if err != nil {
		return nil, err
	}
	options := []oauth2.AuthCodeOption{}
	if conf.OIDCEnablePKCE {
		options = append(options, oauth2.VerifierOption(pkceVerifier(seed)))
	}
	token, err := oauthConfig(conf, provider, in.RedirectURI, string(secret)).Exchange(ctx, answer.Code, options...)
	if err != nil {
		return nil, exchangeError(provider.Endpoint().TokenURL, redact.NewValues(string(secret), answer.Code), err)
	}
	all, err := l.verifyIDToken(ctx, conf, token, in.ClientNonce)
	if err != nil || conf.OIDCDisableUserInfo || provider.UserInfoEndpoint() == "" {
		return all, err
	}
	return addUserInfo(ctx, provider, token, all)
}

// exchangeError returns the error for a code that the provider does not take. The provider's words may repeat what it was sent.
func exchangeError(from string, sent redact.Values, err error) error {
	var refused *oauth2.RetrieveError
	if errors.As(err, &refused) && refused.Response.StatusCode < http.StatusInternalServerError {
		return fleet.Errorf(fleet.CodeForbidden, "the provider refuses the code: %.200s %.200s", sent.Text(cmp.Or(refused.ErrorCode, refused.Response.Status)), sent.Text(refused.ErrorDescription)).
			WithHint("a code can be used once, and soon; if every login fails so, compare OIDCClientID and OIDCClientSecret with the provider's")
	}
	return unreachable("tokens of the person", from, sent.Error(err))
}

// verifyIDToken returns the claims of the token that says who has logged in.
func (l *Logins) verifyIDToken(ctx context.Context, conf *fleet.ACLAuthMethodConfig, token *oauth2.Token, nonce string) (map[string]any, error) {
	raw, _ := token.Extra("id_token").(string)
	if raw == "" {
		return nil, fleet.Errorf(fleet.CodeForbidden, "the provider has sent no ID token")
	}
	algs := []string{}
	for _, alg := range allowedAlgs(conf) {
		algs = append(algs, string(alg))
	}
	keys := &idTokenKeys{logins: l, conf: conf}
	verifier := oidc.NewVerifier(conf.OIDCDiscoveryURL, keys, &oidc.Config{ClientID: conf.OIDCClientID, SupportedSigningAlgs: algs, Now: l.cfg.Now})
	id, err := verifier.Verify(ctx, raw)
	switch {
	case keys.err != nil:
		return nil, keys.err
	case err != nil:
		return nil, refuse("%w", err)
	case id.Nonce != nonce:
		return nil, refuse("its nonce is that of another login")
	}
	if id.AccessTokenHash != "" {
		if err := id.VerifyAccessToken(token.AccessToken); err != nil {
			return nil, refuse("%w", err)
		}
	}
	if azp, there := keys.claims["azp"]; there && azp != conf.OIDCClientID {
		return nil, refuse("it was made for the client %q", azp)
	}
	return keys.claims, checkClaims(conf, keys.claims, l.cfg.Now())
}

// idTokenKeys checks the signature of one ID token for the OIDC library, within the bounds of all JWTs, and keeps its
// claims.
type idTokenKeys struct {
	logins *Logins
	conf   *fleet.ACLAuthMethodConfig
	claims map[string]any
	err    error
}

// VerifySignature returns the payload of an ID token that the provider has signed.
func (k *idTokenKeys) VerifySignature(ctx context.Context, raw string) ([]byte, error) {
	signed, err := parseJWT(raw, allowedAlgs(k.conf))
	if err != nil {
		k.err = err
		return nil, err
	}
	keys, err := k.logins.keysFor(ctx, k.conf, signed.Signatures[0].Header.KeyID)
	if err == nil {
		k.claims, err = verifySignature(signed, keys)
	}
	k.err = err
	return signed.UnsafePayloadWithoutVerification(), err
}

// addUserInfo adds what the provider says of the person besides. It cannot say that it is another one.
func addUserInfo(ctx context.Context, provider *oidc.Provider, token *oauth2.Token, all map[string]any) (map[string]any, error) {
	info, err := provider.UserInfo(ctx, oauth2.StaticTokenSource(token))
	if err != nil {
		return nil, unreachable("description of the person (user info)", provider.UserInfoEndpoint(), err)
	}
	if info.Subject != all["sub"] {
		return nil, refuse("the user info is of another person")
	}
	var text json.RawMessage
	if err := info.Claims(&text); err != nil {
		return nil, refuse("the user info cannot be read: %w", err)
	}
	if len(text) > MaxJWT {
		return nil, refuse("the user info has %d bytes: at most %d are allowed", len(text), MaxJWT)
	}
	more, err := decodeClaims(text)
	if err != nil {
		return nil, err
	}
	issuer, subject := all["iss"], all["sub"]
	maps.Copy(all, more)
	all["iss"], all["sub"] = issuer, subject
	return all, nil
}
