package api

import (
	"iter"
	"net/http"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/state"
)

func (a *API) evalEndpoints() []endpoint {
	return []endpoint{
		{"GET", "/v1/evaluations", inRequestNamespace("read-job"), a.readHandler(a.listEvals)},
		{"GET", "/v1/evaluations/count", inRequestNamespace("read-job"), a.readHandler(a.countEvals)},
		{"GET", "/v1/evaluation/{id}", inObjectNamespace("read-job"), a.readHandler(a.readEval)},
		{"GET", "/v1/evaluation/{id}/allocations", inObjectNamespace("read-job"), a.readHandler(a.evalAllocs)},
	}
}

// listEvals lists evaluations from the oldest to the newest (with a prefix of the id, by id). The parameters job and
// status narrow the list.
func (a *API) listEvals(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	key := func(e *fleet.Evaluation) string { return ageKey(q, e.CreateIndex, string(e.ID)) }
	answer, err := page(r, evalsAsked(v, r, q), key, unchangedItem[*fleet.Evaluation])
	return answer, v.TableIndex("evals"), err
}

// evalsAsked iterates over the evaluations of the request's namespace, prefix, job and status.
func evalsAsked(v *state.View, r *http.Request, q query) iter.Seq[*fleet.Evaluation] {
	job, status, g := r.URL.Query().Get("job"), r.URL.Query().Get("status"), grantOf(r)
	return selectItems(v.Evals(q.namespace, q.prefix), func(e *fleet.Evaluation) bool {
		return g.allowsItem(e) && (job == "" || job == string(e.JobID)) && (status == "" || status == e.Status)
	})
}

// countEvals answers with the number of evaluations that listEvals would list on all its pages.
func (a *API) countEvals(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	p, err := parsePages(r)
	index := v.TableIndex("evals")
	if err != nil {
		return nil, index, err
	}
	answer := struct{ Count int }{}
	for e := range evalsAsked(v, r, q) {
		ok, err := p.passesFilter(e)
		if err != nil {
			return nil, index, err
		}
		if ok {
			answer.Count++
		}
	}
	return answer, index, nil
}

// readEval answers with an evaluation. With the parameter related=true it adds the evaluations that are linked to
// it.
func (a *API) readEval(v *state.View, r *http.Request, _ query) (any, fleet.Index, error) {
	id := fleet.EvalID(r.PathValue("id"))
	e, ok := v.Eval(id)
	missing := fleet.Errorf(fleet.CodeNotFound, "evaluation %q not found", id)
	if !ok {
		return nil, v.TableIndex("evals"), missing
	}
	if err := grantOf(r).checkObject(e, missing); err != nil {
		return nil, v.TableIndex("evals"), err
	}
	related, err := queryFlag(r, "related", false)
	if err != nil || !related {
		return e, e.ModifyIndex, err
	}
	answer, index := api.EvalDetail{Evaluation: e, RelatedEvals: []api.EvalStub{}}, e.ModifyIndex
	for o := range relatedEvals(v, e) {
		answer.RelatedEvals = append(answer.RelatedEvals, evalStub(o))
		index = max(index, o.ModifyIndex)
	}
	return answer, index, nil
}

// evalStub returns the list item of a related evaluation.
func evalStub(e *fleet.Evaluation) api.EvalStub {
	return api.EvalStub{
		ID: e.ID, Namespace: e.Namespace, Priority: e.Priority, Type: e.Type, TriggeredBy: e.TriggeredBy, JobID: e.JobID, NodeID: e.NodeID,
		DeploymentID: e.DeploymentID, Status: e.Status, StatusDescription: e.StatusDescription, WaitUntil: e.WaitUntil,
		NextEval: e.NextEval, PreviousEval: e.PreviousEval, BlockedEval: e.BlockedEval,
		CreateIndex: e.CreateIndex, ModifyIndex: e.ModifyIndex, CreateTime: e.CreateTime, ModifyTime: e.ModifyTime,
	}
}

// relatedEvals iterates over the evaluations that are linked to e, directly or through others. Some links are
// recorded at one end only. Linked evaluations are always of one job.
func relatedEvals(v *state.View, e *fleet.Evaluation) iter.Seq[*fleet.Evaluation] {
	linked := map[fleet.EvalID][]*fleet.Evaluation{}
	for o := range v.EvalsByJob(e.Namespace, e.JobID) {
		for _, id := range []fleet.EvalID{o.NextEval, o.PreviousEval, o.BlockedEval} {
			if other, ok := v.Eval(id); ok {
				linked[o.ID] = append(linked[o.ID], other)
				linked[id] = append(linked[id], o)
			}
		}
	}
	return func(yield func(*fleet.Evaluation) bool) {
		seen := map[fleet.EvalID]bool{e.ID: true}
		for next := []fleet.EvalID{e.ID}; len(next) > 0; next = next[1:] {
			for _, o := range linked[next[0]] {
				if seen[o.ID] {
					continue
				}
				seen[o.ID] = true
				next = append(next, o.ID)
				if !yield(o) {
					return
				}
			}
		}
	}
}

// evalAllocs lists the allocations that an evaluation placed, by id.
func (a *API) evalAllocs(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	id := fleet.EvalID(r.PathValue("id"))
	if e, ok := v.Eval(id); ok {
		if err := grantOf(r).refuseKnown(e); err != nil {
			return nil, v.TableIndex("allocs"), err
		}
	}
	of := filterByPrefix(q, v.AllocsByEval(id), allocKey)
	answer, err := pageAllocs(r, of, allocKey)
	return answer, v.TableIndex("allocs"), err
}
