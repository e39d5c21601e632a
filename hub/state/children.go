package state

import (
	"iter"
	"strings"

	"skerry/fleet"
)

// PeriodicLaunch launches a child of a periodic job, and notes up to when the job is
// launched, in one entry: whoever leads, a time that was launched is never launched
// again. Where the job prohibits overlap and a child of it is not over, the time is
// noted and nothing is launched.
type PeriodicLaunch struct {
	command
	Namespace      string
	ID             fleet.JobID
	JobModifyIndex fleet.Index // of the job when it was looked at
	// Launched is up to when (UnixNano) the job is then launched.
	Launched int64
	Force    bool // an operator's: no time of its own is used up
	Child    *fleet.Job
	Eval     *fleet.Evaluation
	Now      int64
}

// JobDispatch makes a child of a parameterized job. A second command with the same token
// makes no other child, and returns the first one.
type JobDispatch struct {
	command
	Namespace      string
	ID             fleet.JobID
	JobModifyIndex fleet.Index
	Child          *fleet.Job
	Eval           *fleet.Evaluation
	Now            int64
}

// findParentJob returns the job that a child is made of, if it is still the one that was
// looked at.
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

func (t *tx) periodicLaunch(c PeriodicLaunch) Result {
	row, err := t.findParentJob("launch", c.Namespace, c.ID, c.JobModifyIndex)
	switch {
	case err != nil:
		return Result{Err: err}
	case !row.job.IsPeriodic():
		return refused(fleet.CodeInvalid, "launch job %s: it is not periodic", c.ID)
	case row.job.IsParameterized():
		return Result{Err: fleet.Errorf(fleet.CodeInvalid, "launch job %s: it is parameterized, too, and only what is dispatched of it is launched", c.ID).
			WithHint("dispatch it, and force the job that comes of that")}
	case !c.Force && c.Launched <= row.launched:
		return refused(fleet.CodeConflict, "launch job %s: that time was launched already", c.ID)
	}
	busy := row.job.Periodic.ProhibitOverlap && t.hasUnfinishedChild(c.Namespace, fleet.PeriodicPrefix(c.ID))
	if busy && c.Force {
		return Result{Err: fleet.Errorf(fleet.CodeConflict, "launch job %s: a child of it is not over, and it prohibits overlap", c.ID)}
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

// hasUnfinishedChild reports whether a job whose id begins with prefix is not over.
func (t *tx) hasUnfinishedChild(ns, prefix string) bool {
	for r := range jobTable.scanPrefix(t.base, indexID, namespacePrefix(ns, prefix)) {
		if strings.HasPrefix(string(r.job.ID), prefix) && r.job.Status != fleet.JobStatusDead {
			return true
		}
	}
	return false
}

func (t *tx) jobDispatch(c JobDispatch) Result {
	row, err := t.findParentJob("dispatch", c.Namespace, c.ID, c.JobModifyIndex)
	switch {
	case err != nil:
		return Result{Err: err}
	case !row.job.IsParameterized():
		return refused(fleet.CodeInvalid, "dispatch job %s: it is not parameterized", c.ID)
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

// registerChildJob stores a new job that was made of another one.
func (t *tx) registerChildJob(job *fleet.Job, eval *fleet.Evaluation, now int64) Result {
	res := t.jobRegister(JobRegister{Job: job, Eval: eval, EnforceIndex: true, Now: now})
	if res.Err == nil {
		res.Child, res.Created = job.ID, t.index
	}
	return res
}

// Launched is up to when (UnixNano) a periodic job is launched; 0: it never was.
func (v *View) Launched(ns string, id fleet.JobID) int64 {
	if row, ok := jobTable.watchRow(v, jobKeyOf(ns, id)); ok {
		return row.launched
	}
	return 0
}

// Children counts the children of a periodic or parameterized job.
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

// ChildJobs lists the children of a periodic or parameterized job.
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
