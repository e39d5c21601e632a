package api

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"skerry/api"
	"skerry/fleet"
	"skerry/fleet/placement"
	"skerry/fleet/validate"
	"skerry/hub/state"
)

func (a *API) childEndpoints() []endpoint {
	return []endpoint{
		{writes, "/v1/job/{id}/dispatch", inRequestNamespace("dispatch-job"), writeBody(a, a.dispatchJob)},
		{writes, "/v1/job/{id}/dispatch/payload", inRequestNamespace("dispatch-job"), a.bodyHandler(a.dispatchBody)},
		{writes, "/v1/job/{id}/periodic/force", inRequestNamespace("dispatch-job", "submit-job"), a.writeHandler(a.forcePeriodic)},
	}
}

// namedJob waits until this hub has caught up with the leader, and returns the job that the request's path and
// namespace name. Requests that change a job use it.
func (a *API) namedJob(r *http.Request) (*fleet.Job, error) {
	if _, err := parseQuery(r); err != nil {
		return nil, err
	}
	if err := a.cfg.Cluster.CatchUp(r.Context()); err != nil {
		return nil, err
	}
	return needJob(a.cfg.State.View(), r)
}

// dispatchID returns the id of a dispatched job: parent, prefix, time, and a short form of unique, which
// distinguishes jobs that are dispatched in the same second.
func dispatchID(parent fleet.JobID, prefix string, at time.Time, unique string) fleet.JobID {
	if prefix != "" {
		prefix += "-"
	}
	return fleet.JobID(fmt.Sprintf("%s%s%d-%s", fleet.DispatchPrefix(parent), prefix, at.Unix(), fleet.Short(unique)))
}

// dispatchedChild returns the job with an id that a dispatch of j registers. The child of a periodic job is periodic
// too: it runs at its times, not when it is dispatched.
func dispatchedChild(j *fleet.Job, id fleet.JobID, now time.Time) *fleet.Job {
	c := j.Child(id, now)
	c.Dispatched, c.Periodic = true, j.Periodic
	return c
}

// dispatchBody dispatches a parameterized job with the request's body as the payload, byte for byte. Senders of
// webhooks, which cannot put their text into JSON, use it.
func (a *API) dispatchBody(r *http.Request) (any, fleet.Index, error) {
	payload, err := readBytes(r)
	if err != nil {
		return nil, 0, err
	}
	return a.dispatchJob(r, api.JobDispatchRequest{Payload: payload})
}

// dispatchJob registers a child of a parameterized job with the request's payload and meta, and an evaluation of it.
// A request whose idempotency_token was used before is answered with the child of that time.
func (a *API) dispatchJob(r *http.Request, req api.JobDispatchRequest) (any, fleet.Index, error) {
	job, err := a.namedJob(r)
	if err != nil {
		return nil, 0, err
	}
	if err := validate.Dispatch(job, req.Payload, req.Meta); err != nil {
		return nil, 0, err
	}
	now := a.cfg.Now()
	child := dispatchedChild(job, dispatchID(job.ID, req.IdPrefixTemplate, now, a.cfg.NewID()), now)
	child.Payload, child.DispatchIdempotencyToken = req.Payload, r.URL.Query().Get("idempotency_token")
	child.Meta = map[string]string{}
	maps.Copy(child.Meta, job.Meta)
	maps.Copy(child.Meta, req.Meta)
	if req.Priority != 0 {
		child.Priority = req.Priority
	}
	if err := slices.Concat(placement.Problems(child), validate.Job(child), tooLarge(child)).Err(); err != nil {
		return nil, 0, err
	}
	dispatch := state.JobDispatch{Namespace: job.Namespace, ID: job.ID, JobModifyIndex: job.JobModifyIndex, Child: child, Now: now.UnixNano()}
	if child.Starts() {
		dispatch.Eval = a.newEval(child, fleet.TriggerJobRegister, now.UnixNano())
	}
	return commitAnswer(a, r, dispatch, func(res state.Result) api.DispatchAnswer {
		answer := api.DispatchAnswer{DispatchedJobID: res.Child, EvalID: res.Eval, JobCreateIndex: res.Created, Index: res.Index}
		if res.Eval != "" {
			answer.EvalCreateIndex = res.Index
		}
		return answer
	})
}

// launchAnswer answers the launch of a periodic job.
type launchAnswer struct {
	EvalID          fleet.EvalID
	EvalCreateIndex fleet.Index
	Index           fleet.Index
}

// forcePeriodic launches a periodic job now. Its regular launches stay as they are.
func (a *API) forcePeriodic(r *http.Request) (any, fleet.Index, error) {
	job, err := a.namedJob(r)
	if err != nil {
		return nil, 0, err
	}
	if job.RunsAtEdge() {
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "launch job %s: its nodes launch it, and only at its times (run_at_edge)", job.ID).
			WithHint("register a batch job that does the same, for a run now")
	}
	now := a.cfg.Now()
	child := job.Child(fleet.LaunchID(job.ID, now), now)
	return commitAnswer(a, r, state.PeriodicLaunch{
		Namespace: job.Namespace, ID: job.ID, JobModifyIndex: job.JobModifyIndex, Force: true, Child: child,
		Eval: a.newEval(child, fleet.TriggerPeriodicJob, now.UnixNano()), Now: now.UnixNano(),
	}, func(res state.Result) launchAnswer { return launchAnswer{res.Eval, res.Index, res.Index} })
}
