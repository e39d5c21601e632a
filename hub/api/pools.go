package api

import (
	"net/http"

	"skerry/api"
	"skerry/fleet"
	"skerry/fleet/acl"
	"skerry/hub/state"
)

// needPool returns the node pool whose name is in the request's path. CodeNotFound: the state does not have it.
func needPool(v *state.View, r *http.Request) (*fleet.Pool, error) {
	name := r.PathValue("name")
	p, ok := v.Pool(name)
	missing := fleet.Errorf(fleet.CodeNotFound, "node pool %q not found", name)
	if !ok {
		return nil, missing
	}
	return p, grantOf(r).checkObject(p, missing)
}

// readPool answers with a node pool.
func (a *API) readPool(_ *state.View, _ *http.Request, _ query, p *fleet.Pool) (any, fleet.Index, error) {
	return p, max(p.ModifyIndex, 1), nil
}

// deletePool removes a node pool. One with nodes, or with jobs that are not dead, is refused.
func (a *API) deletePool(r *http.Request) (any, fleet.Index, error) {
	name := r.PathValue("name")
	if err := grantOf(r).checkNamed(acl.KindNodePool, name); err != nil {
		return nil, 0, err
	}
	return commitAnswer(a, r, state.PoolDelete{Name: name}, indexAnswer)
}

// poolNodes lists the nodes of a pool by id; those of the pool "all" are all nodes.
func (a *API) poolNodes(v *state.View, r *http.Request, q query, p *fleet.Pool) (any, fleet.Index, error) {
	in := selectItems(v.Nodes(q.prefix), func(n *fleet.Node) bool { return p.Name == fleet.AllPools || n.NodePool == p.Name })
	answer, err := pageNodes(r, in)
	return answer, max(v.TableIndex("nodes"), p.ModifyIndex), err
}

// poolJobs lists the jobs whose node_pool is the pool.
func (a *API) poolJobs(v *state.View, r *http.Request, q query, p *fleet.Pool) (any, fleet.Index, error) {
	meta := r.URL.Query().Get("meta") == "true"
	of := selectItems(v.Jobs(q.namespace, q.prefix), func(j *fleet.Job) bool { return j.NodePool == p.Name })
	answer, err := page(r, of, jobKey, func(j *fleet.Job) api.JobStub { return jobStub(v, j, meta) })
	return answer, max(v.TableIndex("jobs"), v.TableIndex("allocs"), p.ModifyIndex), err
}
