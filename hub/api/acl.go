package api

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	"skerry/api"
	"skerry/fleet"
	"skerry/fleet/acl"
	"skerry/hub/access"
	"skerry/hub/state"
)

// The endpoints that a token may read its own objects from filter what they answer with by the request's actor.
func (a *API) aclEndpoints() []endpoint {
	return []endpoint{
		{writes, "/v1/acl/bootstrap", public, writeOptionalBody(a, a.bootstrapACL)},
		{"", "/v1/acl/identity/", public, a.refuseNodeIdentity()},
		{"", "/v1/client/identity", public, a.refuseNodeIdentity()},
		{"", "/v1/client/identity/", public, a.refuseNodeIdentity()},
		{"GET", "/v1/acl/why", ownToken, a.aclRead(a.explainACL)},

		{"GET", "/v1/acl/policies", ownToken, a.aclRead(a.listACLPolicies)},
		{"GET", "/v1/acl/policy/self", ownToken, a.aclRead(a.listOwnACLPolicies)},
		{"GET", "/v1/acl/policy/{name}", ownToken, a.aclRead(a.readACLPolicy)},
		{writes, "/v1/acl/policy/{name}", managementOnly, aclWrite(a, a.storeACLPolicy)},
		{"DELETE", "/v1/acl/policy/{name}", managementOnly, a.aclDelete(func(name string) state.Command { return state.ACLDelete{Policies: []string{name}} })},

		{"GET", "/v1/acl/tokens", managementOnly, a.aclRead(a.listACLTokens)},
		{"GET", "/v1/acl/token/self", ownToken, a.aclRead(a.readOwnACLToken)},
		{"GET", "/v1/acl/token/{name}", ownToken, a.aclRead(a.readACLToken)},
		{writes, "/v1/acl/token", managementOnly, aclWrite(a, a.createACLToken)},
		{writes, "/v1/acl/token/{name}", managementOnly, aclWrite(a, a.changeACLToken)},
		{"DELETE", "/v1/acl/token/{name}", managementOnly, a.aclDelete(func(accessor string) state.Command { return state.ACLDelete{Tokens: []string{accessor}} })},
		{writes, "/v1/acl/token/onetime", ownToken, a.whenEnabled(writeOptionalBody(a, a.makeOneTimeToken))},
		{writes, "/v1/acl/token/onetime/exchange", public, aclWrite(a, a.exchangeOneTimeToken)},

		{"GET", "/v1/acl/roles", ownToken, a.aclRead(a.listACLRoles)},
		{"GET", "/v1/acl/role/{name}", ownToken, a.aclRead(a.readACLRole)},
		{"GET", "/v1/acl/role/name/{name}", ownToken, a.aclRead(a.readACLRole)},
		{writes, "/v1/acl/role", managementOnly, aclWrite(a, a.storeACLRole)},
		{writes, "/v1/acl/role/{name}", managementOnly, aclWrite(a, a.storeACLRole)},
		{"DELETE", "/v1/acl/role/{name}", managementOnly, a.aclDelete(func(id string) state.Command { return state.ACLDelete{Roles: []string{id}} })},
	}
}

// refuseNodeIdentity refuses what concerns identity and introduction tokens of nodes.
func (a *API) refuseNodeIdentity() http.HandlerFunc {
	return a.refuseUnsupported("nodes have certificates, and no identity or introduction tokens", "let a node join with: skerry token create")
}

// whenEnabled refuses requests while access control is off.
func (a *API) whenEnabled(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !a.accessEnabled() {
			a.writeError(w, fleet.Errorf(fleet.CodeInvalid, "ACL support disabled").
				WithHint("skerry acl bootstrap turns access control on, for the whole cluster"))
			return
		}
		serve(w, r)
	}
}

func (a *API) aclRead(f readFunc) http.HandlerFunc { return a.whenEnabled(a.readHandler(f)) }

func aclWrite[T any](a *API, f func(r *http.Request, req T) (any, fleet.Index, error)) http.HandlerFunc {
	return a.whenEnabled(writeBody(a, f))
}

// aclDelete serves the deletion of the object that the path names.
func (a *API) aclDelete(command func(name string) state.Command) http.HandlerFunc {
	return a.whenEnabled(a.writeHandler(func(r *http.Request) (any, fleet.Index, error) {
		return commitAnswer(a, r, command(r.PathValue("name")), indexAnswer)
	}))
}

// bootstrapACL makes the first management token, which turns access control on.
func (a *API) bootstrapACL(r *http.Request, req api.ACLBootstrapRequest) (any, fleet.Index, error) {
	if a.cfg.Access == nil {
		return nil, 0, fleet.Errorf(fleet.CodeUnsupported, "bootstrap access control: this hub has none")
	}
	token := fleet.ACLToken{
		AccessorID: a.cfg.NewID(), SecretID: req.BootstrapSecret, Name: "Bootstrap Token", Type: fleet.ACLTokenManagement, Global: true,
		CreateTime: a.cfg.Now().UTC(),
	}
	switch {
	case token.SecretID == "":
		token.SecretID = fleet.NewUUID(nil)
	case !acl.IsUUID(token.SecretID):
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "bootstrap access control: the secret is not a UUID")
	}
	reset, err := a.readACLReset()
	if err == nil {
		err = a.cfg.Cluster.CatchUp(r.Context())
	}
	if err != nil {
		return nil, 0, err
	}
	// Everybody may ask: what is refused anyway must not fill the log.
	if done, ok := a.cfg.State.View().ACLBootstrap(); ok && done != reset {
		return nil, 0, state.ErrBootstrapped(done)
	}
	res, err := a.commitCommand(r.Context(), state.ACLBootstrap{Token: tokenRecord(token), Reset: reset})
	if err != nil {
		return nil, res.Index, err
	}
	if reset != 0 {
		if err := os.Remove(a.cfg.ACLResetFile); err != nil {
			a.cfg.Log.Warn("file of the ACL bootstrap's reset not removed", "path", a.cfg.ACLResetFile, "error", err)
		}
	}
	a.cfg.Log.Info("access control bootstrapped", "accessor", token.AccessorID)
	token.CreateIndex, token.ModifyIndex = res.Index, res.Index
	return token, res.Index, nil
}

// maxResetFile is the size of the file with a reset index.
const maxResetFile = 64

// readACLReset returns the index in the reset file; 0: there is no such file.
func (a *API) readACLReset() (fleet.Index, error) {
	if a.cfg.ACLResetFile == "" {
		return 0, nil
	}
	file, err := os.ReadFile(a.cfg.ACLResetFile)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err == nil && len(file) > maxResetFile {
		err = fmt.Errorf("it has %d bytes", len(file))
	}
	index, parsed := uint64(0), error(nil)
	if err == nil {
		index, parsed = strconv.ParseUint(strings.TrimSpace(string(file)), 10, 64)
	}
	if err = errors.Join(err, parsed); err != nil {
		return 0, fleet.Errorf(fleet.CodeInvalid, "read the reset index in %s: %w", a.cfg.ACLResetFile, err).WithHint("write the number alone into it")
	}
	return fleet.Index(index), nil
}

// tokenRecord returns a token as the state keeps it.
func tokenRecord(t fleet.ACLToken) state.ACLTokenRecord {
	hash := access.HashSecret(t.SecretID)
	t.SecretID = ""
	return state.ACLTokenRecord{ACLToken: t, Hash: hash}
}

// explainACL answers why a token may do something or not: management asks about each, others about their own.
func (a *API) explainACL(v *state.View, r *http.Request, _ query) (any, fleet.Index, error) {
	p := r.URL.Query()
	actor := actorOf(r)
	if accessor := p.Get("accessor"); accessor != actor.Accessor {
		if err := requireManagement(r); err != nil {
			return nil, 0, err
		}
		var ok bool
		if actor, ok = a.cfg.Access.ActorOf(v, accessor); !ok {
			return nil, 0, fleet.Errorf(fleet.CodeNotFound, "ACL token %q not found", accessor).WithHint("name it by its accessor, which is no secret")
		}
	}
	needs := acl.Requirement{Kind: acl.Kind(p.Get("kind")), Name: p.Get("name"), Path: p.Get("path"), Capability: acl.Capability(p.Get("capability"))}
	if err := needs.Check(); err != nil {
		return nil, 0, err
	}
	return api.ACLWhy{
		AccessorID: actor.Accessor, Policies: actor.Policies, Needs: needs.String(), Grant: needs.Rule(), Explanation: actor.ACL.Explain(needs),
	}, max(v.TableIndex("acl_tokens"), v.TableIndex("acl_policies"), v.TableIndex("acl_roles")), nil
}

// mayReadACL tells whether a request may read an object that its own token has, or that anybody has with a management
// token.
func mayReadACL(r *http.Request, own []string, name string) bool {
	return actorOf(r).ACL.IsManagement() || slices.Contains(own, name)
}
