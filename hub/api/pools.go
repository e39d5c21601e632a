package api

import (
	"net/http"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/state"
)

// needPool returns the pool that a request names.
func needPool(v *state.View, r *http.Request) (*fleet.Pool, error) {
	name := r.PathValue("name")
	p, ok := v.Pool(name)
	if !ok {
		return nil, fleet.Errorf(fleet.CodeNotFound, "node pool %q not found", name)
	}
	return p, nil
}

func (a *API) readPool(v *state.View, r *http.Request, _ query) (any, fleet.Index, error) {
	p, err := needPool(v, r)
	if err != nil {
		return nil, v.TableIndex("pools"), err
	}
	return p, max(p.ModifyIndex, 1), nil
}

func (a *API) deletePool(r *http.Request) (any, fleet.Index, error) {
	res, err := a.commitCommand(r.Context(), state.PoolDelete{Name: r.PathValue("name")})
	return api.IndexAnswer{Index: res.Index}, res.Index, err
}

// poolNodes lists the nodes of a pool.
func (a *API) poolNodes(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	p, err := needPool(v, r)
	if err != nil {
		return nil, v.TableIndex("pools"), err
	}
	in := func(yield func(*fleet.Node) bool) {
		for n := range v.Nodes(q.prefix) {
			if (p.Name == fleet.AllPools || n.NodePool == p.Name) && !yield(n) {
				return
			}
		}
	}
	answer, err := pageNodes(r, in)
	return answer, max(v.TableIndex("nodes"), p.ModifyIndex), err
}

// poolJobs lists the jobs that name a pool.
func (a *API) poolJobs(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	p, err := needPool(v, r)
	if err != nil {
		return nil, v.TableIndex("pools"), err
	}
	meta := r.URL.Query().Get("meta") == "true"
	of := func(yield func(*fleet.Job) bool) {
		for j := range v.Jobs(q.namespace, q.prefix) {
			if j.NodePool == p.Name && !yield(j) {
				return
			}
		}
	}
	answer, err := page(r, of, jobKey, func(j *fleet.Job) api.JobStub { return jobStub(v, j, meta) })
	return answer, max(v.TableIndex("jobs"), v.TableIndex("allocs"), p.ModifyIndex), err
}
