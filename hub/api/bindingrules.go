package api

import (
	"cmp"
	"net/http"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/login"
	"skerry/hub/state"
)

func (a *API) bindingRuleEndpoints() []endpoint {
	return []endpoint{
		{"GET", "/v1/acl/binding-rules", managementOnly, a.aclRead(a.listBindingRules)},
		{"GET", "/v1/acl/binding-rule/{name}", managementOnly, a.aclRead(a.readBindingRule)},
		{writes, "/v1/acl/binding-rule", managementOnly, aclWrite(a, a.storeBindingRule)},
		{writes, "/v1/acl/binding-rule/{name}", managementOnly, aclWrite(a, a.storeBindingRule)},
		{"DELETE", "/v1/acl/binding-rule/{name}", managementOnly, a.aclDelete(func(id string) state.Command { return state.ACLAuthDelete{Rules: []string{id}} })},
	}
}

// listBindingRules lists the binding rules by id.
func (a *API) listBindingRules(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	id := func(rule *fleet.ACLBindingRule) string { return rule.ID }
	answer, err := page(r, filterByPrefix(q, v.ACLBindingRules(), id), id, func(rule *fleet.ACLBindingRule) api.ACLBindingRuleStub {
		return api.ACLBindingRuleStub{ID: rule.ID, Description: rule.Description, AuthMethod: rule.AuthMethod, CreateIndex: rule.CreateIndex, ModifyIndex: rule.ModifyIndex}
	})
	return answer, v.TableIndex("acl_binding_rules"), err
}

// readBindingRule answers with a binding rule.
func (a *API) readBindingRule(v *state.View, r *http.Request, _ query) (any, fleet.Index, error) {
	rule, ok := v.ACLBindingRule(r.PathValue("name"))
	if !ok {
		return nil, v.TableIndex("acl_binding_rules"), fleet.Errorf(fleet.CodeNotFound, "ACL binding rule %q not found", r.PathValue("name"))
	}
	return rule, rule.ModifyIndex, nil
}

// storeBindingRule creates a binding rule, or replaces the one whose id is in the path: of that one it keeps the auth
// method, the bind type and the bind name if the request leaves them out.
func (a *API) storeBindingRule(r *http.Request, rule fleet.ACLBindingRule) (any, fleet.Index, error) {
	id := r.PathValue("name")
	switch {
	case id == "" && rule.ID != "":
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "create ACL binding rule: the hub draws its id")
	case rule.ID != "" && rule.ID != id:
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "store ACL binding rule %q: the path names %q", rule.ID, id)
	}
	if err := a.cfg.Cluster.CatchUp(r.Context()); err != nil {
		return nil, 0, err
	}
	if rule.ID = id; id == "" {
		rule.ID = a.cfg.NewID()
	} else {
		old, ok := a.cfg.State.View().ACLBindingRule(id)
		if !ok {
			return nil, 0, fleet.Errorf(fleet.CodeNotFound, "ACL binding rule %q not found", id)
		}
		rule.AuthMethod, rule.BindType = cmp.Or(rule.AuthMethod, old.AuthMethod), cmp.Or(rule.BindType, old.BindType)
		if rule.BindType != fleet.ACLBindManagement {
			rule.BindName = cmp.Or(rule.BindName, old.BindName)
		}
	}
	if err := login.CheckRule(&rule); err != nil {
		return nil, 0, err
	}
	rule.ModifyTime = a.cfg.Now().UTC()
	rule.CreateTime = rule.ModifyTime
	res, err := a.commitCommand(r.Context(), state.ACLBindingRuleStore{Rule: rule})
	if err != nil {
		return nil, res.Index, err
	}
	if stored, ok := a.cfg.State.View().ACLBindingRule(rule.ID); ok {
		return stored, res.Index, nil
	}
	return rule, res.Index, nil // another request has deleted it already
}
