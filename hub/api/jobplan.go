package api

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"strings"

	"skerry/api"
	"skerry/fleet"
	"skerry/fleet/cron"
	"skerry/fleet/diff"
	"skerry/fleet/validate"
)

// jobFile is the body of a request to parse a job file.
type jobFile struct {
	JobHCL       string
	Variables    string
	Canonicalize bool
}

// parseJob answers with the job that an HCL or JSON job file describes. It registers nothing.
func (a *API) parseJob(_ *http.Request, req jobFile) (any, fleet.Index, error) {
	if strings.TrimSpace(req.JobHCL) == "" {
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "parse a job file: JobHCL is empty")
	}
	job, err := a.cfg.Jobs.Parse(req.JobHCL, req.Variables)
	if err != nil {
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "%s", err.Error())
	}
	if req.Canonicalize {
		validate.FillDefaults(job)
	} else if job.Namespace == fleet.DefaultNamespace {
		job.Namespace = "" // it was filled in: the request that registers the job may name another
	}
	if err := tooLarge(job).Err(); err != nil {
		return nil, 0, err
	}
	return job, 0, nil
}

// validateJob answers with all problems and warnings of a job. The request succeeds even if the job is invalid or
// cannot be decoded.
func (a *API) validateJob(r *http.Request, raw struct{ Job json.RawMessage }) (any, fleet.Index, error) {
	answer := struct {
		DriverConfigValidated bool
		ValidationErrors      []string
		Error                 string
		Warnings              string
	}{DriverConfigValidated: true}
	job, problems, err := a.decodeJob(r, raw.Job)
	if err != nil {
		return nil, 0, err
	}
	if err := problems.Err(); err != nil {
		answer.Error = err.Error()
		answer.ValidationErrors = problems.Lines()
		return answer, 0, nil
	}
	answer.Warnings = a.joinWarnings(job)
	return answer, 0, nil
}

// byKind returns the counts that are not zero, by the names that Nomad's diffs have for them.
func byKind(u fleet.DesiredUpdates) map[string]uint64 {
	all := map[string]uint64{
		"ignore": u.Ignore, "create": u.Place, "destroy": u.Stop, "canary": u.Canary, "in-place update": u.InPlaceUpdate,
		"create/destroy update": u.DestructiveUpdate,
	}
	maps.DeleteFunc(all, func(_ string, n uint64) bool { return n == 0 })
	return all
}

// planJob answers with the changes that registering a job would make, in a state that has caught up with the leader.
func (a *API) planJob(r *http.Request, req api.JobPlanRequest) (any, fleet.Index, error) {
	job, err := a.decodeValidJob(r, req.Job)
	if err != nil {
		return nil, 0, err
	}
	if err := a.cfg.Cluster.CatchUp(r.Context()); err != nil {
		return nil, 0, err
	}
	return a.dryRun(r.Context(), job, req.Diff)
}

// dryRun returns the answer of planJob; withDiff adds the differences between the job and the registered version.
func (a *API) dryRun(ctx context.Context, job *fleet.Job, withDiff bool) (any, fleet.Index, error) {
	run, err := a.cfg.Jobs.DryRun(ctx, job)
	if err != nil {
		return nil, 0, err
	}
	v := a.cfg.State.View()
	answer := api.PlanAnswer{
		Annotations: api.PlanAnnotations{DesiredTGUpdates: run.Groups}, FailedTGAllocs: run.Failed, Reasons: run.Reasons, CreatedEvals: run.Created,
		Warnings: a.joinWarnings(job),
	}
	old, ok := v.Job(job.Namespace, job.ID)
	if ok {
		answer.JobModifyIndex = old.JobModifyIndex
	}
	if withDiff {
		d := diff.Jobs(old, job)
		for i := range d.TaskGroups {
			d.TaskGroups[i].Updates = byKind(run.Groups[d.TaskGroups[i].Name])
		}
		answer.Diff = &d
	}
	if p := job.Periodic; p != nil && p.Enabled && !job.Stop {
		if answer.NextPeriodicLaunch, err = cron.Next(*p, a.cfg.Now()); err != nil {
			return nil, 0, err
		}
	}
	return answer, v.Index(), nil
}
