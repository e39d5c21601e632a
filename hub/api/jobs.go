package api

import (
	"net/http"

	"skerry/api"
	"skerry/fleet"
	"skerry/fleet/acl"
	"skerry/hub/state"
)

func (a *API) jobEndpoints() []endpoint {
	return []endpoint{
		{"GET", "/v1/jobs", inRequestNamespace("list-jobs"), a.readHandler(a.listJobs)},
		{writes, "/v1/jobs", inObjectNamespace("submit-job"), writeBody(a, a.registerJob)},
		{"GET", "/v1/jobs/statuses", onListed(acl.KindNamespace, "read-job"), a.jobStatuses},
		{writes, "/v1/jobs/statuses", onListed(acl.KindNamespace, "read-job"), a.jobStatuses},
		{writes, "/v1/jobs/parse", inRequestNamespace("parse-job", "submit-job"), writeBody(a, a.parseJob)},
		{writes, "/v1/validate/job", inObjectNamespace("read-job"), writeBody(a, a.validateJob)},
		{"GET", "/v1/job/{id}", inRequestNamespace("read-job"), readObject(a, "jobs", needJob, a.readJob)},
		{writes, "/v1/job/{id}", inObjectNamespace("submit-job"), writeBody(a, a.registerJob)},
		{"DELETE", "/v1/job/{id}", inRequestNamespace("submit-job"), a.writeHandler(a.deregisterJob)},
		{"GET", "/v1/job/{id}/allocations", inRequestNamespace("read-job"), a.readHandler(a.jobAllocs)},
		{"GET", "/v1/job/{id}/evaluations", inRequestNamespace("read-job"), a.readHandler(a.jobEvals)},
		{"GET", "/v1/job/{id}/summary", inRequestNamespace("read-job"), readObject(a, "jobs", needJob, a.jobSummary)},
		{"GET", "/v1/job/{id}/versions", inRequestNamespace("read-job"), readObject(a, "jobs", needJob, a.jobVersions)},
		{writes, "/v1/job/{id}/plan", inObjectNamespace("submit-job"), writeBody(a, a.planJob)},
		{writes, "/v1/job/{id}/revert", inRequestNamespace("submit-job"), writeBody(a, a.revertJob)},
		{writes, "/v1/job/{id}/stable", inRequestNamespace("submit-job"), writeBody(a, a.markStable)},
	}
}

// listJobs lists the jobs of a namespace by namespace and id, each with its summary.
func (a *API) listJobs(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	meta := r.URL.Query().Get("meta") == "true"
	answer, err := page(r, v.Jobs(q.namespace, q.prefix), jobKey, func(j *fleet.Job) api.JobStub { return jobStub(v, j, meta) })
	return answer, max(v.TableIndex("jobs"), v.TableIndex("allocs")), err
}

// jobKey is the order key of lists that are ordered by namespace and job id.
func jobKey(j *fleet.Job) string { return j.Namespace + "\x00" + string(j.ID) }

// jobStub returns the list item of a job. meta adds its metadata.
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

// jobID returns the job id in the request's path; "": the path has none.
func jobID(r *http.Request) fleet.JobID { return fleet.JobID(r.PathValue("id")) }

// needJob returns the job that the request's path and namespace name. CodeNotFound: the state does not have it.
func needJob(v *state.View, r *http.Request) (*fleet.Job, error) {
	namespace := requestNamespace(r)
	j, ok := v.Job(namespace, jobID(r))
	missing := fleet.Errorf(fleet.CodeNotFound, "job %q not found in namespace %q", jobID(r), namespace)
	if !ok {
		return nil, missing
	}
	return j, grantOf(r).checkObject(j, missing)
}

// readJob answers with the whole job.
func (a *API) readJob(_ *state.View, _ *http.Request, _ query, j *fleet.Job) (any, fleet.Index, error) {
	return j, j.ModifyIndex, nil
}

// jobAllocs lists the allocations of a job by id. With all=true it adds those of a purged job of the same id.
func (a *API) jobAllocs(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	earlier, err := queryFlag(r, "all", false)
	if err != nil {
		return nil, v.TableIndex("allocs"), err
	}
	job, there := v.Job(q.namespace, jobID(r))
	of := selectItems(filterByPrefix(q, v.AllocsByJob(q.namespace, jobID(r)), allocKey), func(al *fleet.Alloc) bool {
		// Allocations of a purged job of the same id do not belong to this one.
		return !there || earlier || al.Job == nil || al.Job.CreateIndex == job.CreateIndex
	})
	answer, err := pageAllocs(r, of, allocKey)
	return answer, max(v.TableIndex("allocs"), sinceJob(v, job)), err
}

// sinceJob returns the index at which a job was created, or for nil that of the newest change of any job. From then
// on the lists of the job's objects leave out those of an earlier job of the same id.
func sinceJob(v *state.View, job *fleet.Job) fleet.Index {
	if job == nil {
		return v.TableIndex("jobs")
	}
	return job.CreateIndex
}

// jobEvals lists the evaluations of a job, the newest first.
func (a *API) jobEvals(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	newestFirst := func(e *fleet.Evaluation) string { return byAge(^e.CreateIndex, string(e.ID)) }
	of := filterByPrefix(q, v.EvalsByJob(q.namespace, jobID(r)), func(e *fleet.Evaluation) string { return string(e.ID) })
	answer, err := page(r, of, newestFirst, unchangedItem[*fleet.Evaluation])
	return answer, v.TableIndex("evals"), err
}

// jobSummary answers with the counts of a job's allocations and children.
func (a *API) jobSummary(v *state.View, _ *http.Request, _ query, j *fleet.Job) (any, fleet.Index, error) {
	return summarize(v, j), max(j.ModifyIndex, v.TableIndex("allocs")), nil
}

// jobVersions answers with the kept versions of a job, the newest first. With diffs=true it adds their differences.
func (a *API) jobVersions(v *state.View, r *http.Request, q query, j *fleet.Job) (any, fleet.Index, error) {
	answer := api.JobVersionsAnswer{Versions: v.JobVersions(j.Namespace, j.ID)}
	var err error
	if r.URL.Query().Get("diffs") == "true" {
		answer.Diffs, err = jobDiffs(r, answer.Versions)
	}
	return answer, j.ModifyIndex, err
}

// summarize counts a job's allocations by group and status, and the children of a periodic or parameterized job.
func summarize(v *state.View, j *fleet.Job) fleet.JobSummary {
	out, _ := v.JobSummary(j.Namespace, j.ID) // every job of the view has a summary
	if !j.Starts() {
		c := v.Children(j.Namespace, j.ID)
		out.Children = &c
	}
	return out
}
