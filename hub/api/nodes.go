package api

import (
	"iter"
	"net/http"

	"skerry/api"
	"skerry/fleet"
	"skerry/fleet/validate"
	"skerry/hub/state"
)

func (a *API) nodeRoutes() {
	a.mux.HandleFunc("GET /v1/nodes", a.readHandler(a.listNodes))
	a.mux.HandleFunc("GET /v1/node/{id}", readObject(a, "nodes", needNode, a.readNode))
	a.mux.HandleFunc("GET /v1/node/{id}/{what}", a.ofNode(map[string]http.HandlerFunc{
		"allocations": a.readHandler(a.nodeAllocs), "history": readObject(a, "nodes", needNode, a.nodeHistory),
	}))
	a.mux.HandleFunc("GET /v1/node/pools", a.readHandler(a.listPools))
	a.handlePutAndPost("/v1/node/pools", writeBody(a, a.storePool))
	a.mux.HandleFunc("GET /v1/node/revocations", a.readHandler(a.listRevocations))
	a.handlePutAndPost("/v1/node/{id}/revoke", writeOptionalBody(a, a.revokeNode))
	a.handlePutAndPost("/v1/node/{id}/readmit", a.writeHandler(a.readmitNode))
	a.mux.HandleFunc("DELETE /v1/node/pool/{name}", a.writeHandler(a.deletePool))
	a.mux.HandleFunc("GET /v1/node/pool/{name}/nodes", readObject(a, "pools", needPool, a.poolNodes))
	a.mux.HandleFunc("GET /v1/node/pool/{name}/jobs", readObject(a, "pools", needPool, a.poolJobs))
}

// ofNode serves /v1/node/{id}/{what} with the handler of parts for what, and /v1/node/pool/{name}, which the router
// cannot tell from it.
func (a *API) ofNode(parts map[string]http.HandlerFunc) http.HandlerFunc {
	pool := readObject(a, "pools", needPool, a.readPool)
	return func(w http.ResponseWriter, r *http.Request) {
		what := r.PathValue("what")
		if r.PathValue("id") == "pool" {
			r.SetPathValue("name", what)
			pool(w, r)
			return
		}
		if part, ok := parts[what]; ok {
			part(w, r)
			return
		}
		a.serveUnrouted(w, r)
	}
}

// listNodes lists the nodes by id.
func (a *API) listNodes(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	answer, err := pageNodes(r, v.Nodes(q.prefix))
	return answer, v.TableIndex("nodes"), err
}

// pageNodes is page for nodes, by id. The request's parameters os and resources add attributes and resources.
func pageNodes(r *http.Request, items iter.Seq[*fleet.Node]) (pageOfItems, error) {
	attributes, err := queryFlag(r, "os", false)
	if err != nil {
		return pageOfItems{}, err
	}
	resources, err := queryFlag(r, "resources", false)
	if err != nil {
		return pageOfItems{}, err
	}
	return page(r, items, func(n *fleet.Node) string { return string(n.ID) }, func(n *fleet.Node) api.NodeStub {
		stub := nodeStub(n, attributes)
		if resources {
			stub.NodeResources, stub.ReservedResources = n.ResourcesShapes()
		}
		return stub
	})
}

// nodeStub returns the list item of a node, without its resources.
func nodeStub(n *fleet.Node, attributes bool) api.NodeStub {
	stub := api.NodeStub{
		Address: n.Address, ID: n.ID, Datacenter: n.Datacenter, Site: n.AtSite(), Name: n.Name, NodeClass: n.NodeClass,
		NodePool: n.NodePool, Version: n.Version, SchedulingEligibility: n.SchedulingEligibility,
		Status: n.Status, StatusDescription: n.StatusDescription, Drivers: n.Drivers,
		Drain: n.DrainStrategy != nil, LastDrain: n.LastDrain,
		CreateIndex: n.CreateIndex, ModifyIndex: n.ModifyIndex,
	}
	if attributes {
		stub.Attributes = n.Attributes
	}
	return stub
}

// needNode returns the node whose id is in the request's path. CodeNotFound: the state does not have it.
func needNode(v *state.View, r *http.Request) (*fleet.Node, error) {
	id := fleet.NodeID(r.PathValue("id"))
	n, ok := v.Node(id)
	if !ok {
		return nil, fleet.Errorf(fleet.CodeNotFound, "node %q not found", id)
	}
	return n, nil
}

// readNode answers with the whole node. Its HTTPAddr is this hub's address.
func (a *API) readNode(_ *state.View, r *http.Request, _ query, n *fleet.Node) (any, fleet.Index, error) {
	// Nomad's client requests files and logs from the node's own address. Here any hub forwards such requests.
	reached := *n
	reached.HTTPAddr = r.Host
	return &reached, n.ModifyIndex, nil
}

// nodeAllocs lists the allocations of a node by id, each whole. Its index is that of their newest change, or without
// allocations that of all allocations.
func (a *API) nodeAllocs(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	of, newest := v.AllocsByNode(fleet.NodeID(r.PathValue("id"))), fleet.Index(0)
	for al := range of {
		newest = max(newest, al.ModifyIndex)
	}
	if newest == 0 {
		newest = v.TableIndex("allocs") // so that a blocking query does not return at once
	}
	answer, err := page(r, filterByPrefix(q, of, allocKey), allocKey, unchangedItem[*fleet.Alloc])
	return answer, newest, err
}

// listPools lists the node pools by name.
func (a *API) listPools(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	name := func(p *fleet.Pool) string { return p.Name }
	answer, err := page(r, filterByPrefix(q, v.Pools(), name), name, unchangedItem[*fleet.Pool])
	return answer, v.TableIndex("pools"), err
}

// storePool creates a node pool, or replaces the one of that name.
func (a *API) storePool(r *http.Request, p fleet.Pool) (any, fleet.Index, error) {
	if name := r.PathValue("name"); name != "" {
		if p.Name != "" && p.Name != name {
			return nil, 0, fleet.Errorf(fleet.CodeInvalid, "store node pool %q: the path names %q", p.Name, name)
		}
		p.Name = name
	}
	if err := validate.Pool(&p); err != nil {
		return nil, 0, err
	}
	return commitAnswer(a, r, state.Pool{Pool: p}, indexAnswer)
}
