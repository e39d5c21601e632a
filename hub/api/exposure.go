package api

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto/nodekey"
)

// nodeExposure answers with what an edge knew, so that it can be replaced after a theft: paths and versions, no values.
// Variables and allocations of which the token may not know are left out.
func (a *API) nodeExposure(v *state.View, r *http.Request, _ query, n *fleet.Node) (any, fleet.Index, error) {
	answer := api.NodeExposure{NodeID: n.ID, Name: n.Name, Variables: []api.ExposedVariable{}, Allocations: []api.ExposedAlloc{}, Identities: []api.ExposedIdentity{}}
	if key := n.Attributes[nodekey.Attribute]; key != "" {
		published, _ := v.PublishedIdentityKey(n.ID)
		answer.IdentityKey, answer.Published = nodekey.ID(n.ID, key), published != ""
	}
	if since := lostSince(n); since != 0 {
		at := time.Unix(0, since).UTC()
		answer.Since = &at
	}
	g := grantOf(r)
	found := map[[2]string]*api.ExposedVariable{}
	for al := range v.AllocsByNode(n.ID) {
		if g.allowsItem(al) {
			answer.Allocations = append(answer.Allocations, api.ExposedAlloc{
				ID: al.ID, Namespace: al.Namespace, JobID: al.JobID, TaskGroup: al.TaskGroup, ClientStatus: al.ClientStatus,
			})
			answer.Identities = append(answer.Identities, exposedIdentities(al)...)
		}
		for _, path := range al.VariablePaths("") {
			row, ok := v.Variable(al.Namespace, path)
			if !ok || !g.allowsItem(row.VariableMeta) {
				continue
			}
			key := [2]string{al.Namespace, path}
			if found[key] == nil {
				found[key] = &api.ExposedVariable{
					Namespace: al.Namespace, Path: path, ModifyIndex: row.ModifyIndex, ModifyTime: time.Unix(0, row.ModifyTime).UTC(),
					Changed: answer.Since != nil && row.ModifyTime > answer.Since.UnixNano(),
				}
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
			if c.IsValid(a.cfg.Now()) && c.IsFor(n.AtSite(), n.NodePool) && (answer.Since == nil || c.CreateTime.Before(*answer.Since)) {
				answer.SiteCodes = append(answer.SiteCodes, c.SiteCode)
			}
		}
	}
	return answer, max(v.TableIndex("site_codes"), v.TableIndex("variables"), v.TableIndex("allocs"), n.ModifyIndex, 1), nil
}

// exposedIdentities lists the identities of an allocation's tasks of which its edge has tokens.
func exposedIdentities(al *fleet.Alloc) (all []api.ExposedIdentity) {
	g := al.Group()
	if g == nil || al.EndedOnEdge() {
		return nil
	}
	for _, w := range g.DeliveredIdentities() {
		all = append(all, api.ExposedIdentity{
			Namespace: al.Namespace, JobID: al.JobID, AllocID: al.ID, Task: w.Task, Name: w.Name, Audience: w.Audience, TTL: w.TTL, Offline: w.Offline,
		})
	}
	return all
}

// lostSince returns when (UnixNano) an edge was revoked, or else lost; 0: it is connected.
func lostSince(n *fleet.Node) int64 {
	if n.Revoked != nil {
		return n.Revoked.Time
	}
	return n.DisconnectedAt
}
