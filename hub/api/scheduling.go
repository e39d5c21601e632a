package api

import (
	"net/http"

	"skerry/fleet"
	"skerry/hub/state"
)

func (a *API) schedulingRoutes() {
	a.mux.HandleFunc("GET /v1/operator/scheduler/configuration", a.readHandler(a.readScheduling))
	a.handlePutAndPost("/v1/operator/scheduler/configuration", a.writeHandler(a.storeScheduling))
}

// SchedulerConfigurationResponse is how jobs are scheduled.
type SchedulerConfigurationResponse struct {
	SchedulerConfig *fleet.SchedulerConfiguration
	Index           fleet.Index
}

// SchedulerSetConfigurationResponse says whether a configuration was taken.
type SchedulerSetConfigurationResponse struct {
	Updated bool
	Index   fleet.Index
}

func (a *API) readScheduling(v *state.View, _ *http.Request, _ query) (any, fleet.Index, error) {
	c := v.Scheduling()
	index := v.TableIndex("scheduler")
	return SchedulerConfigurationResponse{SchedulerConfig: &c, Index: index}, index, nil
}

// storeScheduling takes a configuration as a whole; with cas=N only where entry N
// was the last to change it.
func (a *API) storeScheduling(r *http.Request) (any, fleet.Index, error) {
	cmd := state.SchedulerConfig{}
	if err := a.decodeBody(r, &cmd.Config); err != nil {
		return nil, 0, err
	}
	if err := cmd.Config.Validate(); err != nil {
		return nil, 0, err
	}
	checked, given, err := checkIndex(r)
	if err != nil {
		return nil, 0, err
	}
	cmd.Enforce, cmd.CheckIndex = given, fleet.Index(checked)
	res, err := a.commitCommand(r.Context(), cmd)
	if e := res.Err; e != nil && e.Code == fleet.CodeConflict {
		return SchedulerSetConfigurationResponse{Index: res.Index}, res.Index, nil
	}
	return SchedulerSetConfigurationResponse{Updated: err == nil, Index: res.Index}, res.Index, err
}
