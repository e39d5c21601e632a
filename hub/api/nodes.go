package api

import (
	"iter"
	"net/http"

	"skerry/api"
	"skerry/fleet"
	"skerry/fleet/acl"
	"skerry/fleet/admission"
	"skerry/hub/state"
)

func (a *API) nodeEndpoints() []endpoint {
	return []endpoint{
		{"GET", "/v1/nodes", onListed(acl.KindNode, "read"), a.readHandler(a.listNodes)},
		{"GET", "/v1/node/{id}", onNode("read"), readObject(a, "nodes", needNode, a.readNode)},
		{"GET", "/v1/node/{id}/allocations", onNode("read"), a.readHandler(a.nodeAllocs)},
		{"GET", "/v1/node/{id}/history", onNode("read"), readObject(a, "nodes", needNode, a.nodeHistory)},
		{"GET", "/v1/node/{id}/exposure", onNode("read"), readObject(a, "nodes", needExposure, a.nodeExposure)},
		{"GET", "/v1/node/pools", onListed(acl.KindNodePool, "read"), a.readHandler(a.listPools)},
		{writes, "/v1/node/pools", onPool("write"), writeBody(a, a.storePool)},
		{"GET", "/v1/node/revocations", onOperator("read"), a.readHandler(a.listRevocations)},
		{writes, "/v1/node/{id}/revoke", onOperator("write"), writeOptionalBody(a, a.revokeNode)},
		{writes, "/v1/node/{id}/readmit", onOperator("write"), a.writeHandler(a.readmitNode)},
		{"GET", "/v1/node/pool/{name}", onPool("read"), readObject(a, "pools", needPool, a.readPool)},
		{writes, "/v1/node/pool/{name}", onPool("write"), writeBody(a, a.storePool)},
		{"DELETE", "/v1/node/pool/{name}", onPool("delete"), a.writeHandler(a.deletePool)},
		{"GET", "/v1/node/pool/{name}/nodes", onPool("read"), readObject(a, "pools", needPool, a.poolNodes)},
		{"GET", "/v1/node/pool/{name}/jobs", onPool("read"), readObject(a, "pools", needPool, a.poolJobs)},
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
	missing := fleet.Errorf(fleet.CodeNotFound, "node %q not found", id)
	if !ok {
		return nil, missing
	}
	return n, grantOf(r).checkObject(n, missing)
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
	id, g := fleet.NodeID(r.PathValue("id")), grantOf(r)
	n, ok := v.Node(id)
	if !ok {
		n = &fleet.Node{ID: id} // one that was purged may have left allocations
	}
	if !g.allowsItem(n) {
		return nil, v.TableIndex("nodes"), fleet.Errorf(fleet.CodeNotFound, "node %q not found", id)
	}
	of, newest := selectItems(v.AllocsByNode(id), func(al *fleet.Alloc) bool { return g.allowsItem(al) }), fleet.Index(0)
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
	if err := grantOf(r).checkNamed(acl.KindNodePool, p.Name); err != nil {
		return nil, 0, err
	}
	if err := admission.CheckPool(&p); err != nil {
		return nil, 0, err
	}
	return commitAnswer(a, r, state.Pool{Pool: p}, indexAnswer)
}
