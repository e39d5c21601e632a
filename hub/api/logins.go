package api

import (
	"net/http"

	"skerry/api"
	"skerry/fleet"
	"skerry/fleet/acl"
	"skerry/hub/access"
	"skerry/hub/login"
	"skerry/hub/state"
)

// loginEndpoints serve those who have no token yet: their requests are small, and those who fail often have to wait.
func (a *API) loginEndpoints() []endpoint {
	return []endpoint{
		{writes, "/v1/acl/login", public, boundedLogin(a, a.loginJWT)},
		{writes, "/v1/acl/oidc/auth-url", public, boundedLogin(a, a.beginOIDC)},
		{writes, "/v1/acl/oidc/complete-auth", public, boundedLogin(a, a.completeOIDC)},
	}
}

// maxLoginBody is the largest body of a request to log in.
const maxLoginBody = login.MaxJWT + 16<<10

var (
	errNoLogins     = fleet.Errorf(fleet.CodeUnsupported, "log in: this hub has no auth methods")
	errTooManyTries = fleet.Errorf(fleet.CodeUnavailable, "log in: too many tries").WithHint("wait a minute")
)

// boundedLogin serves a login: a small body, and not too many tries.
func boundedLogin[T any](a *API, f func(r *http.Request, req T) (any, fleet.Index, error)) http.HandlerFunc {
	serve := aclWrite(a, f)
	return a.whenEnabled(func(w http.ResponseWriter, r *http.Request) {
		source := hostName(r.RemoteAddr)
		switch {
		case a.cfg.Logins == nil:
			a.writeError(w, errNoLogins)
			return
		case !a.tries.Begin(source):
			a.writeErrorAs(w, http.StatusTooManyRequests, errTooManyTries)
			return
		}
		answer := &auditedAnswer{ResponseWriter: w}
		defer func() { a.tries.End(source, answer.status >= 400 && answer.status < 500) }()
		r.Body = http.MaxBytesReader(w, r.Body, maxLoginBody)
		serve(answer, r)
	})
}

// loginJWT exchanges a JWT for a token.
func (a *API) loginJWT(r *http.Request, req api.ACLLoginRequest) (any, fleet.Index, error) {
	if err := a.cfg.Cluster.CatchUp(r.Context()); err != nil {
		return nil, 0, err
	}
	token, err := a.cfg.Logins.LoginJWT(r.Context(), req.AuthMethodName, req.LoginToken)
	if err != nil {
		return nil, 0, err
	}
	return a.storeLogin(r, token)
}

// beginOIDC answers with the URL of the provider where somebody logs in.
func (a *API) beginOIDC(r *http.Request, req api.ACLOIDCAuthURLRequest) (any, fleet.Index, error) {
	if err := a.cfg.Cluster.CatchUp(r.Context()); err != nil {
		return nil, 0, err
	}
	made, err := a.cfg.Logins.AuthURL(r.Context(), login.OIDCLogin{Method: req.AuthMethodName, RedirectURI: req.RedirectURI, ClientNonce: req.ClientNonce})
	if err != nil {
		return nil, 0, err
	}
	return api.ACLOIDCAuthURLAnswer{AuthURL: made}, 0, nil
}

// completeOIDC exchanges the code of a provider for a token.
func (a *API) completeOIDC(r *http.Request, req api.ACLOIDCCompleteAuthRequest) (any, fleet.Index, error) {
	if err := a.cfg.Cluster.CatchUp(r.Context()); err != nil {
		return nil, 0, err
	}
	token, err := a.cfg.Logins.CompleteOIDC(r.Context(), login.OIDCLogin{Method: req.AuthMethodName, RedirectURI: req.RedirectURI, ClientNonce: req.ClientNonce},
		login.OIDCAnswer{State: req.State, Code: req.Code, Issuer: req.Iss})
	if err != nil {
		return nil, 0, err
	}
	return a.storeLogin(r, token)
}

// storeLogin stores the token of somebody who has logged in, and answers with its secret.
func (a *API) storeLogin(r *http.Request, token fleet.ACLToken) (any, fleet.Index, error) {
	token.AccessorID, token.SecretID = a.cfg.NewID(), fleet.NewUUID(nil)
	if err := acl.CheckToken(&token); err != nil {
		return nil, 0, err
	}
	res, err := a.commitCommand(r.Context(), state.ACLTokenStore{Token: tokenRecord(token)})
	if err != nil {
		return nil, res.Index, err
	}
	noteActor(r, &access.Actor{Accessor: token.AccessorID, Roles: token.RoleNames()})
	token.CreateIndex, token.ModifyIndex = res.Index, res.Index
	return token, res.Index, nil
}
