package api

import (
	"cmp"
	"net/http"
	"slices"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

func (a *API) actionEndpoints() []endpoint {
	return []endpoint{
		{"GET", "/v1/job/{id}/actions", inRequestNamespace("read-job"), readObject(a, "jobs", needJob, a.jobActions)},
		{"GET", "/v1/job/{id}/action", inRequestNamespace("alloc-exec"), a.runAction},
	}
}

// jobActions answers with the actions of a job, in the order of its file.
func (a *API) jobActions(_ *state.View, _ *http.Request, _ query, job *fleet.Job) (any, fleet.Index, error) {
	return api.ActionsOf(job), job.ModifyIndex, nil
}

// runAction serves a websocket over which it runs an action of a job in one of the job's allocations, as execInTask
// does with a command. A bad request is an HTTP error.
func (a *API) runAction(w http.ResponseWriter, r *http.Request) {
	req, err := websocketRequest(r, syncproto.RequestAction, "skerry action")
	if req.Action = r.URL.Query().Get("action"); err == nil && req.Action == "" {
		err = fleet.Errorf(fleet.CodeInvalid, "run an action of job %s: the request names no action", jobID(r)).
			WithHint("skerry action --job %s lists them", jobID(r))
	}
	if err != nil {
		a.writeError(w, err)
		return
	}
	a.serveWebsocket(w, r, func() (allocRequest, error) { return a.actionIn(r, req) })
}

// actionIn finds the allocation in which the action of req is to run: the allocation that the request names, or else
// one that runs the action's task. It returns req with the allocation and task filled in, and fails if the node is
// unreachable.
func (a *API) actionIn(r *http.Request, req syncproto.Request) (allocRequest, error) {
	if _, err := parseQuery(r); err != nil {
		return allocRequest{}, err
	}
	if err := a.cfg.Cluster.CatchUp(r.Context()); err != nil {
		return allocRequest{}, err
	}
	v, p := a.cfg.State.View(), r.URL.Query()
	job, err := needJob(v, r)
	if err != nil {
		return allocRequest{}, err
	}
	want := wantedAction{job: job, group: p.Get("group"), task: req.Task, name: req.Action}
	var al *fleet.Alloc
	if id := fleet.AllocID(p.Get("allocID")); id != "" {
		al, err = want.findNamedAlloc(v, id)
	} else {
		al, err = want.findRunningAlloc(v)
	}
	if err != nil {
		return allocRequest{}, err
	}
	if al.Job == nil {
		return allocRequest{}, fleet.Errorf(fleet.CodeInternal, "run an action: the state has no job for allocation %s", fleet.Short(al.ID))
	}
	// The allocation may run an older version of the job, whose action counts.
	action, err := api.FindAction(al.JobID, api.ActionsOf(al.Job), al.TaskGroup, want.task, want.name)
	if err != nil {
		return allocRequest{}, err
	}
	req.Alloc, req.Task = al.ID, action.TaskName
	if err := a.checkNodeExec(r, al, req.Task); err != nil {
		return allocRequest{}, err
	}
	return allocRequest{al, req}, checkAllocReachable(v, al, "run an action in", req.Task)
}

// wantedAction names an action of a job. An empty group or task means any.
type wantedAction struct {
	job               *fleet.Job
	group, task, name string
}

// findNamedAlloc returns the allocation with an id. It fails if the allocation does not exist in the job's namespace, or
// belongs to another job or group than the action.
func (w wantedAction) findNamedAlloc(v *state.View, id fleet.AllocID) (*fleet.Alloc, error) {
	al, ok := v.Alloc(id)
	switch {
	case !ok, al.Namespace != w.job.Namespace: // the token may know nothing of another namespace
		return nil, fleet.Errorf(fleet.CodeNotFound, "allocation %q not found in namespace %q", id, w.job.Namespace)
	case al.JobID != w.job.ID:
		return nil, fleet.Errorf(fleet.CodeInvalid, "run an action: allocation %s belongs to job %s, not to %s", fleet.Short(id), al.JobID, w.job.ID)
	case w.group != "" && al.TaskGroup != w.group:
		return nil, fleet.Errorf(fleet.CodeInvalid, "run an action: allocation %s belongs to group %s, not to %s", fleet.Short(id), al.TaskGroup, w.group)
	}
	return al, nil
}

// findRunningAlloc returns an allocation that runs the action's task. It prefers reachable nodes, then newer
// versions of the job, then lower ids. It fails if no allocation runs the task.
func (w wantedAction) findRunningAlloc(v *state.View) (*fleet.Alloc, error) {
	action, err := api.FindAction(w.job.ID, api.ActionsOf(w.job), w.group, w.task, w.name)
	if err != nil {
		return nil, err
	}
	var found []*fleet.Alloc
	for al := range v.AllocsByJob(w.job.Namespace, w.job.ID) {
		task := taskIn(al, action)
		lives := al.ClientStatus == fleet.ClientRunning || al.ClientStatus == fleet.ClientUnknown
		if lives && !al.ServerTerminal() && task != nil && task.Action(w.name) != nil {
			found = append(found, al)
		}
	}
	if len(found) == 0 {
		return nil, fleet.Errorf(fleet.CodeConflict, "run action %q of job %s: no allocation of group %s is running", w.name, w.job.ID, action.TaskGroupName).
			WithHint("skerry job status %s says why", w.job.ID)
	}
	far := func(al *fleet.Alloc) int {
		if reachable(v, al, "") != nil {
			return 1
		}
		return 0
	}
	return slices.MinFunc(found, func(x, y *fleet.Alloc) int {
		return cmp.Or(cmp.Compare(far(x), far(y)), cmp.Compare(y.JobVersion, x.JobVersion), cmp.Compare(x.ID, y.ID))
	}), nil
}

// taskIn returns the task of an action from the version of the job that an allocation runs; nil: that version does
// not have the task, or the allocation is of another group.
func taskIn(al *fleet.Alloc, action api.JobAction) *fleet.Task {
	if g := al.Group(); g != nil && g.Name == action.TaskGroupName {
		return g.Task(action.TaskName)
	}
	return nil
}
