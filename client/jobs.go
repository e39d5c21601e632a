package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"skerry/api"
	"skerry/fleet"
)

func jobPath(id fleet.JobID, more string) string { return "/v1/job" + joinPath(string(id)) + more }

// Jobs lists jobs.
func (c *Client) Jobs(ctx context.Context, l List) ([]api.JobStub, error) {
	return readList[api.JobStub](ctx, c, "/v1/jobs", l)
}

// Job reads a job.
func (c *Client) Job(ctx context.Context, id fleet.JobID) (*fleet.Job, error) {
	return readAnswer[*fleet.Job](ctx, c, jobPath(id, ""), nil)
}

// JobSummary counts a job's allocations by task group and client status.
func (c *Client) JobSummary(ctx context.Context, id fleet.JobID) (fleet.JobSummary, error) {
	return readAnswer[fleet.JobSummary](ctx, c, jobPath(id, "/summary"), nil)
}

// JobAllocs lists the allocations of a job.
func (c *Client) JobAllocs(ctx context.Context, id fleet.JobID, l List) ([]api.AllocStub, error) {
	return readList[api.AllocStub](ctx, c, jobPath(id, "/allocations"), l)
}

// JobEvals lists the evaluations of a job.
func (c *Client) JobEvals(ctx context.Context, id fleet.JobID) ([]fleet.Evaluation, error) {
	return readList[fleet.Evaluation](ctx, c, jobPath(id, "/evaluations"), List{})
}

// JobDeployments lists the deployments of a job, the newest first.
func (c *Client) JobDeployments(ctx context.Context, id fleet.JobID, l List) ([]fleet.Deployment, error) {
	return readList[fleet.Deployment](ctx, c, jobPath(id, "/deployments"), l)
}

// JobDeployment reads the newest deployment of a job; nil: there is none.
func (c *Client) JobDeployment(ctx context.Context, id fleet.JobID) (*fleet.Deployment, error) {
	return readAnswer[*fleet.Deployment](ctx, c, jobPath(id, "/deployment"), nil)
}

// VersionsQuery says what the versions of a job are compared with.
type VersionsQuery struct {
	Diffs       bool
	DiffTag     string // "": each version with the one before
	DiffVersion string // likewise
}

// JobVersions reads the versions of a job that are kept, the newest first.
func (c *Client) JobVersions(ctx context.Context, id fleet.JobID, v VersionsQuery) (api.JobVersionsAnswer, error) {
	q := url.Values{"diffs": {flag(v.Diffs)}, "diff_tag": {v.DiffTag}, "diff_version": {v.DiffVersion}}
	return readAnswer[api.JobVersionsAnswer](ctx, c, jobPath(id, "/versions"), q)
}

// JobSubmission reads the job file of a version; "" is the newest.
func (c *Client) JobSubmission(ctx context.Context, id fleet.JobID, version string) (api.SubmissionAnswer, error) {
	return readAnswer[api.SubmissionAnswer](ctx, c, jobPath(id, "/submission"), url.Values{"version": {version}})
}

// JobActions lists the actions of a job.
func (c *Client) JobActions(ctx context.Context, id fleet.JobID) ([]api.JobAction, error) {
	return readAnswer[[]api.JobAction](ctx, c, jobPath(id, "/actions"), nil)
}

// RegisterJob registers a job. It sets Job of the request.
func (c *Client) RegisterJob(ctx context.Context, job *fleet.Job, req api.JobRegisterRequest) (api.EvalAnswer, error) {
	var err error
	if req.Job, err = json.Marshal(job); err != nil {
		return api.EvalAnswer{}, fmt.Errorf("register job %q: %w", job.ID, err)
	}
	return writeRequest[api.EvalAnswer](ctx, c, http.MethodPost, "/v1/jobs", nil, req)
}

// PlanJob says what a registration would change.
func (c *Client) PlanJob(ctx context.Context, job *fleet.Job) (api.PlanAnswer, error) {
	b, err := json.Marshal(job)
	if err != nil {
		return api.PlanAnswer{}, fmt.Errorf("plan job %q: %w", job.ID, err)
	}
	return writeRequest[api.PlanAnswer](ctx, c, http.MethodPost, jobPath(job.ID, "/plan"), nil, api.JobPlanRequest{Job: b, Diff: true})
}

// StopOptions say how a job or an allocation is stopped.
type StopOptions struct {
	Purge           bool // a job: remove it from the hubs, too
	NoShutdownDelay bool
}

// StopJob stops a job.
func (c *Client) StopJob(ctx context.Context, id fleet.JobID, o StopOptions) (api.EvalAnswer, error) {
	q := url.Values{"purge": {flag(o.Purge)}, "no_shutdown_delay": {flag(o.NoShutdownDelay)}}
	return writeRequest[api.EvalAnswer](ctx, c, http.MethodDelete, jobPath(id, ""), q, nil)
}

// RevertJob registers an older version of a job again.
func (c *Client) RevertJob(ctx context.Context, req api.JobRevertRequest) (api.EvalAnswer, error) {
	return writeRequest[api.EvalAnswer](ctx, c, http.MethodPut, jobPath(req.JobID, "/revert"), nil, req)
}

// ScaleJob changes the count of a task group.
func (c *Client) ScaleJob(ctx context.Context, id fleet.JobID, req api.JobScaleRequest) (api.EvalAnswer, error) {
	return writeRequest[api.EvalAnswer](ctx, c, http.MethodPost, jobPath(id, "/scale"), nil, req)
}

// ScaleStatus reads how the task groups of a job are scaled.
func (c *Client) ScaleStatus(ctx context.Context, id fleet.JobID) (api.ScaleStatus, error) {
	return readAnswer[api.ScaleStatus](ctx, c, jobPath(id, "/scale"), nil)
}

// EvaluateJob creates an evaluation for a job.
func (c *Client) EvaluateJob(ctx context.Context, id fleet.JobID, o api.EvalOptions) (api.EvalAnswer, error) {
	return writeRequest[api.EvalAnswer](ctx, c, http.MethodPut, jobPath(id, "/evaluate"), nil, api.JobEvaluateRequest{JobID: id, EvalOptions: o})
}

// DispatchJob runs a parameterized job once: with the same token ("": none) only the first time.
func (c *Client) DispatchJob(ctx context.Context, id fleet.JobID, token string, req api.JobDispatchRequest) (api.DispatchAnswer, error) {
	return writeRequest[api.DispatchAnswer](ctx, c, http.MethodPut, jobPath(id, "/dispatch"), url.Values{"idempotency_token": {token}}, req)
}

// ForcePeriodicJob launches a periodic job now.
func (c *Client) ForcePeriodicJob(ctx context.Context, id fleet.JobID) (api.EvalAnswer, error) {
	return writeRequest[api.EvalAnswer](ctx, c, http.MethodPut, jobPath(id, "/periodic/force"), nil, nil)
}

// TagJobVersion gives a version of a job a tag.
func (c *Client) TagJobVersion(ctx context.Context, id fleet.JobID, tag string, req api.JobTagRequest) error {
	_, err := writeRequest[noAnswer](ctx, c, http.MethodPost, jobPath(id, "/versions"+joinPath(tag)+"/tag"), nil, req)
	return err
}

// UntagJobVersion removes a tag of a job's version.
func (c *Client) UntagJobVersion(ctx context.Context, id fleet.JobID, tag string) error {
	return c.sendDelete(ctx, jobPath(id, "/versions"+joinPath(tag)+"/tag"), nil)
}

// ScalingPolicies lists scaling policies.
func (c *Client) ScalingPolicies(ctx context.Context, l List) ([]api.ScalingStub, error) {
	return readList[api.ScalingStub](ctx, c, "/v1/scaling/policies", l)
}

// ScalingPolicy reads a scaling policy.
func (c *Client) ScalingPolicy(ctx context.Context, id string) (api.ScalingPolicy, error) {
	return readAnswer[api.ScalingPolicy](ctx, c, "/v1/scaling/policy"+joinPath(id), nil)
}
