package api

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/state"
)

// needExposure returns what the edge of a node knows whose id is in the request's path, also of a revoked node that is gone.
// CodeNotFound: the state has neither the node nor its exposure.
func needExposure(v *state.View, r *http.Request) (*state.Exposure, error) {
	id := fleet.NodeID(r.PathValue("id"))
	missing := fleet.Errorf(fleet.CodeNotFound, "node %q not found", id)
	known, ok := v.Exposure(id)
	if !ok {
		return nil, missing
	}
	return known, grantOf(r).checkObject(known, missing)
}

// nodeExposure answers with what an edge knew, so that it can be replaced after a theft: paths and versions, no values.
// Variables and allocations of which the token may not know are left out.
func (a *API) nodeExposure(v *state.View, r *http.Request, _ query, known *state.Exposure) (any, fleet.Index, error) {
	answer := api.NodeExposure{
		NodeID: known.NodeID, Name: known.Name, Variables: []api.ExposedVariable{}, Allocations: []api.ExposedAlloc{}, Identities: []api.ExposedIdentity{},
	}
	if answer.IdentityKey = known.IdentityKey; known.IdentityKey != "" {
		published, _ := v.PublishedIdentityKey(known.NodeID)
		answer.Published = published != ""
	}
	if known.Since != 0 {
		at := time.Unix(0, known.Since).UTC()
		answer.Since = &at
	}
	g := grantOf(r)
	found := map[[2]string]*api.ExposedVariable{}
	for i := range known.Allocs {
		al := &known.Allocs[i]
		if g.allowsItem(al) {
			answer.Allocations = append(answer.Allocations, api.ExposedAlloc{
				ID: al.ID, Namespace: al.Namespace, JobID: al.JobID, TaskGroup: al.TaskGroup, ClientStatus: al.ClientStatus,
			})
			answer.Identities = append(answer.Identities, exposedIdentities(al)...)
		}
		for _, path := range al.Variables {
			if !g.allowsItem(fleet.VariableMeta{Namespace: al.Namespace, Path: path}) {
				continue
			}
			key := [2]string{al.Namespace, path}
			if found[key] == nil {
				found[key] = exposedVariable(v, al.Namespace, path, known.Since)
			}
			found[key].Allocations = append(found[key].Allocations, al.ID)
		}
	}
	for _, one := range found {
		answer.Variables = append(answer.Variables, *one)
	}
	slices.SortFunc(answer.Variables, func(x, y api.ExposedVariable) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Path, y.Path))
	})
	if actorOf(r).ACL.IsManagement() {
		for c := range v.SiteCodes() {
			if c.IsValid(a.cfg.Now()) && c.IsFor(known.Site, known.NodePool) && (answer.Since == nil || c.CreateTime.Before(*answer.Since)) {
				answer.SiteCodes = append(answer.SiteCodes, c.SiteCode)
			}
		}
	}
	return answer, max(v.TableIndex("site_codes"), v.TableIndex("variables"), v.TableIndex("allocs"), known.ModifyIndex, 1), nil
}

// exposedVariable returns what became of a variable that an edge may have had at a time (UnixNano; 0: it is connected).
func exposedVariable(v *state.View, namespace, path string, since int64) *api.ExposedVariable {
	row, stored := v.Variable(namespace, path)
	if !stored {
		return &api.ExposedVariable{Namespace: namespace, Path: path, Deleted: true}
	}
	return &api.ExposedVariable{
		Namespace: namespace, Path: path, ModifyIndex: row.ModifyIndex, ModifyTime: time.Unix(0, row.ModifyTime).UTC(),
		Changed: since != 0 && row.ModifyTime > since,
	}
}

// exposedIdentities lists the identities of an allocation's tasks of which its edge has tokens.
func exposedIdentities(al *state.ExposedAlloc) (all []api.ExposedIdentity) {
	for _, w := range al.Identities {
		all = append(all, api.ExposedIdentity{
			Namespace: al.Namespace, JobID: al.JobID, AllocID: al.ID, Task: w.Task, Name: w.Name, Audience: w.Audience, TTL: w.TTL, Offline: w.Offline,
		})
	}
	return all
}
