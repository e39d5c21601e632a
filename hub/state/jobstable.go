package state

import (
	"slices"

	"skerry/fleet"
)

// JobStable says by hand whether a version of a job is one to go back to.
type JobStable struct {
	command
	Namespace string
	ID        fleet.JobID
	Version   uint64
	Stable    bool
	Now       int64
}

func (t *tx) jobStable(c JobStable) Result {
	row := jobTable.currentRow(t, jobKeyOf(c.Namespace, c.ID))
	if row == nil {
		return refused(fleet.CodeNotFound, "mark job %s stable: there is no such job", c.ID)
	}
	if !slices.ContainsFunc(row.versions, func(v *fleet.Job) bool { return v.Version == c.Version }) {
		return refused(fleet.CodeNotFound, "mark job %s stable: version %d of it is not kept", c.ID, c.Version)
	}
	t.setStable(row, c.Version, c.Stable)
	return Result{Version: c.Version, Modify: row.job.JobModifyIndex}
}

// setStable notes whether a kept version of a job is stable. That it is so already
// changes nothing.
func (t *tx) setStable(row *jobRow, version uint64, stable bool) {
	if slices.Contains(row.stable, version) == stable {
		return
	}
	next := *row
	next.stable = slices.DeleteFunc(slices.Clone(row.stable), func(v uint64) bool { return v == version })
	if stable {
		next.stable = append(next.stable, version)
	}
	next.stable = keptStable(&next)
	if row.job.Version == version {
		job := *row.job
		job.Stable, job.ModifyIndex = stable, t.index
		next.job = &job
	}
	jobTable.putRow(t, &next)
	jobTable.markChanged(t)
}
