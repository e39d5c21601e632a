package api

import (
	"fmt"
	"hash/fnv"
	"iter"
	"net/http"
	"strconv"
	"strings"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/state"
)

// maxStatuses is the largest number of jobs that a request for statuses may name.
const maxStatuses = 10_000

// jobStatuses lists the statuses of the jobs that the body names, or else of all jobs, the last changed first.
// Children of other jobs are left out unless include_children is true or the body names them.
func (a *API) jobStatuses(w http.ResponseWriter, r *http.Request) {
	var req api.JobStatusesRequest
	if r.Method != http.MethodGet {
		if err := a.optionalBody(r, &req); err != nil {
			a.writeError(w, err)
			return
		}
	}
	if len(req.Jobs) > maxStatuses {
		a.writeError(w, fleet.Errorf(fleet.CodeInvalid, "read statuses: the request names %d jobs, at most %d are allowed", len(req.Jobs), maxStatuses))
		return
	}
	children, err := queryFlag(r, "include_children", req.IncludeChildren)
	if err != nil {
		a.writeError(w, err)
		return
	}
	// A page's token is good for the same jobs alone.
	sum := fnv.New64a()
	fmt.Fprintf(sum, "%q %t", req.Jobs, children)
	p := r.URL.Query()
	p.Set("jobs", strconv.FormatUint(sum.Sum64(), 16))
	r.URL.RawQuery = p.Encode()
	a.readHandler(func(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
		newestFirst := func(j *fleet.Job) string { return byAge(^j.ModifyIndex, jobKey(j)) }
		answer, err := page(r, requestedJobs(req, v, q, children), newestFirst, func(j *fleet.Job) api.JobStatus { return jobStatus(v, j) })
		return answer, max(v.TableIndex("jobs"), v.TableIndex("allocs"), v.TableIndex("deployments")), err
	})(w, r)
}

// requestedJobs iterates over the jobs that the request names, or else over all jobs; children includes child jobs.
func requestedJobs(req api.JobStatusesRequest, v *state.View, q query, children bool) iter.Seq[*fleet.Job] {
	if len(req.Jobs) > 0 {
		return namedJobs(req, v, q)
	}
	return selectItems(v.Jobs(q.namespace, q.prefix), func(j *fleet.Job) bool { return children || j.ParentID == "" })
}

// namedJobs iterates over the jobs that the request names, each once. Jobs that do not exist are left out.
func namedJobs(req api.JobStatusesRequest, v *state.View, q query) iter.Seq[*fleet.Job] {
	return func(yield func(*fleet.Job) bool) {
		seen := make(map[*fleet.Job]bool, len(req.Jobs)) // one that is named twice is one item
		for _, id := range req.Jobs {
			ns := id.Namespace
			if ns == "" {
				ns = fleet.DefaultNamespace
			}
			j, ok := v.Job(ns, id.ID)
			if !ok || seen[j] || !strings.HasPrefix(string(id.ID), q.prefix) {
				continue
			}
			seen[j] = true
			if !yield(j) {
				return
			}
		}
	}
}

// jobStatus returns the status of a job with its allocations (without replaced ones), children and newest
// deployment.
func jobStatus(v *state.View, j *fleet.Job) api.JobStatus {
	s := api.JobStatus{
		ID: j.ID, ParentID: j.ParentID, Namespace: j.Namespace, Name: j.Name, Type: j.Type, NodePool: j.NodePool, Datacenters: j.Datacenters,
		Priority: j.Priority, Version: j.Version, Stop: j.Stop, Status: j.Status, SubmitTime: j.SubmitTime,
		CreateIndex: j.CreateIndex, ModifyIndex: j.ModifyIndex, Allocs: []api.JobStatusAlloc{},
	}
	for _, g := range j.TaskGroups {
		s.GroupCountSum += g.Count
	}
	for al := range v.AllocsByJob(j.Namespace, j.ID) {
		if al.NextAllocation != "" {
			continue // another one took its place
		}
		s.Allocs = append(s.Allocs, api.JobStatusAlloc{
			ID: al.ID, Group: al.TaskGroup, ClientStatus: al.ClientStatus, NodeID: al.NodeID,
			DeploymentStatus: al.DeploymentStatus, JobVersion: al.JobVersion, FollowupEvalID: al.FollowupEvalID,
		})
	}
	if !j.Starts() {
		s.ChildStatuses = []string{}
		for c := range v.ChildJobs(j.Namespace, j.ID) {
			s.ChildStatuses = append(s.ChildStatuses, c.Status)
		}
	}
	if d := v.LatestDeployment(j.Namespace, j.ID); d != nil {
		s.LatestDeployment = deploymentLine(d)
	}
	return s
}

// deploymentLine returns the line of a deployment in its job's status. As in Nomad, a running deployment with canaries
// requires promotion whatever their health: StatusDescription says whether one has failed.
func deploymentLine(d *fleet.Deployment) *api.JobStatusDeployment {
	line := &api.JobStatusDeployment{
		ID: d.ID, IsActive: d.Active(), JobVersion: d.JobVersion, Status: d.Status,
		StatusDescription: d.StatusDescription, RequiresPromotion: d.RequiresPromotion(),
		AllAutoPromote: d.Status == fleet.DeploymentRunning && len(d.TaskGroups) > 0,
	}
	for _, g := range d.TaskGroups {
		line.AllAutoPromote = line.AllAutoPromote && (g.DesiredCanaries == 0 || g.AutoPromote)
	}
	return line
}
