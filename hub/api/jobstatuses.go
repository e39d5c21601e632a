package api

import (
	"fmt"
	"hash/fnv"
	"iter"
	"net/http"
	"strconv"
	"strings"

	"skerry/fleet"
	"skerry/hub/state"
)

// maxStatuses is how many jobs a request for statuses may name.
const maxStatuses = 10_000

// statusesRequest is the body of a request for jobs' statuses.
type statusesRequest struct {
	Jobs []struct {
		ID        fleet.JobID
		Namespace string
	}
	IncludeChildren bool // as the parameter include_children
}

// JobStatus is a job with what a page about it shows.
type JobStatus struct {
	ID               fleet.JobID
	ParentID         fleet.JobID
	Namespace        string
	Name             string
	Type             string
	NodePool         string
	Datacenters      []string
	Priority         int
	Version          uint64
	Stop             bool
	Status           string
	SubmitTime       int64
	CreateIndex      fleet.Index
	ModifyIndex      fleet.Index
	GroupCountSum    int
	ChildStatuses    []string // of a job that does not run itself
	Allocs           []JobStatusAlloc
	LatestDeployment *JobStatusDeployment
}

// JobStatusAlloc is one allocation of a job.
type JobStatusAlloc struct {
	ID               fleet.AllocID
	Group            string
	ClientStatus     string
	NodeID           fleet.NodeID
	DeploymentStatus *fleet.AllocDeployment
	JobVersion       uint64
	FollowupEvalID   fleet.EvalID
}

// JobStatusDeployment is a job's newest deployment.
type JobStatusDeployment struct {
	ID                fleet.DeploymentID
	IsActive          bool
	JobVersion        uint64
	Status            string
	StatusDescription string
	AllAutoPromote    bool
	RequiresPromotion bool
}

// jobStatuses serves the statuses of all jobs but of those that others made (these too
// with include_children), or of the jobs that the body names, the one that changed last
// first.
func (a *API) jobStatuses(w http.ResponseWriter, r *http.Request) {
	var req statusesRequest
	if r.Method != http.MethodGet {
		if err := a.optionalBody(r, &req); err != nil {
			a.writeError(w, err)
			return
		}
	}
	if len(req.Jobs) > maxStatuses {
		a.writeError(w, fleet.Errorf(fleet.CodeInvalid, "read statuses: %d jobs are named, at most %d are taken", len(req.Jobs), maxStatuses))
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
		answer, err := page(r, req.requestedJobs(v, q, children), newestFirst, func(j *fleet.Job) JobStatus { return jobStatus(v, j) })
		return answer, max(v.TableIndex("jobs"), v.TableIndex("allocs"), v.TableIndex("deployments")), err
	})(w, r)
}

// requestedJobs are the jobs that the request asks for.
func (req statusesRequest) requestedJobs(v *state.View, q query, children bool) iter.Seq[*fleet.Job] {
	if len(req.Jobs) > 0 {
		return req.namedJobs(v, q)
	}
	return func(yield func(*fleet.Job) bool) {
		for j := range v.Jobs(q.namespace, q.prefix) {
			if (children || j.ParentID == "") && !yield(j) {
				return
			}
		}
	}
}

func (req statusesRequest) namedJobs(v *state.View, q query) iter.Seq[*fleet.Job] {
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

func jobStatus(v *state.View, j *fleet.Job) JobStatus {
	s := JobStatus{
		ID: j.ID, ParentID: j.ParentID, Namespace: j.Namespace, Name: j.Name, Type: j.Type, NodePool: j.NodePool, Datacenters: j.Datacenters,
		Priority: j.Priority, Version: j.Version, Stop: j.Stop, Status: j.Status, SubmitTime: j.SubmitTime,
		CreateIndex: j.CreateIndex, ModifyIndex: j.ModifyIndex, Allocs: []JobStatusAlloc{},
	}
	for _, g := range j.TaskGroups {
		s.GroupCountSum += g.Count
	}
	for al := range v.AllocsByJob(j.Namespace, j.ID) {
		if al.NextAllocation != "" {
			continue // another one took its place
		}
		s.Allocs = append(s.Allocs, JobStatusAlloc{
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

func deploymentLine(d *fleet.Deployment) *JobStatusDeployment {
	line := &JobStatusDeployment{
		ID: d.ID, IsActive: d.Active(), JobVersion: d.JobVersion, Status: d.Status,
		StatusDescription: d.StatusDescription, AllAutoPromote: len(d.TaskGroups) > 0,
	}
	for _, g := range d.TaskGroups {
		if g.DesiredCanaries == 0 {
			continue
		}
		line.AllAutoPromote = line.AllAutoPromote && g.AutoPromote
		line.RequiresPromotion = line.RequiresPromotion || !g.Promoted && !g.AutoPromote
	}
	return line
}
