package api

import (
	"net/http"

	"skerry/api"
	"skerry/fleet"
	"skerry/fleet/admission"
	"skerry/hub/state"
)

func (a *API) schedulingEndpoints() []endpoint {
	return []endpoint{
		{"GET", "/v1/operator/scheduler/configuration", onOperator("read"), a.readHandler(a.readScheduling)},
		{writes, "/v1/operator/scheduler/configuration", onOperator("write"), a.bodyHandler(a.storeScheduling)},
	}
}

// readScheduling answers with the scheduler configuration.
func (a *API) readScheduling(v *state.View, _ *http.Request, _ query) (any, fleet.Index, error) {
	c := v.Scheduling()
	index := v.TableIndex("scheduler")
	return api.SchedulerConfigurationResponse{SchedulerConfig: &c, Index: index}, index, nil
}

// storeScheduling replaces the scheduler configuration; with cas=N only if entry N was its last change. Updated in
// the answer says whether it did.
func (a *API) storeScheduling(r *http.Request) (any, fleet.Index, error) {
	cmd := state.SchedulerConfig{}
	if err := a.decodeBody(r, &cmd.Config); err != nil {
		return nil, 0, err
	}
	if err := admission.CheckScheduling(&cmd.Config); err != nil {
		return nil, 0, err
	}
	checked, given, err := checkIndex(r)
	if err != nil {
		return nil, 0, err
	}
	cmd.Enforce, cmd.CheckIndex = given, fleet.Index(checked)
	res, err := a.commitCommand(r.Context(), cmd)
	if e := res.Err; e != nil && e.Code == fleet.CodeConflict {
		return api.SchedulerSetConfigurationResponse{Index: res.Index}, res.Index, nil
	}
	return api.SchedulerSetConfigurationResponse{Updated: err == nil, Index: res.Index}, res.Index, err
}
