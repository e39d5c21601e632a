package api

import (
	"fmt"
	"net/http"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/state"
)

// revertJob registers an older version of a job again, as its newest version.
func (a *API) revertJob(r *http.Request, req api.JobRevertRequest) (any, fleet.Index, error) {
	current, older, err := a.versionOf(r, versionName{req.JobVersion, req.TaggedVersion})
	if err != nil {
		return nil, 0, err
	}
	switch {
	case req.EnforcePriorVersion != nil && *req.EnforcePriorVersion != current.Version:
		return nil, 0, fleet.Errorf(fleet.CodeConflict, "revert job %q: its current version is %d, not %d",
			current.ID, current.Version, *req.EnforcePriorVersion).WithHint("see what has changed with skerry job history")
	case older.Version == current.Version:
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "revert job %q: version %d is the current one", current.ID, older.Version).
			WithHint("name an older version, as skerry job history lists them")
	case older.Type != current.Type:
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "revert job %q: the type of version %d is %s, not %s", current.ID, older.Version, older.Type, current.Type)
	}
	if err := checkJob(a.cfg.State.View(), grantOf(r), older); err != nil { // it may mount what the newest version does not
		return nil, 0, err
	}
	now := a.cfg.Now().UnixNano()
	back := *older
	back.SubmitTime = now
	var eval *fleet.Evaluation
	if back.Starts() {
		eval = a.newEval(&back, fleet.TriggerJobRegister, now)
	}
	return commitAnswer(a, r, state.JobRegister{
		Job: &back, Eval: eval, EnforceIndex: true, CheckIndex: current.JobModifyIndex, Now: now,
	}, evalAnswer)
}

// markStable sets whether a version of a job is stable, so that a failed deployment may revert to it.
func (a *API) markStable(r *http.Request, req api.JobStableRequest) (any, fleet.Index, error) {
	job, _, err := a.versionOf(r, versionName{number: req.JobVersion})
	if err != nil {
		return nil, 0, err
	}
	type stableAnswer struct{ JobModifyIndex, Index fleet.Index }
	return commitAnswer(a, r, state.JobStable{
		Namespace: job.Namespace, ID: job.ID, Version: req.JobVersion, Stable: req.Stable, Now: a.cfg.Now().UnixNano(),
	}, func(res state.Result) stableAnswer { return stableAnswer{res.Modify, res.Index} })
}

// versionName names a version of a job by its number or tag.
type versionName struct {
	number uint64
	tag    string // "": by its number
}

// matchesVersion reports whether v is the version that n names.
func (n versionName) matchesVersion(v *fleet.Job) bool {
	if n.tag != "" {
		return v.VersionTag != nil && v.VersionTag.Name == n.tag
	}
	return v.Version == n.number
}

// String returns the version as error texts name it.
func (n versionName) String() string {
	if n.tag != "" {
		return fmt.Sprintf("version %q", n.tag)
	}
	return fmt.Sprintf("version %d", n.number)
}

// versionOf returns the newest version of the job in the request's path, and the version that name names.
// CodeNotFound: the version is not kept.
func (a *API) versionOf(r *http.Request, name versionName) (current, version *fleet.Job, err error) {
	if name.tag != "" && name.number != 0 {
		return nil, nil, fleet.Errorf(fleet.CodeInvalid, "read a version of job %q: both a number and a tag are given", jobID(r)).
			WithHint("give one of them")
	}
	if current, err = a.namedJob(r); err != nil {
		return nil, nil, err
	}
	for _, v := range a.cfg.State.View().JobVersions(current.Namespace, current.ID) {
		if name.matchesVersion(v) {
			return current, v, nil
		}
	}
	return nil, nil, fleet.Errorf(fleet.CodeNotFound, "%s of job %q does not exist or is no longer kept", name, current.ID).
		WithHint("skerry job history lists the versions")
}
