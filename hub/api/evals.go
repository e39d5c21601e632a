package api

import (
	"net/http"
	"slices"

	"skerry/fleet"
	"skerry/hub/state"
)

func (a *API) evalRoutes() {
	a.mux.HandleFunc("GET /v1/evaluations", a.read(a.listEvals))
	a.mux.HandleFunc("GET /v1/evaluation/{id}", a.read(a.readEval))
	a.mux.HandleFunc("GET /v1/evaluation/{id}/allocations", a.read(a.evalAllocs))
}

// listEvals lists evaluations, newest first, of one job and status where the
// parameters name them.
func (a *API) listEvals(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	p := r.URL.Query()
	evals := []*fleet.Evaluation{}
	for e := range v.Evals(q.namespace, q.prefix) {
		if job := p.Get("job"); job != "" && job != string(e.JobID) {
			continue
		}
		if status := p.Get("status"); status != "" && status != e.Status {
			continue
		}
		evals = append(evals, e)
	}
	slices.SortStableFunc(evals, func(x, y *fleet.Evaluation) int { return int(int64(y.CreateIndex) - int64(x.CreateIndex)) })
	return evals, v.TableIndex("evals"), nil
}

func (a *API) readEval(v *state.View, r *http.Request, _ query) (any, fleet.Index, error) {
	id := fleet.EvalID(r.PathValue("id"))
	e, ok := v.Eval(id)
	if !ok {
		return nil, v.TableIndex("evals"), fleet.Errorf(fleet.CodeNotFound, "evaluation %q not found", id)
	}
	return e, e.ModifyIndex, nil
}

func (a *API) evalAllocs(v *state.View, r *http.Request, _ query) (any, fleet.Index, error) {
	stubs := []AllocStub{}
	for al := range v.AllocsByEval(fleet.EvalID(r.PathValue("id"))) {
		stubs = append(stubs, allocStub(al))
	}
	return stubs, v.TableIndex("allocs"), nil
}
