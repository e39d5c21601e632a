package api

import (
	"iter"
	"net/http"

	"skerry/api"
	"skerry/fleet"
	"skerry/fleet/aclpolicy"
	"skerry/hub/state"
)

func policyName(p *fleet.ACLPolicy) string { return p.Name }

// filterOwn yields the items that a request may read.
func filterOwn[T any](r *http.Request, own []string, items iter.Seq[T], name func(T) string) iter.Seq[T] {
	return func(yield func(T) bool) {
		for item := range items {
			if mayReadACL(r, own, name(item)) && !yield(item) {
				return
			}
		}
	}
}

// listACLPolicies lists the policies by name: all for a management token, those of its own for another.
func (a *API) listACLPolicies(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	items := filterOwn(r, actorOf(r).Policies, filterByPrefix(q, v.ACLPolicies(), policyName), policyName)
	answer, err := page(r, items, policyName, policyStub)
	return answer, v.TableIndex("acl_policies"), err
}

func policyStub(p *fleet.ACLPolicy) api.ACLPolicyStub {
	return api.ACLPolicyStub{Name: p.Name, Description: p.Description, JobACL: p.JobACL, CreateIndex: p.CreateIndex, ModifyIndex: p.ModifyIndex}
}

// listOwnACLPolicies lists the policies that the request's token has, itself or by its roles.
func (a *API) listOwnACLPolicies(v *state.View, r *http.Request, _ query) (any, fleet.Index, error) {
	answer := []api.ACLPolicyStub{}
	for _, name := range actorOf(r).Policies {
		if p, ok := v.ACLPolicy(name); ok {
			answer = append(answer, policyStub(p))
		}
	}
	return answer, v.TableIndex("acl_policies"), nil
}

// readACLPolicy answers with a policy and its rules.
func (a *API) readACLPolicy(v *state.View, r *http.Request, _ query) (any, fleet.Index, error) {
	name := r.PathValue("name")
	if !mayReadACL(r, actorOf(r).Policies, name) {
		return nil, 0, requireManagement(r)
	}
	p, ok := v.ACLPolicy(name)
	if !ok {
		return nil, v.TableIndex("acl_policies"), fleet.Errorf(fleet.CodeNotFound, "ACL policy %q not found", name)
	}
	return p, p.ModifyIndex, nil
}

// storeACLPolicy creates a policy, or replaces the one of that name.
func (a *API) storeACLPolicy(r *http.Request, p fleet.ACLPolicy) (any, fleet.Index, error) {
	name := r.PathValue("name")
	if p.Name != "" && p.Name != name {
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "store ACL policy %q: the path names %q", p.Name, name)
	}
	p.Name = name
	if err := aclpolicy.Check(&p); err != nil {
		return nil, 0, err
	}
	return commitAnswer(a, r, state.ACLPolicyStore{Policy: p}, indexAnswer)
}
