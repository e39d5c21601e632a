package api

import (
	"net/http"

	"skerry/fleet"
)

func (a *API) systemEndpoints() []endpoint {
	return []endpoint{
		{writes, "/v1/system/gc", managementOnly, a.writeHandler(a.collectGarbage)},
		{writes, "/v1/system/reconcile/summaries", managementOnly, a.writeHandler(a.reconcileSummaries)},
	}
}

// collectGarbage removes all ended objects from the state now, whatever their age.
func (a *API) collectGarbage(r *http.Request) (any, fleet.Index, error) {
	if err := a.cfg.Cluster.CatchUp(r.Context()); err != nil {
		return nil, 0, err
	}
	if err := a.cfg.Garbage.Force(r.Context()); err != nil {
		return nil, 0, err
	}
	return struct{}{}, a.cfg.State.View().Index(), nil
}

// reconcileSummaries does nothing, for scripts that ask for it: every log entry keeps the summaries of jobs right.
func (a *API) reconcileSummaries(r *http.Request) (any, fleet.Index, error) {
	return struct{}{}, a.cfg.State.View().Index(), a.cfg.Cluster.CatchUp(r.Context())
}
