// Package login checks people and programs that log in by an auth method, and says which token they get.
//
// A JWT is checked with keys that the method has or names, a person by an OIDC provider. Binding rules turn the claims
// into policies and roles. hub.Open makes the Logins, and hub/api calls them in the goroutines of requests and stores the
// tokens. Keys and descriptions of providers are kept in memory; a fetch that is begun goes on for the next caller. The
// package persists nothing.
package login

import (
	"context"
	"log/slog"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"skerry/fleet"
	"skerry/hub/state"
)

// Wrapper encrypts secrets with a key that is kept outside the replicated state, and that all hubs have.
type Wrapper interface {
	// Wrap encrypts a secret, and returns the name of the key that did so. bound is given to Unwrap again.
	Wrap(plain, bound []byte) (wrapped []byte, by string, err error)
	// Unwrap reverses Wrap. CodeUnavailable: the key named by is missing, and the error says what to do.
	Unwrap(by string, wrapped, bound []byte) ([]byte, error)
}

// Config of Logins. State and Wrap are required.
type Config struct {
	State *state.Store
	Wrap  Wrapper
	Now   func() time.Time
	Log   *slog.Logger
}

// Logins checks logins. It is safe for concurrent use.
type Logins struct {
	cfg       Config
	keys      *remoteCache[[]jose.JSONWebKey]
	providers *remoteCache[*oidc.Provider]
}

// New returns the Logins of a hub. It starts nothing.
func New(cfg Config) *Logins {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Logins{
		cfg:  cfg,
		keys: newRemoteCache[[]jose.JSONWebKey](cfg.Now, cfg.Log), providers: newRemoteCache[*oidc.Provider](cfg.Now, cfg.Log),
	}
}

// SealClientSecret returns the record of an auth method, with its client secret encrypted.
func (l *Logins) SealClientSecret(m fleet.ACLAuthMethod) (state.ACLAuthMethodRecord, error) {
	row := state.ACLAuthMethodRecord{ACLAuthMethod: m}
	if m.Config.OIDCClientSecret == "" {
		return row, nil
	}
	config := *m.Config
	config.OIDCClientSecret = ""
	row.Config = &config
	var err error
	row.Secret.Data, row.Secret.By, err = l.cfg.Wrap.Wrap([]byte(m.Config.OIDCClientSecret), BoundToMethod(m.Name))
	return row, err
}

// BoundToMethod returns what binds an encrypted client secret to its auth method.
func BoundToMethod(name string) []byte { return []byte("skerry-auth-method/1\x00" + name) }

// LoginJWT checks a JWT by an auth method of the type JWT, and returns the token that its bearer gets, without ids.
// CodeForbidden: the JWT is not good for it. CodeInvalid: no binding rule matches.
func (l *Logins) LoginJWT(ctx context.Context, method, raw string) (fleet.ACLToken, error) {
	row, err := l.findMethod(method, fleet.ACLAuthMethodJWT)
	if err != nil {
		return fleet.ACLToken{}, err
	}
	all, err := l.verifyJWT(ctx, row.Config, raw)
	if err != nil {
		return fleet.ACLToken{}, loginError(method, err)
	}
	return l.tokenFor(row, all)
}

// findMethod returns an auth method of a type.
func (l *Logins) findMethod(name, kind string) (*state.ACLAuthMethodRecord, error) {
	if name == "" {
		return nil, fleet.Errorf(fleet.CodeInvalid, "log in: no auth method is named").WithHint("skerry acl auth-method list shows them")
	}
	row, ok := l.cfg.State.View().ACLAuthMethod(name)
	if !ok {
		return nil, fleet.Errorf(fleet.CodeNotFound, "ACL auth method %q not found", name)
	}
	if row.Type != kind {
		return nil, fleet.Errorf(fleet.CodeInvalid, "log in by the auth method %q: its type is %s, not %s", name, row.Type, kind)
	}
	return row, nil
}

// loginError says by which auth method a login failed.
func loginError(method string, err error) error {
	e := fleet.AsError(err)
	return fleet.Errorf(e.Code, "log in by the auth method %q: %s", method, e.Message).WithHint("%s", e.Hint)
}

// tokenFor returns the token for somebody with these claims, without ids.
func (l *Logins) tokenFor(row *state.ACLAuthMethodRecord, all map[string]any) (fleet.ACLToken, error) {
	mapped, err := mapClaims(row.Config, all)
	if err != nil {
		return fleet.ACLToken{}, loginError(row.Name, err)
	}
	v := l.cfg.State.View()
	token, matched, err := bindToken(v, row.Name, mapped)
	if row.Config.VerboseLogging {
		l.cfg.Log.Debug("claims of a login", "auth_method", row.Name, "value", mapped.Value, "list", mapped.List, "binding_rules", matched)
	}
	if err == nil {
		token.Name, err = tokenName(&row.ACLAuthMethod, mapped)
	}
	if err != nil {
		return fleet.ACLToken{}, loginError(row.Name, err)
	}
	now := l.cfg.Now().UTC()
	end := now.Add(time.Duration(row.MaxTokenTTL))
	token.Global, token.CreateTime, token.ExpirationTime = row.TokenLocality == localityGlobal, now, &end
	return token, nil
}
