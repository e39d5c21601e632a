package api

import (
	"fmt"
	"net/http"
	"slices"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/state"
)

func (a *API) prefetchEndpoints() []endpoint {
	return []endpoint{
		{"GET", "/v1/job/{id}/prefetch", inRequestNamespace("read-job"), a.readHandler(a.listPrefetches)},
		{writes, "/v1/job/{id}/prefetch", inRequestNamespace("submit-job"), writeOptionalBody(a, a.prefetchJob)},
		{"DELETE", "/v1/job/{id}/prefetch", inRequestNamespace("submit-job"), a.writeHandler(a.endPrefetches)},
	}
}

// listPrefetches lists the prefetches of a job, by id.
func (a *API) listPrefetches(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	items := filterByPrefix(q, v.PrefetchesOf(q.namespace, jobID(r)), func(p *fleet.Prefetch) string { return string(p.ID) })
	answer, err := page(r, items, func(p *fleet.Prefetch) string { return string(p.ID) }, func(p *fleet.Prefetch) api.PrefetchStub {
		stub := api.PrefetchStub{Prefetch: *p}
		if n, ok := v.Node(p.NodeID); ok {
			stub.NodeName, stub.NodeStatus = n.Name, n.Status
		}
		return stub
	})
	return answer, max(v.TableIndex("prefetches"), 1), err
}

// prefetchJob has nodes fetch the artifacts and images of a version of a job: the nodes that the request names, or
// else those that have an allocation of the job.
func (a *API) prefetchJob(r *http.Request, req api.PrefetchRequest) (any, fleet.Index, error) {
	job, err := a.namedJob(r)
	if err != nil {
		return nil, 0, err
	}
	v := a.cfg.State.View()
	answer := api.PrefetchAnswer{JobVersion: job.Version}
	if req.JobVersion != nil {
		answer.JobVersion = *req.JobVersion
	}
	if answer.NodeIDs, err = prefetchNodes(v, job, req); err != nil {
		return nil, 0, err
	}
	away := 0
	for _, id := range answer.NodeIDs {
		if n, ok := v.Node(id); ok && n.IsAway() {
			away++
		}
	}
	if away > 0 {
		answer.Warnings = fmt.Sprintf("%d of %d nodes are away: they fetch when they are back", away, len(answer.NodeIDs))
	}
	for nodes := range slices.Chunk(answer.NodeIDs, state.MaxPrefetchNodes) {
		res, err := a.commitCommand(r.Context(), state.PrefetchStore{
			Namespace: job.Namespace, JobID: job.ID, JobVersion: answer.JobVersion, Nodes: nodes, Now: a.cfg.Now().UnixNano(),
		})
		if answer.Index = res.Index; err != nil {
			return nil, res.Index, err
		}
	}
	return answer, answer.Index, nil
}

// prefetchNodes returns the nodes of a request, in the order of their ids.
func prefetchNodes(v *state.View, job *fleet.Job, req api.PrefetchRequest) ([]fleet.NodeID, error) {
	nodes := slices.Clone(req.NodeIDs)
	switch {
	case len(nodes) > 0 && req.NodePool != "":
		return nil, fleet.Errorf(fleet.CodeInvalid, "prefetch job %s: the request names both nodes and a node pool", job.ID)
	case req.NodePool != "":
		for n := range v.Nodes("") {
			if n.NodePool == req.NodePool && n.Revoked == nil && job.InPool(n.NodePool) && job.InDatacenter(n.Datacenter) {
				nodes = append(nodes, n.ID)
			}
		}
	case len(nodes) == 0:
		for al := range v.AllocsByJob(job.Namespace, job.ID) {
			if n, ok := v.Node(al.NodeID); ok && n.Revoked == nil && al.OccupiesNode() {
				nodes = append(nodes, al.NodeID)
			}
		}
	}
	slices.Sort(nodes)
	if nodes = slices.Compact(nodes); len(nodes) > 0 {
		return nodes, nil
	}
	if req.NodePool != "" {
		return nil, fleet.Errorf(fleet.CodeNotFound, "prefetch job %s: node pool %q has no node in the job's datacenters and pool", job.ID, req.NodePool)
	}
	return nil, fleet.Errorf(fleet.CodeConflict, "prefetch job %s: no node has an allocation of it", job.ID).
		WithHint("name nodes with --node, or a node pool with --node-pool")
}

// endPrefetches ends all prefetches of a job, so that its nodes let the contents go. It works for a purged job, too.
func (a *API) endPrefetches(r *http.Request) (any, fleet.Index, error) {
	q, err := parseQuery(r)
	if err != nil {
		return nil, 0, err
	}
	if err := a.cfg.Cluster.CatchUp(r.Context()); err != nil {
		return nil, 0, err
	}
	var ended []state.EndedPrefetch
	for p := range a.cfg.State.View().PrefetchesOf(q.namespace, jobID(r)) {
		if !grantOf(r).allowsItem(p) {
			continue
		}
		ended = append(ended, state.EndedPrefetch{ID: p.ID, RequestIndex: p.RequestIndex})
	}
	if len(ended) == 0 {
		return nil, 0, fleet.Errorf(fleet.CodeNotFound, "end the prefetches of job %s: there are none in namespace %s", jobID(r), q.namespace)
	}
	answer := api.IndexAnswer{}
	for some := range slices.Chunk(ended, state.MaxPrefetchNodes) {
		res, err := a.commitCommand(r.Context(), state.PrefetchEnd{Prefetches: some, Now: a.cfg.Now().UnixNano()})
		if answer.Index = res.Index; err != nil {
			return nil, res.Index, err
		}
	}
	return answer, answer.Index, nil
}
