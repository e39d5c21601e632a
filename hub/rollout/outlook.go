package rollout

import (
	"slices"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// OutlookOf returns how a deployment will end if nothing changes: by which deadline, with which
// description, and to which version the job reverts. nil: it has ended, is paused, or is not of the
// job's newest version.
func OutlookOf(view *state.View, d *fleet.Deployment, suits SuitsFunc, now time.Time) *fleet.DeploymentOutlook {
	p := SnapshotOf(view, d, suits, now)
	if !p.isRunningNewest() {
		return nil
	}
	p.Progress = NewProgress(slices.Collect(view.AllocsByDeployment(d.ID))...)
	o, why := &fleet.DeploymentOutlook{}, fleet.DescProgressDeadline
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
