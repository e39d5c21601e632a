package fleet

import (
	"fmt"
	"time"
)

// PeriodicPrefix and DispatchPrefix are what the ids of a job's children begin with.
func PeriodicPrefix(parent JobID) string { return string(parent) + "/periodic-" }
func DispatchPrefix(parent JobID) string { return string(parent) + "/dispatch-" }

// LaunchID is the id of the child that is launched for a time.
func LaunchID(parent JobID, at time.Time) JobID {
	return JobID(fmt.Sprintf("%s%d", PeriodicPrefix(parent), at.Unix()))
}

// DispatchID is the id of a child that is dispatched; unique tells apart those of one
// second.
func DispatchID(parent JobID, prefix string, at time.Time, unique string) JobID {
	if prefix != "" {
		prefix += "-"
	}
	return JobID(fmt.Sprintf("%s%s%d-%s", DispatchPrefix(parent), prefix, at.Unix(), Short(unique)))
}

// Child returns the job that is launched for a time of this one: the same, to run now.
// The caller sets what it is given in addition. What it shares with its parent must not
// be changed.
func (j *Job) Child(id JobID, now time.Time) *Job {
	c := *j
	c.ID, c.Name, c.ParentID = id, string(id), j.ID
	c.Periodic = nil
	c.Stop, c.Stable, c.Status, c.StatusDescription = false, false, "", ""
	c.Version, c.CreateIndex, c.ModifyIndex, c.JobModifyIndex = 0, 0, 0, 0
	c.VersionTag, c.SpecHash, c.DispatchIdempotencyToken = nil, "", ""
	c.SubmitTime = now.UnixNano()
	return &c
}

// DispatchedChild returns the job that is dispatched of this one. Where this one is periodic
// the child is, too: it runs at its times, and not when it is dispatched.
func (j *Job) DispatchedChild(id JobID, now time.Time) *Job {
	c := j.Child(id, now)
	c.Dispatched, c.Periodic = true, j.Periodic
	return c
}

// Starts reports whether registering the job starts it: neither a periodic job does,
// nor one that is to be dispatched.
func (j *Job) Starts() bool { return !j.IsPeriodic() && !j.IsParameterized() }
