package state

import (
	"slices"

	"skerry/fleet"
)

// JobStable sets by hand whether a version of a job is stable, so that a failed deployment may roll back
// to it.
type JobStable struct {
	command
	Namespace string
	ID        fleet.JobID
	Version   uint64
	Stable    bool
	Now       int64
}

// jobStable applies the command JobStable: it sets whether a kept version of a job is stable.
func (t *tx) jobStable(c JobStable) Result {
	row := jobTable.currentRow(t, jobKeyOf(c.Namespace, c.ID))
	if row == nil {
		return refusal(fleet.CodeNotFound, "mark job %s stable: there is no such job", c.ID)
	}
	if !slices.ContainsFunc(row.versions, func(v *fleet.Job) bool { return v.Version == c.Version }) {
		return refusal(fleet.CodeNotFound, "mark job %s stable: version %d of it is not kept", c.ID, c.Version)
	}
	t.setStable(row, c.Version, c.Stable)
	return Result{Version: c.Version, Modify: row.job.JobModifyIndex}
}

// setStable stores whether a kept version of a job is stable. It changes nothing if the version is so
// already.
func (t *tx) setStable(row *jobRow, version uint64, stable bool) {
	if slices.Contains(row.stable, version) == stable {
		return
	}
	next := *row
	next.stable = slices.DeleteFunc(slices.Clone(row.stable), func(v uint64) bool { return v == version })
	if stable {
		next.stable = append(next.stable, version)
	}
	next.stable = keptStableVersions(&next)
	if row.job.Version == version {
		job := *row.job
		job.Stable, job.ModifyIndex = stable, t.index
		next.job = &job
	}
	jobTable.putRow(t, &next)
	jobTable.markChanged(t)
}
