package fleet

import (
	"fmt"
	"slices"
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

// Dispatchable reports what is wrong with a payload and meta that a parameterized job
// is to be dispatched with.
func (j *Job) Dispatchable(payload []byte, meta map[string]string) error {
	if !j.IsParameterized() {
		return Errorf(CodeInvalid, "dispatch job %q: it is not parameterized", j.ID).WithHint("a job that is dispatched has a parameterized block")
	}
	p := j.ParameterizedJob
	var wrong Problems
	add := func(hint, format string, args ...any) { wrong.addHint("", hint, format, args...) }
	switch {
	case p.Payload == PayloadRequired && len(payload) == 0:
		add(`job dispatch reads it from a file, or from the standard input as "-"`, "dispatch job %q: it needs a payload", j.ID)
	case p.Payload == PayloadForbidden && len(payload) > 0:
		add("its parameterized block says forbidden", "dispatch job %q: it takes no payload", j.ID)
	case len(payload) > MaxPayload:
		add("give its tasks an address to fetch it from", "dispatch job %q: the payload has %d bytes, at most %d are taken", j.ID, len(payload), MaxPayload)
	}
	var unexpected, missing []string
	for k := range meta {
		if !slices.Contains(p.MetaRequired, k) && !slices.Contains(p.MetaOptional, k) {
			unexpected = append(unexpected, k)
		}
	}
	for _, k := range p.MetaRequired {
		if _, ok := meta[k]; !ok {
			missing = append(missing, k)
		}
	}
	slices.Sort(unexpected)
	if len(missing) > 0 {
		add("job dispatch takes it as --meta KEY=VALUE", "dispatch job %q: required meta is missing: %q", j.ID, missing)
	}
	if len(unexpected) > 0 {
		add("its parameterized block names those that it takes: meta_required, meta_optional", "dispatch job %q: meta that it does not take: %q", j.ID, unexpected)
	}
	return wrong.Err()
}
