package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/fleet"
)

// rolloutOf returns the deployment that goes on for a job's newest version; nil: none
// does.
func rolloutOf(ctx context.Context, hub *client.Client, job *fleet.Job) (*fleet.Deployment, error) {
	d, err := hub.JobDeployment(ctx, job.ID)
	if err != nil {
		return nil, err
	}
	if !d.Active() || d.JobVersion != job.Version {
		return nil, nil
	}
	return d, nil
}

// followRollout follows a deployment until it is over, or until only a person, more
// capacity or the return of an edge gets it on.
func (f *followedJob) followRollout(ctx context.Context, hub *client.Client, out io.Writer, id fleet.DeploymentID) error {
	screen := newScreen(out)
	awaitProgress := func(ctx context.Context, hub *client.Client) error {
		_, err := hub.DeploymentProgress(ctx, id)
		return err
	}
	last := ""
	for {
		clearStale(out)
		var progress, evals fleet.Index
		p, err := hub.Watch(&progress).DeploymentProgress(ctx, id)
		if err != nil {
			return interruptedError(ctx, out, err)
		}
		if err := f.readBlocked(ctx, hub.Watch(&evals)); err != nil {
			return interruptedError(ctx, out, err)
		}
		if f.allocs, err = hub.JobAllocs(ctx, f.job.ID, client.List{}); err != nil {
			return interruptedError(ctx, out, err)
		}
		if screen.columns == 0 {
			screen.writeChanges(f.allocs)
		}
		if now := fmt.Sprint(p.Deployment.Status, p.Groups); now != last {
			last = now
			screen.showRollout(p)
		}
		if over, err := f.checkRollout(p); over {
			if err == nil {
				screen.writeSummary(f.endSummary())
			}
			return err
		}
		if err := awaitAnyChange(ctx, hub, map[*fleet.Index]blockingRead{&progress: awaitProgress, &evals: f.awaitEvals}); err != nil {
			return interruptedError(ctx, out, err)
		}
	}
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
		return true, f.waitingError(deploymentHint(p), fmt.Sprintf("deployment %s is paused", displayID(d.ID)))
	default:
		lines := append([]string{fmt.Sprintf("deployment %s of job %q is %s: %s", displayID(d.ID), d.JobID, d.Status, d.StatusDescription)}, f.failureLines()...)
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
		if next := outlookSentence(p); next != "" && len(why) > 0 {
			why = append(why, fmt.Sprintf("deployment %s %s", displayID(d.ID), next))
		}
		return len(why) > 0, f.waitingError("", why...)
	case promotable(p):
		next := cmp.Or(outlookSentence(p), "waits for its promotion") // a hub that knows no outlook
		return true, f.waitingError(deploymentHint(p), fmt.Sprintf("deployment %s %s", displayID(d.ID), next))
	case sum.Shut > 0 && sum.Shut == sum.Waiting:
		return true, f.waitingError("", closedWindowLines(p)...)
	case sum.Waiting == 0 && sum.Deferred > 0 && sum.Healthy > 0 && waitsForAll(d):
		return true, f.waitingError("", fmt.Sprintf("deployment %s waits for %d on nodes that are away", displayID(d.ID), sum.Deferred))
	}
	return false, nil
}

// closedWindowLines say what of a deployment waits for windows of updates.
func closedWindowLines(p api.Progress) []string {
	var lines []string
	for _, group := range p.Deployment.Groups() {
		if w := p.Windows[group]; w.Deferred > 0 {
			lines = append(lines, fmt.Sprintf("group %q: %s", group, windowLine(w)))
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
			why = append(why, fmt.Sprintf("allocation %s on %s failed: %s", displayID(a.ID), a.NodeName, failureReason(a)))
		}
	}
	return why
}

// promotable reports whether a deployment has all the canaries that it wants, and does
// not go on by itself.
func promotable(p api.Progress) bool {
	d := p.Deployment
	if !d.RequiresPromotion() || d.AutoPromotes() {
		return false
	}
	for _, group := range d.Groups() {
		if s := d.TaskGroups[group]; !s.Promoted && p.Total(group).Healthy < s.DesiredCanaries {
			return false
		}
	}
	return true
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

// showRollout shows how far a deployment is: as a table on a terminal, else as a line.
func (s *screen) showRollout(p api.Progress) {
	if s.columns > 0 {
		s.writeOver(func(w io.Writer) error { return writeProgress(w, p) })
		return
	}
	for _, group := range p.Deployment.Groups() {
		n := p.Total(group)
		fmt.Fprintf(s.out, "%s  deployment %s is %s: group %q has %d healthy of %d, %d running, %d failed, %d deferred, %d of older versions\n",
			time.Now().Format(time.TimeOnly), displayID(p.Deployment.ID), p.Deployment.Status, group,
			n.Healthy, p.Deployment.TaskGroups[group].DesiredTotal, n.Running, n.Failed, n.Deferred, n.Waiting)
	}
}
