package api

import (
	"cmp"
	"net/http"
	"slices"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/state"
)

func (a *API) deploymentEndpoints() []endpoint {
	return []endpoint{
		{"GET", "/v1/deployments", inRequestNamespace("read-job"), a.readHandler(a.listDeployments)},
		{"GET", "/v1/deployment/{id}", inObjectNamespace("read-job"), readObject(a, "deployments", needDeployment, a.readDeployment)},
		{"GET", "/v1/deployment/progress/{id}", inObjectNamespace("read-job"), readObject(a, "deployments", needDeployment, a.deploymentProgress)},
		{"GET", "/v1/deployment/allocations/{id}", inObjectNamespace("read-job"), a.readHandler(a.deploymentAllocs)},
		{"GET", "/v1/job/{id}/deployments", inRequestNamespace("read-job"), a.readHandler(a.jobDeployments)},
		{"GET", "/v1/job/{id}/deployment", inRequestNamespace("read-job"), a.readHandler(a.jobDeployment)},
		{writes, "/v1/deployment/promote/{id}", inObjectNamespace("submit-job"), writeBody(a, a.promoteDeployment)},
		{writes, "/v1/deployment/pause/{id}", inObjectNamespace("submit-job"), writeBody(a, a.pauseDeployment)},
		{writes, "/v1/deployment/fail/{id}", inObjectNamespace("submit-job"), a.writeHandler(a.failDeployment)},
		{writes, "/v1/deployment/allocation-health/{id}", inObjectNamespace("submit-job"), writeBody(a, a.setHealth)},
		{writes, "/v1/deployment/unblock/{id}", inObjectNamespace("submit-job"), a.writeHandler(a.unblockDeployment)},
	}
}

// listDeployments lists the deployments of a namespace from the oldest to the newest; with a prefix of the id, by
// id.
func (a *API) listDeployments(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	key := func(d *fleet.Deployment) string { return ageKey(q, d.CreateIndex, string(d.ID)) }
	answer, err := page(r, v.Deployments(q.namespace, q.prefix), key, unchangedItem[*fleet.Deployment])
	return answer, v.TableIndex("deployments"), err
}

// needDeployment returns the deployment whose id is in the request's path. CodeNotFound: the state does not have it.
func needDeployment(v *state.View, r *http.Request) (*fleet.Deployment, error) {
	id := fleet.DeploymentID(r.PathValue("id"))
	d, ok := v.Deployment(id)
	missing := fleet.Errorf(fleet.CodeNotFound, "deployment %q not found", id)
	if !ok {
		return nil, missing
	}
	return d, grantOf(r).checkObject(d, missing)
}

// readDeployment answers with a deployment and the number of its allocations that wait for an update window, by
// group.
func (a *API) readDeployment(v *state.View, _ *http.Request, _ query, d *fleet.Deployment) (any, fleet.Index, error) {
	return api.DeploymentDetail{Deployment: d, Windows: a.newWindowTracker(v, d).progressByGroup(d)}, d.ModifyIndex, nil
}

// deploymentAllocs lists the allocations of a deployment by id.
func (a *API) deploymentAllocs(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	id := fleet.DeploymentID(r.PathValue("id"))
	if d, ok := v.Deployment(id); ok {
		if err := grantOf(r).refuseKnown(d); err != nil {
			return nil, v.TableIndex("allocs"), err
		}
	}
	of := filterByPrefix(q, v.AllocsByDeployment(id), allocKey)
	answer, err := pageAllocs(r, of, allocKey)
	return answer, v.TableIndex("allocs"), err
}

// jobDeployments lists the deployments of a job, the newest first. With the parameter all=true it adds those of a
// purged job of the same id.
func (a *API) jobDeployments(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	newestFirst := func(d *fleet.Deployment) string { return byAge(^d.CreateIndex, string(d.ID)) }
	earlier, err := queryFlag(r, "all", false)
	if err != nil {
		return nil, v.TableIndex("deployments"), err
	}
	job, there := v.Job(q.namespace, jobID(r))
	id := func(d *fleet.Deployment) string { return string(d.ID) }
	of := selectItems(filterByPrefix(q, v.DeploymentsByJob(q.namespace, jobID(r)), id), func(d *fleet.Deployment) bool {
		// Deployments of a purged job of the same id do not belong to this one.
		return earlier || !there || d.JobCreateIndex == job.CreateIndex
	})
	answer, err := page(r, of, newestFirst, unchangedItem[*fleet.Deployment])
	return answer, max(v.TableIndex("deployments"), sinceJob(v, job)), err
}

// jobDeployment answers with the newest deployment of a job, or with null.
func (a *API) jobDeployment(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	d := v.LatestDeployment(q.namespace, jobID(r))
	if d != nil && !grantOf(r).allowsItem(d) {
		d = nil
	}
	return d, v.TableIndex("deployments"), nil
}

// failedShown is the largest number of failed allocations in a deployment's progress.
const failedShown = 5

// deploymentProgress answers with the progress of a deployment: the counts of its allocations by group and site, the
// allocations that wait for update windows, its outlook, and its newest failed allocations.
func (a *API) deploymentProgress(v *state.View, _ *http.Request, _ query, d *fleet.Deployment) (any, fleet.Index, error) {
	shut := a.newWindowTracker(v, d)
	p := api.Progress{
		Deployment: d, Groups: map[string]map[string]api.SiteProgress{}, Windows: shut.progressByGroup(d),
		Outlook: a.cfg.Jobs.Outlook(v, d, a.cfg.Now()), Failed: failedAllocs(v, d),
	}
	for al := range v.AllocsByJob(d.Namespace, d.JobID) {
		if _, ok := d.TaskGroups[al.TaskGroup]; !ok || al.NoLongerWanted() {
			continue
		}
		site := ""
		if n, ok := v.Node(al.NodeID); ok {
			site = n.SiteName()
		}
		if p.Groups[al.TaskGroup] == nil {
			p.Groups[al.TaskGroup] = map[string]api.SiteProgress{}
		}
		s := p.Groups[al.TaskGroup][site]
		if _, closed := shut.closedUntil(al); closed {
			s.Waiting++
			s.Shut++
		} else {
			countAllocation(&s, al, d)
		}
		p.Groups[al.TaskGroup][site] = s
	}
	return p, max(v.TableIndex("allocs"), v.TableIndex("deployments")), nil
}

// failedAllocs returns the newest failed or unhealthy allocations of an active deployment, at most failedShown, also
// those that were replaced. A deployment that has ended has none.
func failedAllocs(v *state.View, d *fleet.Deployment) []api.AllocStub {
	if !d.Active() {
		return nil
	}
	var failed []*fleet.Alloc
	for al := range v.AllocsByDeployment(d.ID) {
		if al.DeploymentStatus.IsUnhealthy() || al.ClientStatus == fleet.ClientFailed {
			failed = append(failed, al)
		}
	}
	slices.SortFunc(failed, func(x, y *fleet.Alloc) int {
		return cmp.Or(cmp.Compare(y.CreateIndex, x.CreateIndex), cmp.Compare(x.ID, y.ID))
	})
	var stubs []api.AllocStub
	for _, al := range failed[:min(len(failed), failedShown)] {
		stubs = append(stubs, allocStub(al))
	}
	return stubs
}

// countAllocation adds one to the count of s that an allocation of the job of d belongs to.
func countAllocation(s *api.SiteProgress, al *fleet.Alloc, d *fleet.Deployment) {
	switch {
	case al.ClientStatus == fleet.ClientUnknown:
		s.Deferred++
	case al.JobVersion != d.JobVersion:
		s.Waiting++
	case al.DeploymentStatus.IsUnhealthy(), al.ClientStatus == fleet.ClientFailed: // also one that was healthy
		s.Failed++
	case al.DeploymentStatus.IsHealthy() && !al.Terminal():
		s.Healthy++
	default:
		s.Running++
	}
}

// changeDeployment finds the deployment that a request names, in a state that has caught up with the leader, and
// commits the command for it (nil: nothing to do). The job that command returns is the version that the job reverts
// to; nil: none.
func (a *API) changeDeployment(r *http.Request, command func(*state.View, *fleet.Deployment) (state.Command, *fleet.Job, error)) (any, fleet.Index, error) {
	if err := a.cfg.Cluster.CatchUp(r.Context()); err != nil {
		return nil, 0, err
	}
	view := a.cfg.State.View()
	d, err := needDeployment(view, r)
	if err != nil {
		return nil, 0, err
	}
	c, back, err := command(view, d)
	if err != nil {
		return nil, 0, err
	}
	if c == nil {
		return api.DeploymentAnswer{DeploymentModifyIndex: d.ModifyIndex}, d.ModifyIndex, nil
	}
	return commitAnswer(a, r, c, func(res state.Result) api.DeploymentAnswer {
		answer := api.DeploymentAnswer{EvalID: res.Eval, DeploymentModifyIndex: res.Index, Index: res.Index}
		if res.Eval != "" {
			answer.EvalCreateIndex = res.Index
		}
		if back != nil {
			answer.RevertedJobVersion = &back.Version
		}
		return answer
	})
}

// rolloutEval returns a new pending evaluation for a change of a deployment. Applying the change fills in the job.
func (a *API) rolloutEval() *fleet.Evaluation {
	return &fleet.Evaluation{
		ID: fleet.EvalID(a.cfg.NewID()), TriggeredBy: fleet.TriggerDeploymentWatcher, Status: fleet.EvalPending,
	}
}

// promoteDeployment promotes the canaries of a deployment, of all groups or of the groups that the request names.
func (a *API) promoteDeployment(r *http.Request, req api.DeploymentPromoteRequest) (any, fleet.Index, error) {
	if !req.All && len(req.Groups) == 0 {
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "promote a deployment: the request has neither All nor Groups")
	}
	if req.All && len(req.Groups) > 0 {
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "promote a deployment: the request has both All and Groups").WithHint("leave one of them out")
	}
	return a.changeDeployment(r, func(_ *state.View, d *fleet.Deployment) (state.Command, *fleet.Job, error) {
		return state.DeploymentPromote{DeploymentID: d.ID, Groups: req.Groups, Eval: a.rolloutEval(), Now: a.cfg.Now().UnixNano()}, nil, nil
	})
}

// pauseDeployment pauses or resumes a deployment. It commits nothing if the deployment is paused or running already.
func (a *API) pauseDeployment(r *http.Request, req api.DeploymentPauseRequest) (any, fleet.Index, error) {
	return a.changeDeployment(r, func(_ *state.View, d *fleet.Deployment) (state.Command, *fleet.Job, error) {
		u := fleet.DeploymentUpdate{DeploymentID: d.ID, Status: fleet.DeploymentRunning, StatusDescription: fleet.DescRunning}
		if req.Pause {
			u.Status, u.StatusDescription = fleet.DeploymentPaused, fleet.DescPaused
		}
		if d.Status == u.Status {
			return nil, nil, nil // it has that status already
		}
		return state.DeploymentStatus{Update: u, Eval: a.rolloutEval(), Now: a.cfg.Now().UnixNano()}, nil, nil
	})
}

// failDeployment marks a deployment as failed. If a group has auto_revert, the job reverts to its newest stable
// version.
func (a *API) failDeployment(r *http.Request) (any, fleet.Index, error) {
	return a.changeDeployment(r, func(v *state.View, d *fleet.Deployment) (state.Command, *fleet.Job, error) {
		u, back := d.Fail(v.JobVersions(d.Namespace, d.JobID), fleet.DescFailedByUser)
		return state.DeploymentStatus{Update: u, Rollback: back, Eval: a.rolloutEval(), Now: a.cfg.Now().UnixNano()}, back, nil
	})
}

// setHealth sets the health of allocations of a deployment. An unhealthy one fails the deployment; if a group then
// has auto_revert, the job reverts to its newest stable version.
func (a *API) setHealth(r *http.Request, req api.DeploymentHealthRequest) (any, fleet.Index, error) {
	if len(req.HealthyAllocationIDs)+len(req.UnhealthyAllocationIDs) == 0 {
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "set the health of allocations: the request names no allocation")
	}
	return a.changeDeployment(r, func(v *state.View, d *fleet.Deployment) (state.Command, *fleet.Job, error) {
		c := state.AllocHealth{
			DeploymentID: d.ID, Healthy: req.HealthyAllocationIDs, Unhealthy: req.UnhealthyAllocationIDs,
			Eval: a.rolloutEval(), Now: a.cfg.Now().UnixNano(),
		}
		if len(c.Unhealthy) == 0 {
			return c, nil, nil
		}
		u, back := d.Fail(v.JobVersions(d.Namespace, d.JobID), fleet.DescFailedAllocations)
		c.Update, c.Rollback = &u, back
		return c, back, nil
	})
}

// unblockDeployment always refuses: only a deployment of several regions can be blocked, and a cluster is one
// region.
func (a *API) unblockDeployment(r *http.Request) (any, fleet.Index, error) {
	return a.changeDeployment(r, func(_ *state.View, d *fleet.Deployment) (state.Command, *fleet.Job, error) {
		return nil, nil, fleet.Errorf(fleet.CodeInvalid, "unblock deployment %s: its status is %s, and only a deployment of several regions can be blocked",
			fleet.Short(d.ID), d.Status)
	})
}
