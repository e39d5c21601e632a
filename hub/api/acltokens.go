package api

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"

	"skerry/api"
	"skerry/fleet"
	"skerry/fleet/acl"
	"skerry/hub/access"
	"skerry/hub/state"
)

// oneTimeTTL is how long a one-time token may be exchanged.
const oneTimeTTL = 10 * time.Minute

func accessorOf(t *fleet.ACLToken) string { return t.AccessorID }

// listACLTokens lists the tokens by accessor, without their secrets.
func (a *API) listACLTokens(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	onlyGlobal, err := queryFlag(r, "global", false)
	if err != nil {
		return nil, 0, err
	}
	shown := func(yield func(*fleet.ACLToken) bool) {
		for row := range v.ACLTokens() {
			if onlyGlobal && !row.Global {
				continue
			}
			if token := v.ACLTokenShown(row); !yield(&token) {
				return
			}
		}
	}
	answer, err := page(r, filterByPrefix(q, shown, accessorOf), accessorOf, unchangedItem[*fleet.ACLToken])
	return answer, v.TableIndex("acl_tokens"), err
}

// readOwnACLToken answers with the token of the request, which alone gets its secret back.
func (a *API) readOwnACLToken(_ *state.View, r *http.Request, _ query) (any, fleet.Index, error) {
	actor := actorOf(r)
	if actor.Workload != nil {
		return nil, 0, fleet.Errorf(fleet.CodeForbidden, "Permission denied: the request has the identity of a workload, which is no ACL token").
			WithHint("skerry acl policy self lists its policies")
	}
	if actor.Token == nil {
		return nil, 0, fleet.Errorf(fleet.CodeForbidden, "Permission denied: the request has no token").
			WithHint("give its secret in the header X-Nomad-Token; commands take it from SKERRY_TOKEN or a context")
	}
	own := *actor.Token
	own.SecretID = requestSecret(r)
	return own, own.ModifyIndex, nil
}

// readACLToken answers with a token, without its secret.
func (a *API) readACLToken(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	accessor := r.PathValue("name")
	if actorOf(r).Token != nil && actorOf(r).Accessor == accessor {
		return a.readOwnACLToken(v, r, q)
	}
	if err := requireManagement(r); err != nil {
		return nil, 0, err
	}
	t, ok := v.ACLToken(accessor)
	if !ok {
		return nil, v.TableIndex("acl_tokens"), fleet.Errorf(fleet.CodeNotFound, "ACL token %q not found", accessor)
	}
	return v.ACLTokenShown(t), t.ModifyIndex, nil
}

// createACLToken makes a token. Its secret is in the answer alone.
func (a *API) createACLToken(r *http.Request, req api.ACLTokenRequest) (any, fleet.Index, error) {
	if req.AccessorID != "" || req.SecretID != "" {
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "create ACL token %q: the hub draws its accessor and its secret", req.Name).
			WithHint("to store one that exists, put it to /v1/acl/token/ACCESSOR")
	}
	req.AccessorID, req.SecretID = a.cfg.NewID(), fleet.NewUUID(nil)
	return a.storeNewACLToken(r, req)
}

// changeACLToken changes a token. One that is not known yet is stored with the accessor and the secret of the request.
func (a *API) changeACLToken(r *http.Request, req api.ACLTokenRequest) (any, fleet.Index, error) {
	accessor := r.PathValue("name")
	if req.AccessorID != "" && req.AccessorID != accessor {
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "change ACL token %q: the path names %q", req.AccessorID, accessor)
	}
	req.AccessorID = accessor
	if err := a.cfg.Cluster.CatchUp(r.Context()); err != nil {
		return nil, 0, err
	}
	old, known := a.cfg.State.View().ACLToken(accessor)
	if !known {
		if req.SecretID == "" {
			return nil, 0, fleet.Errorf(fleet.CodeNotFound, "ACL token %q not found", accessor)
		}
		return a.storeNewACLToken(r, req)
	}
	invalid := func(format string, args ...any) error {
		return fleet.Errorf(fleet.CodeInvalid, "change ACL token "+accessor+": "+format, args...)
	}
	ttl, err := tokenTTL(req.ExpirationTTL)
	switch {
	case err != nil:
		return nil, 0, err
	case req.SecretID != "" && !bytes.Equal(access.HashSecret(req.SecretID), old.Hash):
		return nil, 0, invalid("its secret cannot be changed")
	case req.Global != old.Global:
		return nil, 0, invalid("Global cannot be changed")
	case ttl != 0 || req.ExpirationTime != nil && (old.ExpirationTime == nil || !req.ExpirationTime.Equal(*old.ExpirationTime)):
		return nil, 0, invalid("the time when it ends cannot be changed")
	}
	if req.Roles, err = a.resolveRoles(req.Name, req.Roles); err != nil {
		return nil, 0, err
	}
	if err := acl.CheckToken(&req.ACLToken); err != nil {
		return nil, 0, err
	}
	next := state.ACLTokenRecord{ACLToken: req.ACLToken}
	next.SecretID = ""
	res, err := a.commitCommand(r.Context(), state.ACLTokenStore{Token: next})
	if err != nil {
		return nil, res.Index, err
	}
	v := a.cfg.State.View()
	if stored, ok := v.ACLToken(accessor); ok {
		return v.ACLTokenShown(stored), res.Index, nil
	}
	return next.ACLToken, res.Index, nil // another request has deleted it already
}

// storeNewACLToken stores a token with its accessor and secret.
func (a *API) storeNewACLToken(r *http.Request, req api.ACLTokenRequest) (any, fleet.Index, error) {
	token, now := req.ACLToken, a.cfg.Now().UTC()
	token.CreateTime = now
	if !acl.IsUUID(token.AccessorID) || !acl.IsUUID(token.SecretID) {
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "store ACL token %q: its accessor or its secret is not a UUID", token.Name)
	}
	ttl, err := tokenTTL(req.ExpirationTTL)
	switch {
	case err != nil:
		return nil, 0, err
	case ttl != 0 && token.ExpirationTime != nil:
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "store ACL token %q: it has both a time when it ends and a time to live", token.Name)
	case token.ExpirationTime != nil:
		ttl = token.ExpirationTime.Sub(now)
	}
	if ttl != 0 {
		if err := acl.CheckTokenTTL(ttl); err != nil {
			return nil, 0, err
		}
		end := now.Add(ttl)
		token.ExpirationTime = &end
	}
	if err := a.cfg.Cluster.CatchUp(r.Context()); err != nil {
		return nil, 0, err
	}
	if token.Roles, err = a.resolveRoles(token.Name, token.Roles); err != nil {
		return nil, 0, err
	}
	if err := acl.CheckToken(&token); err != nil {
		return nil, 0, err
	}
	res, err := a.commitCommand(r.Context(), state.ACLTokenStore{Token: tokenRecord(token)})
	if err != nil {
		return nil, res.Index, err
	}
	token.CreateIndex, token.ModifyIndex = res.Index, res.Index
	return token, res.Index, nil
}

// tokenTTL reads a time to live: text such as "8h", or nanoseconds. 0: none.
func tokenTTL(raw json.RawMessage) (time.Duration, error) {
	if len(raw) == 0 || string(raw) == "null" || string(raw) == `""` {
		return 0, nil
	}
	var nanoseconds int64
	if json.Unmarshal(raw, &nanoseconds) == nil {
		return time.Duration(nanoseconds), nil
	}
	var text string
	err := json.Unmarshal(raw, &text)
	if err == nil {
		var ttl time.Duration
		if ttl, err = time.ParseDuration(text); err == nil {
			return ttl, nil
		}
	}
	return 0, fleet.Errorf(fleet.CodeInvalid, "store ACL token: ExpirationTTL is not a duration such as \"8h\": %v", err)
}

// resolveRoles returns the links to the roles that a request names by id or by name.
func (a *API) resolveRoles(token string, links []fleet.ACLTokenRole) ([]fleet.ACLTokenRole, error) {
	var out []fleet.ACLTokenRole
	v := a.cfg.State.View()
	for _, link := range links {
		role, ok := v.ACLRole(link.ID)
		if link.ID == "" {
			role, ok = v.ACLRoleByName(link.Name)
		}
		if !ok {
			return nil, fleet.Errorf(fleet.CodeInvalid, "store ACL token %q: there is no role %q", token, link.ID+link.Name)
		}
		out = append(out, fleet.ACLTokenRole{ID: role.ID, Name: role.Name})
	}
	return out, nil
}

// makeOneTimeToken makes a secret that can be exchanged once for the request's own token.
func (a *API) makeOneTimeToken(r *http.Request, _ struct{}) (any, fleet.Index, error) {
	actor := actorOf(r)
	if actor.Token == nil {
		return nil, 0, fleet.Errorf(fleet.CodeForbidden, "Permission denied: the request has no token that a one-time token could stand for")
	}
	secret := fleet.NewUUID(nil)
	made := state.OneTimeToken{Hash: access.HashSecret(secret), AccessorID: actor.Accessor, ExpiresAt: a.cfg.Now().UTC().Add(oneTimeTTL)}
	var err error
	if made.Secret, err = access.SealSecret(secret, requestSecret(r)); err != nil {
		return nil, 0, err
	}
	return commitAnswer(a, r, state.ACLOneTimeStore{Token: made}, func(res state.Result) api.OneTimeTokenAnswer {
		return api.OneTimeTokenAnswer{OneTimeToken: api.OneTimeToken{
			OneTimeSecretID: secret, AccessorID: actor.Accessor, ExpiresAt: made.ExpiresAt, CreateIndex: res.Index, ModifyIndex: res.Index,
		}}
	})
}

// exchangeOneTimeToken answers with the token that a one-time token stands for, and its secret.
func (a *API) exchangeOneTimeToken(r *http.Request, req api.OneTimeTokenExchange) (any, fleet.Index, error) {
	if err := a.cfg.Cluster.CatchUp(r.Context()); err != nil {
		return nil, 0, err
	}
	hash := access.HashSecret(req.OneTimeSecretID)
	made, known := a.cfg.State.View().OneTimeToken(hash)
	if !known { // everybody may ask: what is refused anyway must not fill the log
		return nil, 0, fleet.Errorf(fleet.CodeForbidden, "exchange a one-time token: it is unknown, was used or has ended")
	}
	res, err := a.commitCommand(r.Context(), state.ACLOneTimeUse{Hash: hash, Now: a.cfg.Now().UTC()})
	if err != nil {
		return nil, res.Index, err
	}
	v := a.cfg.State.View()
	stored, ok := v.ACLToken(made.AccessorID)
	if !ok {
		return nil, res.Index, fleet.Errorf(fleet.CodeForbidden, "exchange a one-time token: its token was deleted")
	}
	token := v.ACLTokenShown(stored)
	if token.SecretID, err = access.OpenSecret(req.OneTimeSecretID, made.Secret); err != nil {
		return nil, res.Index, err
	}
	return api.ACLTokenAnswer{Token: token}, res.Index, nil
}
