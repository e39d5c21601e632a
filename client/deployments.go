package client

import (
	"context"
	"net/http"

	"skerry/api"
	"skerry/fleet"
)

// Deployments lists deployments.
func (c *Client) Deployments(ctx context.Context, l List) ([]fleet.Deployment, error) {
	return readList[fleet.Deployment](ctx, c, "/v1/deployments", l)
}

// DeploymentProgress reads the progress of a deployment, by task group and site.
func (c *Client) DeploymentProgress(ctx context.Context, id fleet.DeploymentID) (api.Progress, error) {
	return readAnswer[api.Progress](ctx, c, "/v1/deployment/progress"+joinPath(string(id)), nil)
}

// changeDeployment sends a change ("promote", "pause", "fail") of a deployment with the body req.
func (c *Client) changeDeployment(ctx context.Context, id fleet.DeploymentID, change string, req any) (api.DeploymentAnswer, error) {
	return writeRequest[api.DeploymentAnswer](ctx, c, http.MethodPut, "/v1/deployment"+joinPath(change, string(id)), nil, req)
}

// PromoteDeployment promotes the canaries of a deployment: of some task groups, of none named for all.
func (c *Client) PromoteDeployment(ctx context.Context, id fleet.DeploymentID, groups ...string) (api.DeploymentAnswer, error) {
	return c.changeDeployment(ctx, id, "promote", api.DeploymentPromoteRequest{DeploymentID: id, All: len(groups) == 0, Groups: groups})
}

// PauseDeployment pauses a deployment.
func (c *Client) PauseDeployment(ctx context.Context, id fleet.DeploymentID) (api.DeploymentAnswer, error) {
	return c.changeDeployment(ctx, id, "pause", api.DeploymentPauseRequest{DeploymentID: id, Pause: true})
}

// ResumeDeployment resumes a paused deployment.
func (c *Client) ResumeDeployment(ctx context.Context, id fleet.DeploymentID) (api.DeploymentAnswer, error) {
	return c.changeDeployment(ctx, id, "pause", api.DeploymentPauseRequest{DeploymentID: id})
}

// FailDeployment ends a deployment, and reverts its job where the job asks for that.
func (c *Client) FailDeployment(ctx context.Context, id fleet.DeploymentID) (api.DeploymentAnswer, error) {
	return c.changeDeployment(ctx, id, "fail", nil)
}

// Evals lists evaluations.
func (c *Client) Evals(ctx context.Context, l List) ([]fleet.Evaluation, error) {
	return readList[fleet.Evaluation](ctx, c, "/v1/evaluations", l)
}

// Eval reads an evaluation.
func (c *Client) Eval(ctx context.Context, id fleet.EvalID) (fleet.Evaluation, error) {
	return readAnswer[fleet.Evaluation](ctx, c, "/v1/evaluation"+joinPath(string(id)), nil)
}
