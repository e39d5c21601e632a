package api

import (
	"net/http"
	"strings"

	"skerry/fleet"
	"skerry/fleet/acl"
	"skerry/hub/state"
)

func roleID(r *fleet.ACLRole) string { return r.ID }

// ownRoles returns the ids of the roles of the request's token.
func ownRoles(r *http.Request) []string {
	var ids []string
	if token := actorOf(r).Token; token != nil {
		for _, link := range token.Roles {
			ids = append(ids, link.ID)
		}
	}
	return ids
}

// listACLRoles lists the roles by id: all for a management token, those of its own for another.
func (a *API) listACLRoles(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	items := filterOwn(r, ownRoles(r), filterByPrefix(q, v.ACLRoles(), roleID), roleID)
	answer, err := page(r, items, roleID, unchangedItem[*fleet.ACLRole])
	return answer, v.TableIndex("acl_roles"), err
}

// readACLRole answers with the role of an id, or of a name.
func (a *API) readACLRole(v *state.View, r *http.Request, _ query) (any, fleet.Index, error) {
	name := r.PathValue("name")
	role, ok := v.ACLRole(name)
	if strings.HasPrefix(r.URL.Path, "/v1/acl/role/name/") {
		role, ok = v.ACLRoleByName(name)
	}
	switch {
	case ok && mayReadACL(r, ownRoles(r), role.ID):
		return role, role.ModifyIndex, nil
	case !actorOf(r).ACL.IsManagement():
		return nil, 0, requireManagement(r)
	}
	return nil, v.TableIndex("acl_roles"), fleet.Errorf(fleet.CodeNotFound, "ACL role %q not found", name)
}

// storeACLRole creates a role, or replaces the one whose id is in the path.
func (a *API) storeACLRole(r *http.Request, role fleet.ACLRole) (any, fleet.Index, error) {
	id := r.PathValue("name")
	switch {
	case id == "" && role.ID != "":
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "create ACL role %q: the hub draws its id", role.Name)
	case role.ID != "" && role.ID != id:
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "store ACL role %q: the path names %q", role.ID, id)
	}
	if err := acl.CheckRole(&role); err != nil {
		return nil, 0, err
	}
	if err := a.cfg.Cluster.CatchUp(r.Context()); err != nil {
		return nil, 0, err
	}
	if role.ID = id; id == "" {
		role.ID = a.cfg.NewID()
	} else if _, ok := a.cfg.State.View().ACLRole(id); !ok {
		return nil, 0, fleet.Errorf(fleet.CodeNotFound, "ACL role %q not found", id)
	}
	res, err := a.commitCommand(r.Context(), state.ACLRoleStore{Role: role})
	if err != nil {
		return nil, res.Index, err
	}
	role.CreateIndex, role.ModifyIndex = res.Index, res.Index
	if stored, ok := a.cfg.State.View().ACLRole(role.ID); ok {
		role.CreateIndex = stored.CreateIndex
	}
	return role, res.Index, nil
}
