package api

import (
	"cmp"
	"net/http"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/login"
	"skerry/hub/state"
)

// authMethodEndpoints serve auth methods. Who logs in needs their names, so everybody may list them.
func (a *API) authMethodEndpoints() []endpoint {
	return []endpoint{
		{"GET", "/v1/acl/auth-methods", public, a.aclRead(a.listAuthMethods)},
		{"GET", "/v1/acl/auth-method/{name}", managementOnly, a.aclRead(a.readAuthMethod)},
		{writes, "/v1/acl/auth-method", managementOnly, aclWrite(a, a.storeAuthMethod)},
		{writes, "/v1/acl/auth-method/{name}", managementOnly, aclWrite(a, a.storeAuthMethod)},
		{"DELETE", "/v1/acl/auth-method/{name}", managementOnly, a.aclDelete(func(name string) state.Command { return state.ACLAuthDelete{Methods: []string{name}} })},
	}
}

// listAuthMethods lists the auth methods by name. Filters see no more than the answer has.
func (a *API) listAuthMethods(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	p, err := parsePages(r)
	if err != nil {
		return nil, 0, err
	}
	stubs := mapItems(v.ACLAuthMethods(), func(row *state.ACLAuthMethodRecord) api.ACLAuthMethodStub {
		return api.ACLAuthMethodStub{Name: row.Name, Type: row.Type, Default: row.Default, CreateIndex: row.CreateIndex, ModifyIndex: row.ModifyIndex}
	})
	name := func(stub api.ACLAuthMethodStub) string { return stub.Name }
	answer, err := cutPage(p, filterByPrefix(q, stubs, name), name, unchangedItem[api.ACLAuthMethodStub])
	return answer, v.TableIndex("acl_auth_methods"), err
}

// readAuthMethod answers with an auth method, without its client secret.
func (a *API) readAuthMethod(v *state.View, r *http.Request, _ query) (any, fleet.Index, error) {
	row, ok := v.ACLAuthMethod(r.PathValue("name"))
	if !ok {
		return nil, v.TableIndex("acl_auth_methods"), fleet.Errorf(fleet.CodeNotFound, "ACL auth method %q not found", r.PathValue("name"))
	}
	return row.ShownMethod(), row.ModifyIndex, nil
}

// storeAuthMethod creates an auth method, or changes the one of that name: the parts that must be there and that the
// request leaves out stay.
func (a *API) storeAuthMethod(r *http.Request, req api.ACLAuthMethodRequest) (any, fleet.Index, error) {
	method := req.ACLAuthMethod
	if req.Config != nil {
		if len(req.Config.OIDCClientAssertion) > 0 && saysSomething(req.Config.OIDCClientAssertion) {
			return nil, 0, fleet.Errorf(fleet.CodeUnsupported, "store ACL auth method %q: OIDCClientAssertion is not supported", method.Name).
				WithHint("use OIDCClientSecret, or a public client with OIDCEnablePKCE")
		}
		method.Config = &req.Config.ACLAuthMethodConfig
	}
	if inPath := r.PathValue("name"); inPath != "" && method.Name != inPath {
		if method.Name != "" {
			return nil, 0, fleet.Errorf(fleet.CodeInvalid, "store ACL auth method %q: the path names %q", method.Name, inPath)
		}
		method.Name = inPath
	}
	if a.cfg.Logins == nil {
		return nil, 0, errNoLogins
	}
	if err := a.cfg.Cluster.CatchUp(r.Context()); err != nil {
		return nil, 0, err
	}
	old, known := a.cfg.State.View().ACLAuthMethod(method.Name)
	if known {
		method = mergeAuthMethod(method, old.ShownMethod())
	}
	if err := login.CheckMethod(&method); err != nil {
		return nil, 0, err
	}
	row, err := a.sealAuthMethod(method, old)
	if err != nil {
		return nil, 0, err
	}
	row.ModifyTime = a.cfg.Now().UTC()
	row.CreateTime = row.ModifyTime
	res, err := a.commitCommand(r.Context(), state.ACLAuthMethodStore{Method: row})
	if err != nil {
		return nil, res.Index, err
	}
	if stored, ok := a.cfg.State.View().ACLAuthMethod(method.Name); ok {
		return stored.ShownMethod(), res.Index, nil
	}
	return row.ShownMethod(), res.Index, nil // another request has deleted it already
}

// mergeAuthMethod returns a changed auth method with the parts of the old one that it leaves out.
func mergeAuthMethod(method, old fleet.ACLAuthMethod) fleet.ACLAuthMethod {
	method.Type = cmp.Or(method.Type, old.Type)
	method.TokenLocality = cmp.Or(method.TokenLocality, old.TokenLocality)
	method.TokenNameFormat = cmp.Or(method.TokenNameFormat, old.TokenNameFormat)
	method.MaxTokenTTL = cmp.Or(method.MaxTokenTTL, old.MaxTokenTTL)
	method.Config = cmp.Or(method.Config, old.Config)
	return method
}

// sealAuthMethod returns the record of an auth method. fleet.RedactedSecret stands for the secret of the old one.
func (a *API) sealAuthMethod(method fleet.ACLAuthMethod, old *state.ACLAuthMethodRecord) (state.ACLAuthMethodRecord, error) {
	if method.Config.OIDCClientSecret != fleet.RedactedSecret {
		return a.cfg.Logins.SealClientSecret(method)
	}
	if old == nil || len(old.Secret.Data) == 0 {
		return state.ACLAuthMethodRecord{}, fleet.Errorf(fleet.CodeInvalid, "store ACL auth method %q: OIDCClientSecret is %q, which stands for the one that the hubs have: they have none",
			method.Name, fleet.RedactedSecret)
	}
	config := *method.Config
	config.OIDCClientSecret = ""
	method.Config = &config
	return state.ACLAuthMethodRecord{ACLAuthMethod: method, Secret: old.Secret}, nil
}
