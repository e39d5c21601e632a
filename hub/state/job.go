package state

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"skerry/fleet"
)

// jobRegister applies the command JobRegister: it stores a job, as a new version if its specification
// changed, and an evaluation. If it is unchanged and not stopped, only the evaluation and the submission
// are stored.
func (t *tx) jobRegister(c JobRegister) Result {
	if c.Job == nil {
		return refusal(fleet.CodeInvalid, "register job: no job given")
	}
	k := jobKeyOf(c.Job.Namespace, c.Job.ID)
	row := jobTable.currentRow(t, k)
	if err := checkRegistrable(c, row); err != nil {
		return Result{Err: err}
	}
	if err := t.checkJobNamespace(c.Job); err != nil {
		return Result{Err: err}
	}
	if row != nil && (c.PreserveCounts || c.PreserveResources) {
		c.Job = withPreservedValues(c, row.job)
		if err := checkScalingBounds(c.Job); err != nil {
			return Result{Err: err}
		}
	}
	spec, err := EncodeSpec(c.Job)
	if err != nil {
		return Result{Err: fleet.AsError(err)}
	}
	hash := SpecHash(spec)
	t.specBytes = map[string]int{hash: len(spec)}
	if row == nil || row.job.Stop || row.job.SpecHash != hash {
		if row == nil || row.job.Stop {
			t.restoreShutdownDelay(c.Job.Namespace, c.Job.ID, c.Now)
			t.retireEndedAllocs(c.Job.Namespace, c.Job.ID, c.Now)
		}
		row = t.newJobVersion(c, row, hash)
		jobTable.putRow(t, row)
		jobTable.markChanged(t)
	} else if c.Submission != nil {
		same := *row
		same.setJobSource(c.Submission)
		row = &same
		jobTable.putRow(t, row)
	}
	t.ownJobSummary(row.job.Namespace, row.job.ID) // finishSummaries then updates the job's status
	return Result{Version: row.job.Version, Modify: row.job.JobModifyIndex, Eval: t.storeJobEval(c.Eval, row.job, c.Now)}
}

// enforcing begins the error messages by which Nomad's clients recognize that a job has changed since they
// read it.
const enforcing = "Enforcing job modify index"

// checkRegistrable returns the error of a registration whose CheckIndex is outdated, or that would change
// the job's type, or make it periodic or parameterized or no longer so. row is the stored job, or nil.
func checkRegistrable(c JobRegister, row *jobRow) *fleet.Error {
	switch {
	case c.EnforceIndex && c.CheckIndex == 0 && row != nil:
		return fleet.Errorf(fleet.CodeConflict, "%s %d: register job %s: it exists already", enforcing, c.CheckIndex, c.Job.ID).
			WithHint("index 0 to check says that it is new; skerry job plan shows what would change, and the index")
	case c.EnforceIndex && c.CheckIndex != 0 && row == nil:
		return fleet.Errorf(fleet.CodeConflict, "%s %d: register job %s: it does not exist", enforcing, c.CheckIndex, c.Job.ID)
	case c.EnforceIndex && row != nil && row.job.JobModifyIndex != c.CheckIndex:
		return fleet.Errorf(fleet.CodeConflict, "%s %d: register job %s: its job modify index is %d",
			enforcing, c.CheckIndex, c.Job.ID, row.job.JobModifyIndex).WithHint("somebody changed it since: skerry job plan shows what would change now, and the index")
	case row != nil && row.job.Type != c.Job.Type:
		return fleet.Errorf(fleet.CodeInvalid, "register job %s: it is of type %s and cannot become %s",
			c.Job.ID, row.job.Type, c.Job.Type).WithHint("give the new job another id, or purge the old one")
	case row != nil && row.job.IsPeriodic() != c.Job.IsPeriodic():
		return fleet.Errorf(fleet.CodeInvalid, "register job %s: a job that is not periodic cannot become so, nor the other way round", c.Job.ID).
			WithHint("give the new job another id, or purge the old one")
	case row != nil && row.job.IsParameterized() != c.Job.IsParameterized():
		return fleet.Errorf(fleet.CodeInvalid, "register job %s: a job that is not parameterized cannot become so, nor the other way round", c.Job.ID).
			WithHint("give the new job another id, or purge the old one")
	}
	return nil
}

// newJobVersion returns the job's row with c.Job as its newest version, and drops versions that are too
// old. old is the stored row, or nil. It counts the body references; the caller stores the row.
func (t *tx) newJobVersion(c JobRegister, old *jobRow, hash string) *jobRow {
	job := *c.Job
	job.Stop, job.Stable, job.StatusDescription, job.VersionTag = false, false, "", nil
	job.Status, job.SpecHash = fleet.JobStatusPending, hash
	job.Version, job.CreateIndex = 0, t.index
	job.ModifyIndex, job.JobModifyIndex = t.index, t.index
	if job.SubmitTime == 0 {
		job.SubmitTime = c.Now
	}
	row := &jobRow{}
	if old != nil {
		*row = *old
		job.Version, job.CreateIndex = old.job.Version+1, old.job.CreateIndex
	}
	row.job = &job
	row.versions = append([]*fleet.Job{&job}, row.versions...)
	t.addBodyRefs(&job, 1)
	if c.Submission != nil {
		row.setJobSource(c.Submission)
	}
	t.dropOldVersions(row)
	return row
}

// addBodyRefs adds n to the number of versions and allocations that refer to a job's body. A body without
// references is removed.
func (t *tx) addBodyRefs(job *fleet.Job, n int) {
	k := bodyKey(job)
	row := bodyTable.ownRow(t, k, func(r *bodyRow) *bodyRow {
		c := *r
		return &c
	})
	if row == nil {
		row = &bodyRow{job: job}
		bodyTable.putRow(t, row)
	}
	if row.refs += n; row.refs <= 0 {
		bodyTable.removeRow(t, k)
	}
}

// jobDeregister applies the command JobDeregister: it marks a job stopped, or removes it, and stores an
// evaluation, which will stop its allocations.
func (t *tx) jobDeregister(c JobDeregister) Result {
	k := jobKeyOf(c.Namespace, c.ID)
	row := jobTable.currentRow(t, k)
	if row == nil {
		return refusal(fleet.CodeNotFound, "deregister job %s: there is no such job", c.ID)
	}
	job := *row.job
	job.Stop = true
	job.ModifyIndex, job.JobModifyIndex = t.index, t.index
	summary := t.ownJobSummary(c.Namespace, c.ID)
	jobTable.markChanged(t)
	if c.NoShutdownDelay {
		for _, id := range summary.allocs {
			t.skipShutdownDelay(t.currentAlloc(id), c.Now)
		}
	}
	if c.Purge {
		for _, v := range row.versions {
			t.addBodyRefs(v, -1)
		}
		jobTable.removeRow(t, k)
	} else {
		stopped := *row
		stopped.job = &job
		jobTable.putRow(t, &stopped)
	}
	return Result{Version: job.Version, Modify: job.JobModifyIndex, Eval: t.storeJobEval(c.Eval, &job, c.Now)}
}

// restoreShutdownDelay clears NoShutdownDelay of the job's running allocations: the job is registered
// again before the deregistration stopped them.
func (t *tx) restoreShutdownDelay(ns string, id fleet.JobID, now int64) {
	for _, id := range t.ownJobSummary(ns, id).allocs {
		if a := t.currentAlloc(id); a.DesiredTransition.NoShutdownDelay && !a.Terminal() && !a.DesiredTransition.Migrate {
			t.changeAlloc(id, now, func(a *allocRow) { a.DesiredTransition.NoShutdownDelay = false })
		}
	}
}

// retireEndedAllocs retires the job's allocations that have ended, because the job is registered again
// after it was stopped or purged. They are then neither rescheduled nor counted for the new registration.
func (t *tx) retireEndedAllocs(ns string, id fleet.JobID, now int64) {
	for _, id := range t.ownJobSummary(ns, id).allocs {
		if a := t.currentAlloc(id); a.EndedOnEdge() && a.ClientTerminal() && (!a.NoLongerWanted() || a.DoneAfterAll()) {
			t.changeAlloc(id, now, func(a *allocRow) {
				a.Retired, a.DesiredDescription = true, "it had ended when the job was started again"
				a.history.appendEntries(t.newAllocHubEvent(a, eventRetired, a.DesiredDescription, now))
			})
		}
	}
}

// storeJobEval stores e as an evaluation of job, with the job's priority unless e has one. It returns its
// id, or "" if e is nil.
func (t *tx) storeJobEval(e *fleet.Evaluation, job *fleet.Job, now int64) fleet.EvalID {
	if e == nil {
		return ""
	}
	eval := *e
	eval.Namespace, eval.JobID, eval.Type = job.Namespace, job.ID, job.Type
	eval.JobModifyIndex = job.JobModifyIndex
	if eval.Priority == 0 {
		eval.Priority = job.Priority
	}
	if eval.Status == "" {
		eval.Status = fleet.EvalPending
	}
	t.putEval(eval, now)
	return eval.ID
}

// updateJobStatus stores the status of a job that follows from its summary r. k is the job's key.
func (t *tx) updateJobStatus(k []byte, r *jobAllocSummary) {
	row := jobTable.currentRow(t, k)
	if row == nil {
		return
	}
	next := *row
	next.evaluated = row.evaluated || r.open > 0 || len(r.allocs) > 0
	status := jobStatus(&next, r)
	if status != row.job.Status {
		job := *row.job
		job.Status, job.ModifyIndex = status, t.index
		next.job = &job
		jobTable.markChanged(t)
	}
	if next.job != row.job || next.evaluated != row.evaluated {
		jobTable.putRow(t, &next)
	}
}

// jobStatus computes the status of a job from its specification and from the live allocations and open
// evaluations in r.
func jobStatus(row *jobRow, r *jobAllocSummary) string {
	everywhere := row.job.Type == fleet.JobTypeSystem
	switch {
	case !row.job.Starts() && !row.job.Stop:
		return fleet.JobStatusRunning
	case everywhere && !row.job.Stop, r.live > 0:
		return fleet.JobStatusRunning
	case everywhere:
		return fleet.JobStatusDead
	case r.open > 0:
		return fleet.JobStatusPending
	case row.evaluated || row.job.Stop:
		return fleet.JobStatusDead
	}
	return fleet.JobStatusPending
}

// setQueuedAllocs stores how many allocations of each group are not placed yet.
func (t *tx) setQueuedAllocs(ns string, id fleet.JobID, queued map[string]int) {
	k := jobKeyOf(ns, id)
	row := jobTable.currentRow(t, k)
	if row == nil || maps.Equal(row.queued, queued) {
		return
	}
	next := *row
	next.queued = maps.Clone(queued)
	maps.DeleteFunc(next.queued, func(_ string, n int) bool { return n == 0 })
	jobTable.putRow(t, &next)
}

// findJobBody returns the job version that an allocation runs, or nil. It looks at the kept versions
// first, then at the bodies that other allocations refer to.
func (t *tx) findJobBody(a *fleet.Alloc) *fleet.Job {
	if row := jobTable.currentRow(t, jobKeyOf(a.Namespace, a.JobID)); row != nil {
		for _, v := range row.versions {
			if v.Version == a.JobVersion && v.SpecHash == a.JobHash {
				return v
			}
		}
	}
	var found *fleet.Job
	prefix := key(a.JobHash, a.Namespace, string(a.JobID))
	for r := range bodyTable.scanPrefix(t.base, indexID, prefix) {
		if now := bodyTable.currentRow(t, bodyKey(r.job)); now != nil && now.job.Version == a.JobVersion {
			found = now.job
		}
	}
	return found
}

// Job returns the newest version of a job; ok is false if there is none.
func (v *View) Job(ns string, id fleet.JobID) (*fleet.Job, bool) {
	row, ok := jobTable.watchRow(v, jobKeyOf(ns, id))
	if !ok {
		return nil, false
	}
	return row.job, true
}

// Jobs iterates over a namespace's jobs ("*": all namespaces) whose id starts with prefix.
func (v *View) Jobs(ns, prefix string) iter.Seq[*fleet.Job] {
	rows := jobTable.watchTable(v, indexID, namespacePrefix(ns, prefix))
	return func(yield func(*fleet.Job) bool) {
		for r := range rows {
			if strings.HasPrefix(string(r.job.ID), prefix) && !yield(r.job) {
				return
			}
		}
	}
}

// PeriodicJobs iterates over the periodic jobs of all namespaces. A Watch view wakes only for these.
func (v *View) PeriodicJobs() iter.Seq[*fleet.Job] {
	rows := jobTable.watchPrefix(v, indexPeriodic, nil)
	return func(yield func(*fleet.Job) bool) {
		for r := range rows {
			if !yield(r.job) {
				return
			}
		}
	}
}

// namespacePrefix returns the beginning of keys of a namespace and an id that begins with prefix. For "*"
// it is empty: the caller must check the prefix itself.
func namespacePrefix(ns, prefix string) []byte {
	if ns == "*" {
		return nil
	}
	return append(key(ns), prefix...)
}

// JobVersions returns the kept versions of a job, newest first, with their tags and whether they are
// stable.
func (v *View) JobVersions(ns string, id fleet.JobID) []*fleet.Job {
	row, ok := jobTable.watchRow(v, jobKeyOf(ns, id))
	if !ok {
		return nil
	}
	out := slices.Clone(row.versions)
	for i, j := range out {
		tag, tagged := row.tagOfVersion(j.Version)
		if stable := slices.Contains(row.stable, j.Version); stable || tagged {
			shown := *j
			shown.Stable, shown.VersionTag = stable, tag
			out[i] = &shown
		}
	}
	out[0] = row.job
	return out
}

// JobBody returns the job with a specification hash. A body is kept as long as a kept version or an
// allocation refers to it.
func (v *View) JobBody(hash string) (*fleet.Job, bool) {
	for r := range bodyTable.watchPrefix(v, indexID, key(hash)) {
		return r.job, true
	}
	return nil, false
}
