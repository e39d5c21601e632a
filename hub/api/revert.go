package api

import (
	"fmt"
	"net/http"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/state"
)

// revertJob registers an older version of a job again, as a new version.
func (a *API) revertJob(r *http.Request) (any, fleet.Index, error) {
	var req api.JobRevertRequest
	current, older, err := a.versionOf(r, &req, func() versionName {
		return versionName{req.JobID, req.JobVersion, req.TaggedVersion}
	})
	if err != nil {
		return nil, 0, err
	}
	switch {
	case req.EnforcePriorVersion != nil && *req.EnforcePriorVersion != current.Version:
		return nil, 0, fleet.Errorf(fleet.CodeConflict, "revert job %q: it is at version %d, and not at %d",
			current.ID, current.Version, *req.EnforcePriorVersion).WithHint("look at what has changed")
	case older.Version == current.Version:
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "revert job %q: version %d is the current one", current.ID, older.Version).
			WithHint("name an older version, as skerry job history lists them")
	case older.Type != current.Type:
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "revert job %q: version %d is of type %s, and not %s", current.ID, older.Version, older.Type, current.Type)
	}
	now := a.cfg.Now().UnixNano()
	back := *older
	back.SubmitTime = now
	var eval *fleet.Evaluation
	if back.Starts() {
		eval = a.newEval(&back, fleet.TriggerJobRegister, now)
	}
	res, err := a.commitCommand(r.Context(), state.JobRegister{
		Job: &back, Eval: eval, EnforceIndex: true, CheckIndex: current.JobModifyIndex, Now: now,
	})
	if err != nil {
		return nil, res.Index, err
	}
	return evalAnswer(res), res.Index, nil
}

func (a *API) markStable(r *http.Request) (any, fleet.Index, error) {
	var req api.JobStableRequest
	job, _, err := a.versionOf(r, &req, func() versionName { return versionName{id: req.JobID, number: req.JobVersion} })
	if err != nil {
		return nil, 0, err
	}
	res, err := a.commitCommand(r.Context(), state.JobStable{
		Namespace: job.Namespace, ID: job.ID, Version: req.JobVersion, Stable: req.Stable, Now: a.cfg.Now().UnixNano(),
	})
	if err != nil {
		return nil, res.Index, err
	}
	return struct{ JobModifyIndex, Index fleet.Index }{res.Modify, res.Index}, res.Index, nil
}

// versionName is how a request names a version of a job.
type versionName struct {
	id     fleet.JobID // "": the one of the path
	number uint64
	tag    string // "": by its number
}

func (n versionName) matchesVersion(v *fleet.Job) bool {
	if n.tag != "" {
		return v.VersionTag != nil && v.VersionTag.Name == n.tag
	}
	return v.Version == n.number
}

func (n versionName) String() string {
	if n.tag != "" {
		return fmt.Sprintf("version %q", n.tag)
	}
	return fmt.Sprintf("version %d", n.number)
}

// versionOf reads a request about one version of a job, which says which one that is
// once it is read: the job as it is now, and that version of it.
func (a *API) versionOf(r *http.Request, req any, which func() versionName) (current, version *fleet.Job, err error) {
	q, err := parseQuery(r)
	if err != nil {
		return nil, nil, err
	}
	if err := a.decodeBody(r, req); err != nil {
		return nil, nil, err
	}
	name := which()
	switch {
	case name.id != "" && name.id != jobID(r):
		return nil, nil, fleet.Errorf(fleet.CodeInvalid, "read a version of job %q: the body names job %q", jobID(r), name.id)
	case name.tag != "" && name.number != 0:
		return nil, nil, fleet.Errorf(fleet.CodeInvalid, "read a version of job %q: both a number and a tag are given", jobID(r)).
			WithHint("give one of them")
	}
	if err := a.cfg.Cluster.CatchUp(r.Context()); err != nil {
		return nil, nil, err
	}
	view := a.cfg.State.View()
	if current, err = needJob(view, r, q); err != nil {
		return nil, nil, err
	}
	for _, v := range view.JobVersions(current.Namespace, current.ID) {
		if name.matchesVersion(v) {
			return current, v, nil
		}
	}
	return nil, nil, fleet.Errorf(fleet.CodeNotFound, "%s of job %q is not kept", name, current.ID).
		WithHint("skerry job history lists the versions that are")
}
