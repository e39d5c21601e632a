package state

import (
	"maps"
	"slices"
	"strings"

	"skerry/fleet"
)

// JobScale sets the count of a group, as a new job version with an evaluation, and records a scaling
// event. Without a Count it only records the event. Refused (conflict): the job is stopped; with a Count,
// a deployment of the job is active.
type JobScale struct {
	command
	Namespace      string
	ID             fleet.JobID
	JobModifyIndex fleet.Index // of the job that the caller read; 0: any
	Group          string
	Count          *int
	Message        string
	Error          bool
	Meta           map[string]any
	Eval           *fleet.Evaluation // nil: none
	Now            int64
}

// JobEvaluate stores an evaluation of a job. With ForceReschedule its failed allocations are replaced now,
// even if they wait for a delay or have used up their attempts.
type JobEvaluate struct {
	command
	Namespace       string
	ID              fleet.JobID
	ForceReschedule bool
	Eval            *fleet.Evaluation
	Now             int64
}

// JobTag gives a kept version of a job a tag. A tagged version is not dropped. Unset removes the tag.
type JobTag struct {
	command
	Namespace string
	ID        fleet.JobID
	Version   uint64
	Latest    bool // tag the newest version instead of Version
	Tag       fleet.JobVersionTag
	Unset     bool
}

// MaxVersionTags is how many versions of a job may have a tag.
const MaxVersionTags = 32

type (
	// taggedVersion is the name of a kept version.
	taggedVersion struct {
		Version uint64
		Tag     fleet.JobVersionTag
	}
	// versionSource is the job file of a kept version.
	versionSource struct {
		Version uint64
		Source  *fleet.Submission
	}
)

// findJobRow returns the row of a job, or an error with CodeNotFound that begins with verb.
func (t *tx) findJobRow(verb, ns string, id fleet.JobID) (*jobRow, *fleet.Error) {
	row := jobTable.currentRow(t, jobKeyOf(ns, id))
	if row == nil {
		return nil, fleet.Errorf(fleet.CodeNotFound, "%s job %s: there is no such job in namespace %q", verb, id, ns)
	}
	return row, nil
}

// jobScale applies the command JobScale: it records a scaling event, and with a count registers the job
// again with that count for the group.
func (t *tx) jobScale(c JobScale) Result {
	row, err := t.findJobRow("scale", c.Namespace, c.ID)
	switch {
	case err != nil:
		return Result{Err: err}
	case row.job.Stop:
		return Result{Err: fleet.Errorf(fleet.CodeConflict, "scale job %s: it is stopped", c.ID).WithHint("register it again")}
	case c.JobModifyIndex != 0 && c.JobModifyIndex != row.job.JobModifyIndex:
		return refusal(fleet.CodeConflict, "scale job %s: its job modify index is %d, not %d", c.ID, row.job.JobModifyIndex, c.JobModifyIndex)
	case row.job.Group(c.Group) == nil:
		return refusal(fleet.CodeInvalid, "scale job %s: it has no group %q", c.ID, c.Group)
	case c.Count != nil && len(t.activeDeployments(c.Namespace, c.ID)) > 0:
		return Result{Err: fleet.Errorf(fleet.CodeConflict, "scale job %s: it has an active deployment", c.ID).
			WithHint("wait for its end, or register the job with another count")}
	}
	event := fleet.ScalingEvent{
		Time: c.Now, Count: c.Count, PreviousCount: row.job.Group(c.Group).Count,
		Message: c.Message, Error: c.Error, Meta: c.Meta, CreateIndex: t.index,
	}
	res := Result{Version: row.job.Version, Modify: row.job.JobModifyIndex}
	if c.Count != nil {
		job, err := ScaledJob(row.job, c.Group, *c.Count)
		if err != nil {
			return Result{Err: fleet.AsError(err)}
		}
		if res = t.jobRegister(JobRegister{Job: job, Eval: c.Eval, Now: c.Now}); res.Err != nil {
			return res
		}
		if res.Eval != "" {
			event.EvalID = &res.Eval
		}
	}
	k := jobKeyOf(c.Namespace, c.ID)
	next := *jobTable.currentRow(t, k)
	next.scaled = prependScalingEvent(next.scaled, next.job, c.Group, event)
	jobTable.putRow(t, &next)
	jobTable.markChanged(t)
	return res
}

// prependScalingEvent returns the scaling events with e as the newest one of its group. It drops the
// oldest ones, and those of groups that the job no longer has. old is not changed.
func prependScalingEvent(old map[string][]fleet.ScalingEvent, job *fleet.Job, group string, e fleet.ScalingEvent) map[string][]fleet.ScalingEvent {
	next := maps.Clone(old)
	maps.DeleteFunc(next, func(name string, _ []fleet.ScalingEvent) bool { return job.Group(name) == nil })
	if next == nil {
		next = map[string][]fleet.ScalingEvent{}
	}
	events := append([]fleet.ScalingEvent{e}, next[group]...)
	next[group] = slices.Clip(events[:min(len(events), fleet.ScalingEventsKept)])
	return next
}

// jobEvaluate applies the command JobEvaluate: it stores an evaluation of a job, after flagging failed
// allocations for rescheduling if asked. Periodic and parameterized jobs are refused.
func (t *tx) jobEvaluate(c JobEvaluate) Result {
	row, err := t.findJobRow("evaluate", c.Namespace, c.ID)
	switch {
	case err != nil:
		return Result{Err: err}
	case row.job.IsPeriodic():
		return Result{Err: fleet.Errorf(fleet.CodeInvalid, "evaluate job %s: it is periodic, and does not run itself", c.ID).
			WithHint("launch it now: skerry job periodic force")}
	case row.job.IsParameterized():
		return refusal(fleet.CodeInvalid, "evaluate job %s: it is parameterized, and does not run itself", c.ID)
	}
	if t.findNamespace(c.Namespace) == nil {
		return Result{Err: missingNamespaceError("evaluate", row.job)}
	}
	if c.ForceReschedule {
		t.forceReschedule(row.job, c.Now)
	}
	return Result{Modify: row.job.JobModifyIndex, Eval: t.storeJobEval(c.Eval, row.job, c.Now)}
}

// forceReschedule flags the job's failed allocations that were not replaced for rescheduling. It skips
// groups whose reschedule policy allows no attempt at all.
func (t *tx) forceReschedule(job *fleet.Job, now int64) {
	r := jobSummaryTable.currentRow(t, jobKeyOf(job.Namespace, job.ID))
	if r == nil {
		return
	}
	for _, id := range r.allocs {
		a := t.currentAlloc(id)
		if a == nil || a.ClientStatus != fleet.ClientFailed || a.NoLongerWanted() || a.NextAllocation != "" ||
			a.DesiredTransition.Reschedule {
			continue
		}
		if g := job.Group(a.TaskGroup); g == nil || !g.ReschedulePolicy.Allows() {
			continue
		}
		t.changeAlloc(id, now, func(a *allocRow) {
			a.DesiredTransition.Reschedule = true
			a.history.appendEntries(t.newAllocHubEvent(a, "replacement asked for", "", now))
		})
	}
}

// jobTag applies the command JobTag: it adds a tag to a kept version of a job, or removes it. Refused: the
// tag belongs to another version, or MaxVersionTags versions have tags.
func (t *tx) jobTag(c JobTag) Result {
	row, err := t.findJobRow("tag", c.Namespace, c.ID)
	if err != nil {
		return Result{Err: err}
	}
	if c.Latest {
		c.Version = row.job.Version
	}
	next := *row
	at := slices.IndexFunc(row.tags, func(v taggedVersion) bool { return v.Tag.Name == c.Tag.Name })
	switch {
	case c.Unset && at < 0:
		return refusal(fleet.CodeNotFound, "untag job %s: no version of it has the tag %q", c.ID, c.Tag.Name)
	case c.Unset:
		c.Version = row.tags[at].Version
	case at >= 0 && row.tags[at].Version != c.Version:
		return Result{Err: fleet.Errorf(fleet.CodeConflict, "tag version %d of job %s: version %d has the tag %q",
			c.Version, c.ID, row.tags[at].Version, c.Tag.Name).WithHint("unset the tag there first, or use another name")}
	case !slices.ContainsFunc(row.versions, func(j *fleet.Job) bool { return j.Version == c.Version }):
		return refusal(fleet.CodeNotFound, "tag version %d of job %s: the version does not exist or is no longer kept", c.Version, c.ID)
	}
	next.tags = slices.DeleteFunc(slices.Clone(row.tags), func(v taggedVersion) bool { return v.Version == c.Version })
	var tag *fleet.JobVersionTag
	if !c.Unset {
		if len(next.tags) >= MaxVersionTags {
			return Result{Err: fleet.Errorf(fleet.CodeConflict, "tag version %d of job %s: %d versions are tagged already",
				c.Version, c.ID, MaxVersionTags).WithHint("unset a tag that nobody needs")}
		}
		tag = &c.Tag
		next.tags = append(next.tags, taggedVersion{c.Version, c.Tag})
	}
	if row.job.Version == c.Version {
		job := *row.job
		job.VersionTag, job.ModifyIndex = tag, t.index
		next.job = &job
	}
	t.dropOldVersions(&next)
	jobTable.putRow(t, &next)
	jobTable.markChanged(t)
	return Result{Version: c.Version, Modify: next.job.JobModifyIndex}
}

// dropOldVersions keeps the tagged versions of a job and the newest fleet.JobVersionsKept others. row is
// changed in place; the caller stores it.
func (t *tx) dropOldVersions(row *jobRow) {
	var kept []*fleet.Job
	plain := 0
	for _, j := range row.versions {
		if _, tagged := row.tagOfVersion(j.Version); !tagged {
			plain++
			if plain > fleet.JobVersionsKept {
				t.addBodyRefs(j, -1)
				continue
			}
		}
		kept = append(kept, j)
	}
	row.versions = kept
	row.stable = keptStableVersions(row)
	row.sources = slices.DeleteFunc(slices.Clone(row.sources), func(s versionSource) bool {
		return !slices.ContainsFunc(kept, func(j *fleet.Job) bool { return j.Version == s.Version })
	})
}

// tagOfVersion returns the tag of a version; ok is false if it has none.
func (r *jobRow) tagOfVersion(version uint64) (*fleet.JobVersionTag, bool) {
	for _, v := range r.tags {
		if v.Version == version {
			return &v.Tag, true
		}
	}
	return nil, false
}

// setJobSource stores s as the submitted job file of the newest version, in place.
func (r *jobRow) setJobSource(s *fleet.Submission) {
	r.sources = slices.DeleteFunc(slices.Clone(r.sources), func(v versionSource) bool { return v.Version == r.job.Version })
	r.sources = append(r.sources, versionSource{r.job.Version, s})
}

// withPreservedValues returns c.Job with the counts or resources of the stored job old, as c asks for, in
// groups and tasks of the same name.
func withPreservedValues(c JobRegister, old *fleet.Job) *fleet.Job {
	job := *c.Job
	job.TaskGroups = slices.Clone(c.Job.TaskGroups)
	for i := range job.TaskGroups {
		g := &job.TaskGroups[i]
		was := old.Group(g.Name)
		if was == nil {
			continue
		}
		if c.PreserveCounts {
			g.Count = was.Count
		}
		if !c.PreserveResources {
			continue
		}
		g.Tasks = slices.Clone(g.Tasks)
		for k := range g.Tasks {
			if task := was.Task(g.Tasks[k].Name); task != nil {
				g.Tasks[k].Resources = task.Resources
			}
		}
	}
	return &job
}

// ScaledJob returns a job with another count of one group, or why it cannot have it.
func ScaledJob(j *fleet.Job, group string, count int) (*fleet.Job, error) {
	i := slices.IndexFunc(j.TaskGroups, func(g fleet.TaskGroup) bool { return g.Name == group })
	switch {
	case i < 0:
		names := make([]string, len(j.TaskGroups))
		for k, g := range j.TaskGroups {
			names[k] = g.Name
		}
		return nil, fleet.Errorf(fleet.CodeInvalid, "scale job %s: it has no group %q", j.ID, group).WithHint("it has: %s", strings.Join(names, ", "))
	case fleet.RunsEverywhere(j.Type):
		return nil, fleet.Errorf(fleet.CodeInvalid, "scale job %s: a %s job runs once on every node that suits it", j.ID, j.Type)
	case count < 0 || count > fleet.JobCountMax:
		return nil, fleet.Errorf(fleet.CodeInvalid, "scale group %q of job %s: count %d is not within 0 to %d", group, j.ID, count, fleet.JobCountMax)
	}
	if s := j.TaskGroups[i].Scaling; s != nil {
		switch {
		case s.Min != nil && count < *s.Min:
			return nil, fleet.Errorf(fleet.CodeInvalid, "scale group %q of job %s: count %d is less than the minimum %d of its scaling policy", group, j.ID, count, *s.Min)
		case s.Max != nil && count > *s.Max:
			return nil, fleet.Errorf(fleet.CodeInvalid, "scale group %q of job %s: count %d is more than the maximum %d of its scaling policy", group, j.ID, count, *s.Max)
		}
	}
	next := *j
	next.TaskGroups = slices.Clone(j.TaskGroups)
	next.TaskGroups[i].Count = count
	return &next, nil
}

// checkScalingBounds returns an error if a group's count is outside of its scaling policy.
func checkScalingBounds(job *fleet.Job) *fleet.Error {
	for _, g := range job.TaskGroups {
		if g.Scaling == nil || fleet.RunsEverywhere(job.Type) {
			continue
		}
		if _, err := ScaledJob(job, g.Name, g.Count); err != nil {
			return fleet.AsError(err)
		}
	}
	return nil
}

// ScalingEvents returns the kept scaling events of a job by group, newest first.
func (v *View) ScalingEvents(ns string, id fleet.JobID) map[string][]fleet.ScalingEvent {
	row, ok := jobTable.watchRow(v, jobKeyOf(ns, id))
	if !ok {
		return nil
	}
	return row.scaled
}

// Submission returns the submitted job file of a kept version, or nil if none is kept.
func (v *View) Submission(ns string, id fleet.JobID, version uint64) *fleet.Submission {
	row, ok := jobTable.watchRow(v, jobKeyOf(ns, id))
	if !ok {
		return nil
	}
	for _, s := range row.sources {
		if s.Version == version {
			return s.Source
		}
	}
	return nil
}
