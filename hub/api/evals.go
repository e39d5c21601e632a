package api

import (
	"iter"
	"net/http"

	"skerry/fleet"
	"skerry/hub/state"
)

func (a *API) evalRoutes() {
	a.mux.HandleFunc("GET /v1/evaluations", a.read(a.listEvals))
	a.mux.HandleFunc("GET /v1/evaluations/count", a.read(a.countEvals))
	a.mux.HandleFunc("GET /v1/evaluation/{id}", a.read(a.readEval))
	a.mux.HandleFunc("GET /v1/evaluation/{id}/allocations", a.read(a.evalAllocs))
}

// listEvals lists evaluations, the oldest first, of one job and status where the
// parameters name them; those that begin with a prefix by id.
func (a *API) listEvals(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	key := func(e *fleet.Evaluation) string { return ageKey(q, e.CreateIndex, string(e.ID)) }
	answer, err := page(r, evalsAsked(v, r, q), key, same[*fleet.Evaluation])
	return answer, v.TableIndex("evals"), err
}

// evalsAsked are the evaluations of the job and the status that a request names.
func evalsAsked(v *state.View, r *http.Request, q query) iter.Seq[*fleet.Evaluation] {
	job, status := r.URL.Query().Get("job"), r.URL.Query().Get("status")
	return func(yield func(*fleet.Evaluation) bool) {
		for e := range v.Evals(q.namespace, q.prefix) {
			wanted := (job == "" || job == string(e.JobID)) && (status == "" || status == e.Status)
			if wanted && !yield(e) {
				return
			}
		}
	}
}

// countEvals answers how many evaluations a list without pages would have.
func (a *API) countEvals(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	p, err := parsePages(r)
	index := v.TableIndex("evals")
	if err != nil {
		return nil, index, err
	}
	answer := struct{ Count int }{}
	for e := range evalsAsked(v, r, q) {
		ok, err := p.passes(e)
		if err != nil {
			return nil, index, err
		}
		if ok {
			answer.Count++
		}
	}
	return answer, index, nil
}

func (a *API) readEval(v *state.View, r *http.Request, _ query) (any, fleet.Index, error) {
	id := fleet.EvalID(r.PathValue("id"))
	e, ok := v.Eval(id)
	if !ok {
		return nil, v.TableIndex("evals"), fleet.Errorf(fleet.CodeNotFound, "evaluation %q not found", id)
	}
	return e, e.ModifyIndex, nil
}

func (a *API) evalAllocs(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	of := beginning(q, v.AllocsByEval(fleet.EvalID(r.PathValue("id"))), allocKey)
	answer, err := page(r, of, allocKey, allocStub)
	return answer, v.TableIndex("allocs"), err
}
