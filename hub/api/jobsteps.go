package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"skerry/api"
	"skerry/fleet"
	"skerry/fleet/diff"
	"skerry/hub/state"
)

func (a *API) stepEndpoints() []endpoint {
	return []endpoint{
		{"GET", "/v1/job/{id}/scale", inRequestNamespace("read-job", "read-job-scaling"), readObject(a, "jobs", needJob, a.scaleStatus)},
		{writes, "/v1/job/{id}/scale", inRequestNamespace("scale-job", "submit-job"), writeBody(a, a.scaleJob)},
		{writes, "/v1/job/{id}/evaluate", inRequestNamespace("read-job"), writeOptionalBody(a, a.evaluateJob)},
		{"GET", "/v1/job/{id}/submission", inRequestNamespace("read-job"), readObject(a, "jobs", needJob, a.readSubmission)},
		{writes, "/v1/job/{id}/versions/{tag}/tag", inRequestNamespace("submit-job"), writeBody(a, a.tagVersion)},
		{"DELETE", "/v1/job/{id}/versions/{tag}/tag", inRequestNamespace("submit-job"), a.writeHandler(a.untagVersion)},
	}
}

// validateScale returns an error if a request to scale the job id is invalid.
func validateScale(req api.JobScaleRequest, id fleet.JobID) error {
	wrong := func(format string, args ...any) error {
		return fleet.Errorf(fleet.CodeInvalid, "scale job %s: %s", id, fmt.Sprintf(format, args...))
	}
	meta, err := json.Marshal(req.Meta)
	switch {
	case req.Target["Group"] == "":
		return fleet.AsError(wrong("no group is named")).WithHint(`send {"Target": {"Group": …}}`)
	case req.Target["Job"] != "" && req.Target["Job"] != string(id):
		return wrong("the target is job %q", req.Target["Job"])
	case req.Error && req.Count != nil:
		return wrong("both an error and a count are given")
	case req.Count != nil && (*req.Count < 0 || *req.Count > fleet.JobCountMax):
		return wrong("count %d is not within 0 to %d", *req.Count, fleet.JobCountMax)
	case len(req.Message) > fleet.MaxScalingMessage:
		return wrong("the message has %d bytes, at most %d are allowed", len(req.Message), fleet.MaxScalingMessage)
	case err != nil || len(meta) > fleet.MaxScalingMeta:
		return wrong("the meta has %d bytes as JSON, at most %d are allowed", len(meta), fleet.MaxScalingMeta)
	}
	return nil
}

// scaleJob changes the count of a group, or without a count records the message of an autoscaler as a scaling event.
func (a *API) scaleJob(r *http.Request, req api.JobScaleRequest) (any, fleet.Index, error) {
	job, err := a.namedJob(r)
	if err != nil {
		return nil, 0, err
	}
	if err := validateScale(req, job.ID); err != nil {
		return nil, 0, err
	}
	now := a.cfg.Now().UnixNano()
	c := state.JobScale{
		Namespace: job.Namespace, ID: job.ID, JobModifyIndex: req.JobModifyIndex, Group: req.Target["Group"],
		Message: req.Message, Error: req.Error, Meta: req.Meta, Now: now,
	}
	if req.Count != nil {
		count := int(*req.Count)
		if _, err := state.ScaledJob(job, c.Group, count); err != nil {
			return nil, 0, err
		}
		c.Count = &count
		if job.Starts() {
			c.Eval = a.newEval(job, fleet.TriggerScaling, now)
		}
	}
	return commitAnswer(a, r, c, evalAnswer)
}

// scaleStatus answers with the wanted and actual counts of a job's groups, and their scaling events.
func (a *API) scaleStatus(v *state.View, _ *http.Request, _ query, j *fleet.Job) (any, fleet.Index, error) {
	events := v.ScalingEvents(j.Namespace, j.ID)
	answer := api.ScaleStatus{
		JobID: j.ID, Namespace: j.Namespace, JobCreateIndex: j.CreateIndex, JobModifyIndex: j.JobModifyIndex,
		JobStopped: j.Stop, TaskGroups: map[string]api.GroupScale{},
	}
	for _, g := range j.TaskGroups {
		answer.TaskGroups[g.Name] = api.GroupScale{Desired: g.Count, Events: events[g.Name]}
	}
	for al := range v.AllocsByJob(j.Namespace, j.ID) {
		g, ok := answer.TaskGroups[al.TaskGroup]
		if !ok || al.Terminal() {
			continue
		}
		g.Placed++
		if al.ClientStatus == fleet.ClientRunning {
			g.Running++
		}
		if d := al.DeploymentStatus; d != nil && d.Healthy != nil {
			if *d.Healthy {
				g.Healthy++
			} else {
				g.Unhealthy++
			}
		}
		answer.TaskGroups[al.TaskGroup] = g
	}
	return answer, max(v.TableIndex("jobs"), v.TableIndex("allocs")), nil
}

// evaluateJob creates an evaluation of a job. ForceReschedule replaces failed allocations without waiting for their
// delay.
func (a *API) evaluateJob(r *http.Request, req api.JobEvaluateRequest) (any, fleet.Index, error) {
	job, err := a.namedJob(r)
	if err != nil {
		return nil, 0, err
	}
	now := a.cfg.Now().UnixNano()
	return commitAnswer(a, r, state.JobEvaluate{
		Namespace: job.Namespace, ID: job.ID, ForceReschedule: req.EvalOptions.ForceReschedule,
		Eval: a.newEval(job, fleet.TriggerJobRegister, now), Now: now,
	}, evalAnswer)
}

// readSubmission answers with the job file of a version (by default the newest), if one is kept.
func (a *API) readSubmission(v *state.View, r *http.Request, q query, j *fleet.Job) (any, fleet.Index, error) {
	version := j.Version
	if s := r.URL.Query().Get("version"); s != "" {
		var err error
		if version, err = strconv.ParseUint(s, 10, 64); err != nil {
			return nil, 0, fleet.Errorf(fleet.CodeInvalid, "read the parameter version: %q is not a whole number", s)
		}
	}
	for _, kept := range v.JobVersions(j.Namespace, j.ID) {
		if kept.Version != version {
			continue
		}
		source := v.Submission(j.Namespace, j.ID, version)
		if source == nil {
			return nil, v.TableIndex("jobs"), fleet.Errorf(fleet.CodeNotFound, "read the submission of job %q: the file of version %d is not kept", j.ID, version).
				WithHint("a file is kept if the registration has it, as that of skerry job run, and if it has at most %d bytes", fleet.MaxSubmission)
		}
		return api.SubmissionAnswer{
			Submission: *source, Namespace: j.Namespace, JobID: j.ID, Version: version, JobModifyIndex: kept.JobModifyIndex,
		}, v.TableIndex("jobs"), nil
	}
	return nil, v.TableIndex("jobs"), fleet.Errorf(fleet.CodeNotFound, "read the submission of job %q: version %d does not exist or is no longer kept", j.ID, version)
}

// submittedSource returns the job file that comes with a registration; nil: there is none. A file above
// fleet.MaxSubmission is dropped, and the string is a warning that says so. An unknown format is an error.
func submittedSource(s *fleet.Submission) (*fleet.Submission, string, error) {
	if s == nil || s.Source == "" {
		return nil, "", nil
	}
	if !slices.Contains([]string{fleet.FormatHCL1, fleet.FormatHCL2, fleet.FormatJSON}, s.Format) {
		return nil, "", fleet.Errorf(fleet.CodeInvalid, "read the submitted job file: its format %q is not known", s.Format).
			WithHint("it is %s or %s", fleet.FormatHCL2, fleet.FormatJSON)
	}
	if size := submissionSize(s); size > fleet.MaxSubmission {
		return nil, fmt.Sprintf("the job file has %d bytes, more than %d, and is not kept", size, fleet.MaxSubmission), nil
	}
	return s, "", nil
}

// submissionSize returns the bytes of a job file and its variables, which fleet.MaxSubmission bounds.
func submissionSize(s *fleet.Submission) int {
	n := len(s.Source) + len(s.Variables)
	for k, v := range s.VariableFlags {
		n += len(k) + len(v)
	}
	return n
}

// maxTagName and maxTagDescription bound a version's tag, in bytes.
const (
	maxTagName        = 128
	maxTagDescription = 1000
)

// tagVersion gives a version of a job a tag, and answers with the tag.
func (a *API) tagVersion(r *http.Request, req api.JobTagRequest) (any, fleet.Index, error) {
	name := r.PathValue("tag")
	if len(name) > maxTagName || len(req.Description) > maxTagDescription {
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "tag a version of job %q: a name has at most %d bytes, a description %d",
			jobID(r), maxTagName, maxTagDescription)
	}
	tag := fleet.JobVersionTag{Name: name, Description: req.Description, TaggedTime: a.cfg.Now().UnixNano()}
	index, err := a.changeTag(r, state.JobTag{Version: req.Version, Latest: req.Latest, Tag: tag})
	return tag, index, err
}

// untagVersion removes a tag from the version of a job that has it.
func (a *API) untagVersion(r *http.Request) (any, fleet.Index, error) {
	index, err := a.changeTag(r, state.JobTag{Tag: fleet.JobVersionTag{Name: r.PathValue("tag")}, Unset: true})
	return struct{}{}, index, err
}

// changeTag commits a change of a tag, for the job that the request names, and returns the entry's index.
func (a *API) changeTag(r *http.Request, c state.JobTag) (fleet.Index, error) {
	job, err := a.namedJob(r)
	if err != nil {
		return 0, err
	}
	c.Namespace, c.ID = job.Namespace, job.ID
	res, err := a.commitCommand(r.Context(), c)
	return res.Index, err
}

// jobDiffs compares each version with the next older one, or each with the version that diff_tag or diff_version
// names. versions is ordered from the newest to the oldest.
func jobDiffs(r *http.Request, versions []*fleet.Job) ([]diff.Job, error) {
	p := r.URL.Query()
	tag, number := p.Get("diff_tag"), p.Get("diff_version")
	var diffs []diff.Job
	if tag == "" && number == "" {
		for i := 0; i+1 < len(versions); i++ {
			diffs = append(diffs, diff.Jobs(versions[i+1], versions[i]))
		}
		return diffs, nil
	}
	if tag != "" && number != "" {
		return nil, fleet.Errorf(fleet.CodeInvalid, "compare versions: both diff_tag and diff_version are given").WithHint("give one of them")
	}
	base, err := baseOf(versions, tag, number)
	if err != nil {
		return nil, err
	}
	for _, v := range versions {
		diffs = append(diffs, diff.Jobs(base, v))
	}
	return diffs, nil
}

// baseOf returns the version with a tag, or with a number; one of the two is "".
func baseOf(versions []*fleet.Job, tag, number string) (*fleet.Job, error) {
	n, err := strconv.ParseUint(number, 10, 64)
	if number != "" && err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "compare versions: diff_version %q is not a whole number", number)
	}
	for _, v := range versions {
		if number != "" && v.Version == n || tag != "" && v.VersionTag != nil && v.VersionTag.Name == tag {
			return v, nil
		}
	}
	if tag != "" {
		return nil, fleet.Errorf(fleet.CodeNotFound, "compare versions: no version has the tag %q", tag)
	}
	return nil, fleet.Errorf(fleet.CodeNotFound, "compare versions: version %d does not exist or is no longer kept", n)
}
