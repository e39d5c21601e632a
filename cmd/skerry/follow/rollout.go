package follow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/progress"
	"skerry/fleet"
)

// activeDeployment returns the active deployment of the job's newest version; nil: there is none.
func (f *followedJob) activeDeployment() (*fleet.Deployment, error) {
	d, err := f.Hub.JobDeployment(f.Context(), f.job.ID)
	if err != nil || !d.Active() || d.JobVersion != f.job.Version {
		return nil, err
	}
	return d, nil
}

// followDeployment follows a deployment until it is over, or until only a person, more
// capacity or the return of a node gets it on.
func (f *followedJob) followDeployment(id fleet.DeploymentID) error {
	var p api.Progress
	last := ""
	return f.followUntil(func(ctx context.Context, hub *client.Client) (err error) {
		p, err = hub.DeploymentProgress(ctx, id)
		return err
	}, func() (bool, error) {
		if err := f.readAllocs(f.Context(), f.Hub); err != nil {
			return true, f.Interrupted(err)
		}
		if !f.screen.IsTerminal() {
			f.screen.writeChanges(f.allocs)
		}
		if now := fmt.Sprint(p.Deployment.Status, p.Groups); now != last {
			last = now
			progress.Show(f.screen.Screen, p)
		}
		return f.checkRollout(p)
	})
}

// checkRollout reports whether a deployment is to be followed no longer, and as an error why
// it is not where it should be.
func (f *followedJob) checkRollout(p api.Progress) (bool, error) {
	d := p.Deployment
	switch d.Status {
	case fleet.DeploymentSuccessful:
		return true, nil
	case fleet.DeploymentRunning:
	case fleet.DeploymentPaused:
		return true, f.waitingError(progress.Hint(p), fmt.Sprintf("deployment %s is paused", console.ID(d.ID)))
	default:
		lines := append([]string{fmt.Sprintf("deployment %s of job %q is %s: %s", console.ID(d.ID), d.JobID, d.Status, d.StatusDescription)}, f.failureLines()...)
		return true, errors.New(strings.Join(lines, "\n  "))
	}
	var sum api.SiteProgress
	for _, group := range d.Groups() {
		sum = sum.Plus(p.Total(group))
	}
	switch {
	case sum.Running > 0 || f.awaitsCapacity():
		return false, nil
	case sum.Failed > 0 || len(f.placementFailures()) > 0 && sum.Waiting == 0:
		var why []string
		for _, g := range f.job.TaskGroups {
			why = append(why, f.missingLines(g, f.countGroup(g.Name))...)
		}
		if next := progress.OutlookSentence(p); next != "" && len(why) > 0 {
			why = append(why, fmt.Sprintf("deployment %s %s", console.ID(d.ID), next))
		}
		return len(why) > 0, f.waitingError("", why...)
	case progress.Promotable(p):
		next := cmp.Or(progress.OutlookSentence(p), "waits for its promotion") // a hub that knows no outlook
		return true, f.waitingError(progress.Hint(p), fmt.Sprintf("deployment %s %s", console.ID(d.ID), next))
	case sum.Shut > 0 && sum.Shut == sum.Waiting:
		return true, f.waitingError("", closedWindowLines(p)...)
	case sum.Waiting == 0 && sum.Deferred > 0 && sum.Healthy > 0 && waitsForAll(d):
		return true, f.waitingError("", fmt.Sprintf("deployment %s waits for %d on nodes that are away", console.ID(d.ID), sum.Deferred))
	}
	return false, nil
}

// closedWindowLines say what of a deployment waits for windows of updates.
func closedWindowLines(p api.Progress) []string {
	var lines []string
	for _, group := range p.Deployment.Groups() {
		if w := p.Windows[group]; w.Deferred > 0 {
			lines = append(lines, fmt.Sprintf("group %q: %s", group, progress.WindowLine(w)))
		}
	}
	return lines
}

// waitingError is the end of following a job of which not all runs, for these reasons. The hint, ""
// for none, says what the reader may do.
func (f *followedJob) waitingError(hint string, why ...string) error {
	return &console.ExitError{Code: exitWaiting, Hint: hint, Err: fmt.Errorf("job %q is registered, and not all of it runs:\n  %s",
		f.job.ID, strings.Join(why, "\n  "))}
}

// failureLines says what failed of the job's version.
func (f *followedJob) failureLines() []string {
	var why []string
	for _, a := range f.allocs {
		if a.JobVersion == f.job.Version && a.ClientStatus == fleet.ClientFailed {
			why = append(why, fmt.Sprintf("allocation %s on %s failed: %s", console.ID(a.ID), a.NodeName, progress.FailureReason(a)))
		}
	}
	return why
}

// waitsForAll reports whether a deployment waits for edges that are away.
func waitsForAll(d *fleet.Deployment) bool {
	for _, s := range d.TaskGroups {
		if s.WaitFor != "" && s.WaitFor != fleet.WaitForReachable {
			return true
		}
	}
	return false
}
