package state

import (
	"iter"
	"strings"

	"skerry/fleet"
)

// PeriodicLaunch registers a child of a periodic job, and records its launch time in the same entry: no
// leader launches a recorded time again. If the job prohibits overlap and a child of it is not dead, the
// time is recorded and no child is registered.
type PeriodicLaunch struct {
	command
	Namespace      string
	ID             fleet.JobID
	JobModifyIndex fleet.Index // of the job that Child was made from; another one is refused (conflict)
	// Launched becomes the newest launch time of the job (UnixNano). Times up to it are not launched
	// again.
	Launched int64
	Force    bool // an operator asks for it: the launch time of the job stays as it is
	Child    *fleet.Job
	Eval     *fleet.Evaluation
	Now      int64
}

// JobDispatch registers a child of a parameterized job. A second command with the same idempotency token
// registers no other child; its Result names the first one.
type JobDispatch struct {
	command
	Namespace      string
	ID             fleet.JobID
	JobModifyIndex fleet.Index
	Child          *fleet.Job
	Eval           *fleet.Evaluation
	Now            int64
}

// findParentJob returns the job that a child is to be made from. It fails if the job is missing or
// stopped, or if its JobModifyIndex is not index. verb begins the error.
func (t *tx) findParentJob(verb, ns string, id fleet.JobID, index fleet.Index) (*jobRow, *fleet.Error) {
	row := jobTable.currentRow(t, jobKeyOf(ns, id))
	switch {
	case row == nil:
		return nil, fleet.Errorf(fleet.CodeNotFound, "%s job %s: there is no such job", verb, id)
	case row.job.Stop:
		return nil, fleet.Errorf(fleet.CodeConflict, "%s job %s: it is stopped", verb, id)
	case row.job.JobModifyIndex != index:
		return nil, fleet.Errorf(fleet.CodeConflict, "%s job %s: it has changed", verb, id).WithHint("try again")
	}
	return row, nil
}

// periodicLaunch applies the command PeriodicLaunch: it registers a child of a periodic job and records
// the launch time. Result.Child is "" if the job prohibits overlap and another child is not dead.
func (t *tx) periodicLaunch(c PeriodicLaunch) Result {
	row, err := t.findParentJob("launch", c.Namespace, c.ID, c.JobModifyIndex)
	switch {
	case err != nil:
		return Result{Err: err}
	case !row.job.IsPeriodic():
		return refusal(fleet.CodeInvalid, "launch job %s: it is not periodic", c.ID)
	case row.job.IsParameterized():
		return Result{Err: fleet.Errorf(fleet.CodeInvalid, "launch job %s: it is parameterized, so only the jobs that are dispatched from it are launched", c.ID).
			WithHint("dispatch it, then force the dispatched job")}
	case !c.Force && c.Launched <= row.launched:
		return refusal(fleet.CodeConflict, "launch job %s: that time was launched already", c.ID)
	}
	busy := row.job.Periodic.ProhibitOverlap && t.hasUnfinishedChild(c.Namespace, fleet.PeriodicPrefix(c.ID))
	if busy && c.Force {
		return Result{Err: fleet.Errorf(fleet.CodeConflict, "launch job %s: one of its children has not ended, and the job prohibits overlap", c.ID)}
	}
	if !c.Force {
		next := *row
		next.launched = c.Launched
		jobTable.putRow(t, &next)
	}
	if busy {
		return Result{}
	}
	return t.registerChildJob(c.Child, c.Eval, c.Now)
}

// hasUnfinishedChild reports whether the namespace has a job that is not dead and whose id begins with
// prefix.
func (t *tx) hasUnfinishedChild(ns, prefix string) bool {
	for r := range jobTable.scanPrefix(t.base, indexID, namespacePrefix(ns, prefix)) {
		if strings.HasPrefix(string(r.job.ID), prefix) && r.job.Status != fleet.JobStatusDead {
			return true
		}
	}
	return false
}

// jobDispatch applies the command JobDispatch: it registers a child of a parameterized job, or returns the
// child that was registered with the same idempotency token.
func (t *tx) jobDispatch(c JobDispatch) Result {
	row, err := t.findParentJob("dispatch", c.Namespace, c.ID, c.JobModifyIndex)
	switch {
	case err != nil:
		return Result{Err: err}
	case !row.job.IsParameterized():
		return refusal(fleet.CodeInvalid, "dispatch job %s: it is not parameterized", c.ID)
	}
	if token := c.Child.DispatchIdempotencyToken; token != "" {
		prefix := fleet.DispatchPrefix(c.ID)
		for r := range jobTable.scanPrefix(t.base, indexID, namespacePrefix(c.Namespace, prefix)) {
			if strings.HasPrefix(string(r.job.ID), prefix) && r.job.DispatchIdempotencyToken == token {
				return Result{Child: r.job.ID, Modify: r.job.JobModifyIndex, Created: r.job.CreateIndex}
			}
		}
	}
	return t.registerChildJob(c.Child, c.Eval, c.Now)
}

// registerChildJob registers a child job with its evaluation, and names it in the Result. It is refused if
// a job of that id exists.
func (t *tx) registerChildJob(job *fleet.Job, eval *fleet.Evaluation, now int64) Result {
	res := t.jobRegister(JobRegister{Job: job, Eval: eval, EnforceIndex: true, Now: now})
	if res.Err == nil {
		res.Child, res.Created = job.ID, t.index
	}
	return res
}

// Launched returns the newest launch time of a periodic job (UnixNano); 0: it was never launched.
func (v *View) Launched(ns string, id fleet.JobID) int64 {
	if row, ok := jobTable.watchRow(v, jobKeyOf(ns, id)); ok {
		return row.launched
	}
	return 0
}

// Children counts the children of a periodic or parameterized job by their status.
func (v *View) Children(ns string, id fleet.JobID) fleet.JobChildrenSummary {
	var c fleet.JobChildrenSummary
	for j := range v.ChildJobs(ns, id) {
		switch j.Status {
		case fleet.JobStatusPending:
			c.Pending++
		case fleet.JobStatusRunning:
			c.Running++
		default:
			c.Dead++
		}
	}
	return c
}

// ChildJobs iterates over the children of a periodic or parameterized job, dead ones included.
func (v *View) ChildJobs(ns string, id fleet.JobID) iter.Seq[*fleet.Job] {
	return func(yield func(*fleet.Job) bool) {
		for _, prefix := range []string{fleet.PeriodicPrefix(id), fleet.DispatchPrefix(id)} {
			for j := range v.Jobs(ns, prefix) {
				if j.ParentID == id && !yield(j) {
					return
				}
			}
		}
	}
}
