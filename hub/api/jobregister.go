package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"skerry/api"
	"skerry/fleet"
	"skerry/fleet/cron"
	"skerry/fleet/placement"
	"skerry/fleet/validate"
	"skerry/hub/state"
)

// registerJob validates a job and commits it with an evaluation. A job that only starts others (periodic,
// parameterized) and a stopped one get no evaluation.
func (a *API) registerJob(r *http.Request, req api.JobRegisterRequest) (any, fleet.Index, error) {
	job, err := a.decodeValidJob(r, req.Job)
	if err != nil {
		return nil, 0, err
	}
	if a.cfg.State.View().Scheduling().RejectJobRegistration {
		return nil, 0, fleet.Errorf(fleet.CodeForbidden, "register job %q: the scheduler configuration rejects registrations", job.ID).
			WithHint("an operator has set RejectJobRegistration")
	}
	source, warning, err := submittedSource(req.Submission)
	if err != nil {
		return nil, 0, err
	}
	now := a.cfg.Now().UnixNano()
	job.SubmitTime = now
	eval := a.newEval(job, fleet.TriggerJobRegister, now)
	if err := setEvalPriority(eval, req.EvalPriority); err != nil {
		return nil, 0, err
	}
	if !job.Starts() {
		eval = nil
	}
	return commitAnswer(a, r, state.JobRegister{
		Job: job, Eval: eval, EnforceIndex: req.EnforceIndex, CheckIndex: req.JobModifyIndex, Now: now,
		Submission: source, PreserveCounts: req.PreserveCounts, PreserveResources: req.PreserveResources,
	}, func(res state.Result) api.EvalAnswer {
		answer := evalAnswer(res)
		answer.Warnings = a.joinWarnings(job, warning)
		return answer
	})
}

// joinWarnings returns the warnings about a valid job, after others, one line each.
func (a *API) joinWarnings(job *fleet.Job, others ...string) string {
	var lines []string
	for _, line := range slices.Concat(others, validate.Warnings(job), a.nodeWarnings(job)) {
		if line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// nodeWarnings returns the warnings about drivers of a job that this release or that no node has, about identities, Vault and Consul.
func (a *API) nodeWarnings(job *fleet.Job) []string {
	v := a.cfg.State.View()
	anyNode := func(suits func(n *fleet.Node) bool) bool {
		for n := range v.Nodes("") {
			if suits(n) {
				return true
			}
		}
		return false
	}
	lines := validate.DriverWarnings(job, a.cfg.Drivers.Names, func(driver string) bool {
		return anyNode(func(n *fleet.Node) bool { return n.HasDriver(driver) })
	})
	lines = append(lines, validate.HiddenIdentities(job)...)
	lines = append(lines, validate.VaultWarnings(job, func() bool { return anyNode((*fleet.Node).HasVault) })...)
	lines = append(lines, validate.ConsulLoginWarnings(job, func() bool { return anyNode((*fleet.Node).HasConsulLogin) })...)
	return append(lines, validate.ConsulWarning(job, func() bool { return anyNode((*fleet.Node).HasConsul) }))
}

// decodeValidJob decodes the job in a request. The error of an invalid job names all its problems. A job id in the
// path must be the job's.
func (a *API) decodeValidJob(r *http.Request, raw json.RawMessage) (*fleet.Job, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, fleet.Errorf(fleet.CodeInvalid, "read the job: the request's body contains no job").
			WithHint("send {\"Job\": {…}}; an HCL file goes through /v1/jobs/parse first")
	}
	job, problems, err := a.decodeJob(r, raw)
	if err == nil {
		err = problems.Err()
	}
	if err != nil {
		return nil, err
	}
	if id := jobID(r); id != "" && id != job.ID {
		return nil, fleet.Errorf(fleet.CodeInvalid, "register job %q: the path names job %q", job.ID, id)
	}
	return job, nil
}

// decodeJob decodes a job, puts it into the request's namespace and returns it with all its problems. If raw is no
// job at all, it reports only that. It fails if the request's ACL token may not have such a job.
func (a *API) decodeJob(r *http.Request, raw json.RawMessage) (*fleet.Job, fleet.Problems, error) {
	job, problems := validate.DecodeJob(raw)
	if job.Type == "" { // raw is no job at all: every other check would fail, too
		return job, problems, nil
	}
	clearHubFields(job)
	intoNamespace(r, job)
	if err := checkJob(a.cfg.State.View(), grantOf(r), job); err != nil {
		return job, nil, err
	}
	problems = slices.Concat(problems, placement.Problems(job), validate.Job(job), cron.Problems(job, a.cfg.Now()), validate.Unsupported(job), a.namespaceProblems(r, job))
	return job, slices.Concat(problems, a.cfg.Drivers.Configs.Problems(job), a.regionProblems(job), tooLarge(job)), nil
}

// clearHubFields clears the fields that only hubs set, and adds those that were set to job.Ignored. So a
// registration can neither stop a job nor make it the child of another one.
func clearHubFields(job *fleet.Job) {
	for _, f := range []struct {
		name string
		said bool
	}{
		{"Stop", job.Stop}, {"ParentID", job.ParentID != ""}, {"Dispatched", job.Dispatched},
		{"DispatchIdempotencyToken", job.DispatchIdempotencyToken != ""}, {"Payload", len(job.Payload) > 0},
	} {
		if f.said {
			job.Ignored = append(job.Ignored, f.name)
		}
	}
	job.Stop, job.ParentID, job.Dispatched, job.DispatchIdempotencyToken, job.Payload = false, "", false, "", nil
}

const oneRegion = "leave region out, or ask a hub of that region: a cluster is one region, and does not forward requests"

// regionProblems returns the problem of a job for another region; nil: there is none. The default region "global"
// fits every cluster.
func (a *API) regionProblems(job *fleet.Job) fleet.Problems {
	if own := a.cfg.Cluster.Self().Region; job.Region != own && job.Region != fleet.DefaultRegion {
		return fleet.Problems{{
			Path: "Region", Message: fmt.Sprintf("the job is for region %q, and this cluster's is %q", job.Region, own),
			Hint: oneRegion,
		}}
	}
	return nil
}

// tooLarge returns the problem of a job that exceeds the size that can be sent to an edge; nil: it fits.
func tooLarge(job *fleet.Job) fleet.Problems {
	if why := state.CheckSpec(job); why != "" {
		return fleet.Problems{{Message: why, Hint: "split the job, or let its tasks fetch large data"}}
	}
	return nil
}

// newEval returns a new pending evaluation of a job; now is in nanoseconds since 1970.
func (a *API) newEval(job *fleet.Job, trigger string, now int64) *fleet.Evaluation {
	return &fleet.Evaluation{
		ID: fleet.EvalID(a.cfg.NewID()), Namespace: job.Namespace, Priority: job.Priority, Type: job.Type,
		TriggeredBy: trigger, JobID: job.ID, Status: fleet.EvalPending, CreateTime: now, ModifyTime: now,
	}
}

// setEvalPriority sets the priority of an evaluation; 0 leaves that of its job. It fails if the priority is out of
// range.
func setEvalPriority(e *fleet.Evaluation, priority int) error {
	switch {
	case priority == 0:
	case priority < fleet.JobPriorityMin || priority > fleet.JobPriorityMax:
		return fleet.Errorf(fleet.CodeInvalid, "evaluate job %q: EvalPriority %d is not within %d to %d",
			e.JobID, priority, fleet.JobPriorityMin, fleet.JobPriorityMax)
	default:
		e.Priority = priority
	}
	return nil
}

// evalAnswer makes the answer from the result of the committed entry. It does not read the state, which may lack the
// entry or have a later change.
func evalAnswer(res state.Result) api.EvalAnswer {
	answer := api.EvalAnswer{EvalID: res.Eval, JobModifyIndex: res.Modify, Index: res.Index}
	if res.Eval != "" {
		answer.EvalCreateIndex = res.Index
	}
	return answer
}

// deregisterJob stops a job, and with purge=true removes it. A job that does not exist is no error.
func (a *API) deregisterJob(r *http.Request) (any, fleet.Index, error) {
	q, err := parseQuery(r)
	if err != nil {
		return nil, 0, err
	}
	purge, err := queryFlag(r, "purge", false)
	if err != nil {
		return nil, 0, err
	}
	without, err := noDelay(r)
	if err != nil {
		return nil, 0, err
	}
	if err := a.cfg.Cluster.CatchUp(r.Context()); err != nil {
		return nil, 0, err
	}
	priority := 0
	if s := r.URL.Query().Get("eval_priority"); s != "" {
		if priority, err = strconv.Atoi(s); err != nil {
			return nil, 0, fleet.Errorf(fleet.CodeInvalid, "read the parameter eval_priority: %q is not a whole number", s)
		}
	}
	job, ok := a.cfg.State.View().Job(q.namespace, jobID(r))
	if !ok {
		return api.EvalAnswer{}, 0, nil // there is nothing to stop
	}
	now := a.cfg.Now().UnixNano()
	eval := a.newEval(job, fleet.TriggerJobDeregister, now)
	if err := setEvalPriority(eval, priority); err != nil {
		return nil, 0, err
	}
	if !job.Starts() {
		eval = nil
	}
	return commitAnswer(a, r, state.JobDeregister{Namespace: job.Namespace, ID: job.ID, Purge: purge, Eval: eval, Now: now, NoShutdownDelay: without}, evalAnswer)
}
