package api

import (
	"cmp"
	"net/http"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/state"
)

func (a *API) jobRoutes() {
	a.mux.HandleFunc("GET /v1/jobs", a.readHandler(a.listJobs))
	a.handlePutAndPost("/v1/jobs", writeBody(a, a.registerJob))
	a.mux.HandleFunc("GET /v1/jobs/statuses", a.jobStatuses)
	a.handlePutAndPost("/v1/jobs/statuses", a.jobStatuses)
	a.handlePutAndPost("/v1/jobs/parse", writeBody(a, a.parseJob))
	a.handlePutAndPost("/v1/validate/job", writeBody(a, a.validateJob))
	a.mux.HandleFunc("GET /v1/job/{id}", readObject(a, "jobs", needJob, a.readJob))
	a.handlePutAndPost("/v1/job/{id}", writeBody(a, a.registerJob))
	a.mux.HandleFunc("DELETE /v1/job/{id}", a.writeHandler(a.deregisterJob))
	a.mux.HandleFunc("GET /v1/job/{id}/allocations", a.readHandler(a.jobAllocs))
	a.mux.HandleFunc("GET /v1/job/{id}/evaluations", a.readHandler(a.jobEvals))
	a.mux.HandleFunc("GET /v1/job/{id}/summary", readObject(a, "jobs", needJob, a.jobSummary))
	a.mux.HandleFunc("GET /v1/job/{id}/versions", readObject(a, "jobs", needJob, a.jobVersions))
	a.handlePutAndPost("/v1/job/{id}/plan", writeBody(a, a.planJob))
	a.handlePutAndPost("/v1/job/{id}/revert", writeBody(a, a.revertJob))
	a.handlePutAndPost("/v1/job/{id}/stable", writeBody(a, a.markStable))
}

func (a *API) listJobs(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	meta := r.URL.Query().Get("meta") == "true"
	answer, err := page(r, v.Jobs(q.namespace, q.prefix), jobKey, func(j *fleet.Job) api.JobStub { return jobStub(v, j, meta) })
	return answer, max(v.TableIndex("jobs"), v.TableIndex("allocs")), err
}

// jobKey orders jobs by namespace and id.
func jobKey(j *fleet.Job) string { return j.Namespace + "\x00" + string(j.ID) }

func jobStub(v *state.View, j *fleet.Job, meta bool) api.JobStub {
	sum := summarize(v, j)
	stub := api.JobStub{
		ID: j.ID, Name: j.Name, Namespace: j.Namespace, Datacenters: j.Datacenters, NodePool: j.NodePool,
		Type: j.Type, Priority: j.Priority, Stop: j.Stop, Status: j.Status, StatusDescription: j.StatusDescription,
		JobSummary: &sum, CreateIndex: j.CreateIndex, ModifyIndex: j.ModifyIndex,
		JobModifyIndex: j.JobModifyIndex, SubmitTime: j.SubmitTime,
		ParentID: string(j.ParentID), Periodic: j.IsPeriodic(), ParameterizedJob: j.IsParameterized(),
	}
	if meta {
		stub.Meta = j.Meta
	}
	return stub
}

func jobID(r *http.Request) fleet.JobID { return fleet.JobID(r.PathValue("id")) }

// needJob returns the job that a request names.
func needJob(v *state.View, r *http.Request) (*fleet.Job, error) {
	namespace := cmp.Or(r.URL.Query().Get("namespace"), fleet.DefaultNamespace)
	j, ok := v.Job(namespace, jobID(r))
	if !ok {
		return nil, fleet.Errorf(fleet.CodeNotFound, "job %q not found in namespace %q", jobID(r), namespace)
	}
	return j, nil
}

func (a *API) readJob(_ *state.View, _ *http.Request, _ query, j *fleet.Job) (any, fleet.Index, error) {
	return j, j.ModifyIndex, nil
}

func (a *API) jobAllocs(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	earlier, err := queryFlag(r, "all", false)
	if err != nil {
		return nil, v.TableIndex("allocs"), err
	}
	job, there := v.Job(q.namespace, jobID(r))
	of := selectItems(filterByPrefix(q, v.AllocsByJob(q.namespace, jobID(r)), allocKey), func(al *fleet.Alloc) bool {
		// What there is of a job of the same id that was purged before is not this one's.
		return !there || earlier || al.Job == nil || al.Job.CreateIndex == job.CreateIndex
	})
	answer, err := pageAllocs(r, of, allocKey)
	return answer, max(v.TableIndex("allocs"), sinceJob(v, job)), err
}

// sinceJob is an index since when it is settled whether a list leaves out what there is of an
// earlier job of the same id.
func sinceJob(v *state.View, job *fleet.Job) fleet.Index {
	if job == nil {
		return v.TableIndex("jobs")
	}
	return job.CreateIndex
}

func (a *API) jobEvals(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	newestFirst := func(e *fleet.Evaluation) string { return byAge(^e.CreateIndex, string(e.ID)) }
	of := filterByPrefix(q, v.EvalsByJob(q.namespace, jobID(r)), func(e *fleet.Evaluation) string { return string(e.ID) })
	answer, err := page(r, of, newestFirst, unchangedItem[*fleet.Evaluation])
	return answer, v.TableIndex("evals"), err
}

func (a *API) jobSummary(v *state.View, _ *http.Request, _ query, j *fleet.Job) (any, fleet.Index, error) {
	return summarize(v, j), max(j.ModifyIndex, v.TableIndex("allocs")), nil
}

// jobVersions answers with the kept versions, newest first.
func (a *API) jobVersions(v *state.View, r *http.Request, q query, j *fleet.Job) (any, fleet.Index, error) {
	answer := api.JobVersionsAnswer{Versions: v.JobVersions(q.namespace, j.ID)}
	var err error
	if r.URL.Query().Get("diffs") == "true" {
		answer.Diffs, err = jobDiffs(r, answer.Versions)
	}
	return answer, j.ModifyIndex, err
}

// summarize counts a job's allocations.
func summarize(v *state.View, j *fleet.Job) fleet.JobSummary {
	out, _ := v.JobSummary(j.Namespace, j.ID) // a job that the view holds has one
	if !j.Starts() {
		c := v.Children(j.Namespace, j.ID)
		out.Children = &c
	}
	return out
}
