package rollout

import (
	"slices"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// Outlook is what becomes of a deployment of which nothing more becomes healthy.
type Outlook struct {
	Deadline    *time.Time `json:",omitempty"` // when it fails; nil: no deadline runs
	Description string     // its status description when it has failed
	RevertsTo   *uint64    `json:",omitempty"` // the version that its job goes back to then; nil: it stays as it is
	// Deferred: the deadline is over and does not run, since all that is left to do is on nodes
	// that are away, or waits for a window of updates.
	Deferred bool `json:",omitempty"`
}

// OutlookOf says what becomes of a deployment; nil where it is over or paused, or is not of the
// job's newest version.
func OutlookOf(view *state.View, d *fleet.Deployment, now time.Time) *Outlook {
	p := snapshotOfDeployment(view, d, now)
	if !p.isRunningNewest() {
		return nil
	}
	p.Progress = NewProgress(slices.Collect(view.AllocsByDeployment(d.ID))...)
	o, why := &Outlook{}, fleet.DescProgressDeadline
	switch deadline := p.earliestDeadline(); {
	case deadline.IsZero():
		why = fleet.DescFailedAllocations
	case now.Before(deadline) || p.hasMissedDeadline():
		o.Deadline = &deadline
	default:
		o.Deferred = true
	}
	fails, stable := d.Fail(p.Versions(), why)
	o.Description = fails.StatusDescription
	if stable != nil {
		o.RevertsTo = &stable.Version
	}
	return o
}
