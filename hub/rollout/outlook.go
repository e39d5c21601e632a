package rollout

import (
	"slices"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// Outlook is what becomes of a deployment of which nothing more becomes healthy.
type Outlook struct {
	Deadline time.Time              // when it fails; zero: no deadline runs
	Fails    fleet.DeploymentUpdate // what it is then
	Reverts  *fleet.Job             // the version that its job goes back to then; nil: it stays as it is
	// Deferred: the deadline is over and does not run, since all that is left to do is away,
	// or waits for a window of updates.
	Deferred bool
}

// OutlookOf says what becomes of a deployment; false of one that is over, that is paused, or
// that is not of the job's newest version.
func OutlookOf(view *state.View, d *fleet.Deployment, now time.Time) (Outlook, bool) {
	p := pictureOf(view, d, now)
	if !p.goesOn() {
		return Outlook{}, false
	}
	p.Progress = NewProgress(slices.Collect(view.AllocsByDeployment(d.ID))...)
	why := fleet.DescProgressDeadline
	o := Outlook{Deadline: p.cutoff()}
	if o.Deadline.IsZero() {
		why = fleet.DescFailedAllocations
	} else if !now.Before(o.Deadline) && !p.stuck() {
		o.Deadline, o.Deferred = time.Time{}, true
	}
	o.Fails, o.Reverts = d.Fail(p.Versions(), why)
	return o, true
}
