package api

import (
	"net/http"

	"skerry/fleet"
)

func (a *API) systemRoutes() {
	a.handlePutAndPost("/v1/system/gc", a.writeHandler(a.collectGarbage))
	a.handlePutAndPost("/v1/system/reconcile/summaries", a.writeHandler(a.reconcileSummaries))
}

func (a *API) collectGarbage(r *http.Request) (any, fleet.Index, error) {
	if err := a.cfg.Cluster.CatchUp(r.Context()); err != nil {
		return nil, 0, err
	}
	if err := a.cfg.Garbage.Force(r.Context()); err != nil {
		return nil, 0, err
	}
	return struct{}{}, a.cfg.State.View().Index(), nil
}

// reconcileSummaries has nothing to put right: a job's summary is counted with every
// entry. It is there for scripts that ask for it.
func (a *API) reconcileSummaries(r *http.Request) (any, fleet.Index, error) {
	return struct{}{}, a.cfg.State.View().Index(), a.cfg.Cluster.CatchUp(r.Context())
}
