package fleet

import (
	"fmt"
	"time"
)

// PeriodicPrefix is the beginning of the ids of the children that a periodic job launches.
func PeriodicPrefix(parent JobID) string { return string(parent) + "/periodic-" }

// DispatchPrefix is the beginning of the ids of the children that are dispatched.
func DispatchPrefix(parent JobID) string { return string(parent) + "/dispatch-" }

// LaunchID returns the id of the child that is launched for a time.
func LaunchID(parent JobID, at time.Time) JobID {
	return JobID(fmt.Sprintf("%s%d", PeriodicPrefix(parent), at.Unix()))
}

// Child returns the job that is launched for a time of this one. It shares memory with its
// parent, which must not be changed.
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

// Starts reports whether registering the job starts it: it is neither periodic nor parameterized.
func (j *Job) Starts() bool { return !j.IsPeriodic() && !j.IsParameterized() }
