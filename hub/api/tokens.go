package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"time"

	"skerry/api"
	"skerry/fleet"
	"skerry/fleet/acl"
	"skerry/fleet/admission"
	"skerry/hub/state"
	"skerry/syncproto/identity"
)

func (a *API) tokenEndpoints() []endpoint {
	return []endpoint{
		{"GET", "/v1/join/tokens", onOperator("read"), a.readHandler(a.listTokens)},
		{writes, "/v1/join/tokens", onOperator("write"), writeBody(a, a.createToken)},
		{"GET", "/v1/join/token/{id}", onOperator("read"), readObject(a, "tokens", needToken, a.readToken)},
		{"DELETE", "/v1/join/token/{id}", onOperator("write"), a.writeHandler(a.revokeToken)},
	}
}

// Bounds of a join token.
const (
	maxTokenText = 256 // bytes of its description, and of its site
	maxTokenTTL  = 10 * 365 * 24 * time.Hour
)

// tokenOf returns a join token as the API shows it, without its secret.
func tokenOf(t *state.JoinToken) api.JoinToken {
	out := api.JoinToken{
		ID: t.ID, Roles: t.Roles, Description: t.Description, NodePool: t.NodePool, Site: t.Site,
		MaxUses: t.MaxUses, Uses: t.Uses, AllowedKeys: len(t.AllowKeys) / sha256.Size, CreatedAt: time.Unix(0, t.CreatedAt).UTC(),
	}
	if t.ExpiresAt != 0 {
		end := time.Unix(0, t.ExpiresAt).UTC()
		out.ExpiresAt = &end
	}
	return out
}

// listTokens lists the join tokens by id, also expired and used ones.
func (a *API) listTokens(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	id := func(t *state.JoinToken) string { return t.ID }
	answer, err := page(r, filterByPrefix(q, v.Tokens(), id), id, tokenOf)
	return answer, v.TableIndex("tokens"), err
}

// readToken answers with a join token and the hubs and edges that it admitted.
func (a *API) readToken(v *state.View, _ *http.Request, _ query, t *state.JoinToken) (any, fleet.Index, error) {
	answer := tokenOf(t)
	for _, admitted := range v.AdmittedBy(t.ID) {
		answer.Admitted = append(answer.Admitted, admitted.Subject)
	}
	return answer, v.TableIndex("tokens"), nil
}

// needToken returns the join token whose id is in the request's path. CodeNotFound: the state does not have it.
func needToken(v *state.View, r *http.Request) (*state.JoinToken, error) {
	id := r.PathValue("id")
	t, ok := v.Token(id)
	if !ok {
		return nil, fleet.Errorf(fleet.CodeNotFound, "join token %q not found", id)
	}
	return t, nil
}

// createToken creates a join token. Its secret is in the answer alone: the state has only its hash.
func (a *API) createToken(r *http.Request, req api.CreateTokenRequest) (any, fleet.Index, error) {
	// A machine with a hub's certificate is trusted with the whole state.
	if g := grantOf(r); req.Role == fleet.RoleHub && !g.rules.IsManagement() {
		return nil, 0, refusal(g.rules, acl.Requirement{Kind: acl.KindManagement})
	}
	now := a.cfg.Now()
	kept, err := newJoinToken(req, now)
	if err != nil {
		return nil, 0, err
	}
	if err := a.cfg.Cluster.CatchUp(r.Context()); err != nil {
		return nil, 0, err
	}
	cas := a.cfg.State.View().CAs()
	if len(cas) == 0 {
		return nil, 0, fleet.Errorf(fleet.CodeUnavailable, "create a join token: this hub does not know its cluster yet")
	}
	token := identity.NewToken(cas[cas.Signing()].Cert)
	kept.ID, kept.Hash = token.ID, identity.HashSecret(token.Secret)
	res, err := a.commitCommand(r.Context(), state.Token{Token: kept})
	if err != nil {
		return nil, res.Index, err
	}
	a.cfg.Log.Info("join token made", "token", kept.ID, "role", req.Role, "node_pool", kept.NodePool, "site", kept.Site)
	return api.CreatedToken{JoinToken: tokenOf(&kept), Token: token.String(), Index: res.Index}, res.Index, nil
}

// newJoinToken checks a request for a join token, and returns the token for the state, without id and hash.
func newJoinToken(req api.CreateTokenRequest, now time.Time) (state.JoinToken, error) {
	invalid := func(format string, args ...any) error {
		return fleet.Errorf(fleet.CodeInvalid, "create a join token: "+format, args...)
	}
	kept := state.JoinToken{
		Roles: []string{req.Role}, Description: req.Description, NodePool: req.NodePool, Site: req.Site, MaxUses: req.MaxUses, CreatedAt: now.UnixNano(),
	}
	switch {
	case !slices.Contains([]string{fleet.RoleHub, fleet.RoleEdge}, req.Role):
		return kept, invalid("the role %q is neither %q nor %q", req.Role, fleet.RoleEdge, fleet.RoleHub)
	case req.Role == fleet.RoleHub && (req.NodePool != "" || req.Site != ""):
		return kept, invalid("a hub is in no node pool and at no site")
	case len(req.Description) > maxTokenText || len(req.Site) > maxTokenText:
		return kept, invalid("its description and its site have at most %d bytes", maxTokenText)
	}
	if req.NodePool != "" {
		if err := admission.CheckPool((&fleet.Pool{Name: req.NodePool})); err != nil && req.NodePool != fleet.DefaultPool {
			return kept, invalid("%v", err)
		}
	}
	var err error
	if kept.AllowKeys, err = parseAllowKeys(req); err != nil {
		return kept, err
	}
	if req.TTL == "" {
		return kept, nil
	}
	ttl, err := time.ParseDuration(req.TTL)
	if err != nil || ttl <= 0 || ttl > maxTokenTTL {
		return kept, invalid("it cannot end after %q: write it like 24h, at most %s", req.TTL, maxTokenTTL)
	}
	kept.ExpiresAt = now.Add(ttl).UnixNano()
	return kept, nil
}

// parseAllowKeys returns the list of the keys that a token admits, as the state has it.
func parseAllowKeys(req api.CreateTokenRequest) ([]byte, error) {
	switch {
	case len(req.AllowKeys) == 0:
		return nil, nil
	case req.Role != fleet.RoleEdge:
		return nil, fleet.Errorf(fleet.CodeInvalid, "create a join token: only a token with the role edge has a list of keys")
	case len(req.AllowKeys) > state.MaxAllowKeys:
		return nil, fleet.Errorf(fleet.CodeInvalid, "create a join token: its list has %d keys, more than %d", len(req.AllowKeys), state.MaxAllowKeys).
			WithHint("divide the list, and make a token for each part")
	}
	keys := make([][]byte, len(req.AllowKeys))
	for i, text := range req.AllowKeys {
		key, err := hex.DecodeString(text)
		if err != nil || len(key) != sha256.Size {
			return nil, fleet.Errorf(fleet.CodeInvalid, "create a join token: key %d of its list, %.80q, is not a SHA-256 hash of 64 hexadecimal digits", i+1, text).
				WithHint("skerry-edge key shows the hash of a device's key")
		}
		keys[i] = key
	}
	slices.SortFunc(keys, bytes.Compare)
	return bytes.Join(slices.CompactFunc(keys, bytes.Equal), nil), nil
}

// revokeToken removes a join token. The machines that it admitted stay.
func (a *API) revokeToken(r *http.Request) (any, fleet.Index, error) {
	if err := a.cfg.Cluster.CatchUp(r.Context()); err != nil {
		return nil, 0, err
	}
	t, err := needToken(a.cfg.State.View(), r)
	if err != nil {
		return nil, 0, err
	}
	res, err := a.commitCommand(r.Context(), state.Token{Token: state.JoinToken{ID: t.ID}})
	if err == nil {
		a.cfg.Log.Info("join token revoked", "token", t.ID)
	}
	return api.IndexAnswer{Index: res.Index}, res.Index, err
}
