package main

import (
	"fmt"
	"io"
	"strings"

	"skerry/api"
	"skerry/cmd/console"
	"skerry/fleet"
)

// outlookSentence says what becomes of a deployment if nothing more of it becomes healthy, as the
// rest of a sentence about it; "": it is over, or done.
func outlookSentence(p api.Progress) string {
	o, begun, limited := p.Outlook, false, false
	for _, s := range p.Deployment.TaskGroups {
		begun, limited = begun || !s.RequireProgressBy.IsZero(), limited || s.ProgressDeadline > 0
	}
	switch {
	case p.Deployment.Status == fleet.DeploymentPaused:
		return "is paused: no deadline runs"
	case o == nil:
		return ""
	case o.Deadline != nil:
		return fmt.Sprintf("will fail at %s%s unless another allocation becomes healthy before", console.LocalTime(*o.Deadline), revertClause(o))
	case o.Deferred:
		return "is past its progress deadline, which does not run: all that is left is on nodes that are away, or waits for a window of updates"
	case promotable(p):
		return "waits for its promotion: no deadline runs"
	case !limited:
		return fmt.Sprintf("has no progress deadline: it will fail%s as soon as an allocation is unhealthy", revertClause(o))
	case !begun:
		return "has a progress deadline that begins with its first allocation"
	}
	return ""
}

// revertClause says which version the job of a deployment that fails goes back to, or why to none.
func revertClause(o *fleet.DeploymentOutlook) string {
	if o.RevertsTo != nil {
		return fmt.Sprintf(" and revert to version %d", *o.RevertsTo)
	}
	if _, why, asked := strings.Cut(o.Description, " - "); asked {
		return fmt.Sprintf(" and not revert (%s)", why)
	}
	return ""
}

// deploymentHint is the command that gets a deployment on which waits for somebody; "" for none.
func deploymentHint(p api.Progress) string {
	switch d := p.Deployment; {
	case d.Status == fleet.DeploymentPaused:
		return fmt.Sprintf("skerry deployment resume %s", displayID(d.ID))
	case promotable(p):
		return fmt.Sprintf("skerry deployment promote %s", displayID(d.ID))
	}
	return ""
}

// writeFailed says what of a deployment failed.
func writeFailed(w io.Writer, failed []api.AllocStub) {
	for _, a := range failed {
		kind, state := "Allocation", "failed"
		if a.DeploymentStatus.IsCanary() {
			kind = "Canary"
		}
		if a.ClientStatus != fleet.ClientFailed {
			state = "is unhealthy"
		}
		line := fmt.Sprintf("%s %s on %s %s", kind, displayID(a.ID), a.NodeName, state)
		if why := failureReason(a); why != "" {
			line += ": " + why
		}
		if a.NextAllocation != "" {
			line += fmt.Sprintf("; %s replaces it", displayID(a.NextAllocation))
		}
		fmt.Fprintln(w, line)
	}
}
