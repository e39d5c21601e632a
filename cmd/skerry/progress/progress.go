// Package progress writes how far a deployment is. Commands of deployments, and those that follow one,
// use it. It does no requests, starts no goroutine, and persists nothing.
package progress

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry/api"
	"skerry/cmd/console"
	"skerry/fleet"
)

// Write writes how far a deployment is, by group and site.
func Write(out *console.Output, p api.Progress) {
	d := p.Deployment
	out.Line("Deployment %s of job %q, version %d: %s\n%s", console.ID(d.ID), d.JobID, d.JobVersion, d.Status, d.StatusDescription)
	if next := OutlookSentence(p); next != "" {
		out.Line("It %s.", next)
	}
	writeFailed(out, p.Failed)
	out.Line("")
	t := console.NewTable("GROUP", "SITE", "HEALTHY", "RUNNING", "DEFERRED", "FAILED", "WAITING", "DESIRED")
	for _, group := range d.Groups() {
		s := d.TaskGroups[group]
		desired := fmt.Sprint(s.DesiredTotal)
		if s.DesiredCanaries > 0 && !s.Promoted {
			desired += fmt.Sprintf(", %d as canaries", s.DesiredCanaries)
		}
		sum, sites := p.Total(group), p.Groups[group]
		for _, site := range slices.Sorted(maps.Keys(sites)) {
			n := sites[site]
			if len(sites) > 1 {
				t.Add(group, site, n.Healthy, n.Running, n.Deferred, n.Failed, n.Waiting, "")
			}
		}
		t.Add(group, "all", sum.Healthy, sum.Running, sum.Deferred, sum.Failed, sum.Waiting, desired)
	}
	out.Table(t)
	for _, group := range d.Groups() {
		if w := p.Windows[group]; w.Deferred > 0 {
			out.Line("\nGroup %q: %s", group, WindowLine(w))
		}
	}
	if hint := Hint(p); hint != "" {
		out.Line("")
		out.Hint("%s", hint)
	}
}

// WindowLine says how many allocations of a group wait for an update window.
func WindowLine(w api.WindowProgress) string {
	if w.Opens == nil {
		return fmt.Sprintf("%d of those that wait are deferred by their windows, none of which opens again", w.Deferred)
	}
	return fmt.Sprintf("%d of those that wait are deferred by their windows, the next of which opens at %s", w.Deferred, console.LocalTime(*w.Opens))
}

// OutlookSentence says what becomes of a deployment if nothing more of it becomes healthy, as the
// rest of a sentence about it; "": it is over, or done.
func OutlookSentence(p api.Progress) string {
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
	case Promotable(p):
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

// Hint is the command for a deployment that waits for an operator; "": it waits for none.
func Hint(p api.Progress) string {
	switch d := p.Deployment; {
	case d.Status == fleet.DeploymentPaused:
		return fmt.Sprintf("skerry deployment resume %s", console.ID(d.ID))
	case Promotable(p):
		return fmt.Sprintf("skerry deployment promote %s", console.ID(d.ID))
	}
	return ""
}

// writeFailed writes the failed allocations of a deployment, a line each.
func writeFailed(out *console.Output, failed []api.AllocStub) {
	for _, a := range failed {
		kind, state := "Allocation", "failed"
		if a.DeploymentStatus.IsCanary() {
			kind = "Canary"
		}
		if a.ClientStatus != fleet.ClientFailed {
			state = "is unhealthy"
		}
		line := fmt.Sprintf("%s %s on %s %s", kind, console.ID(a.ID), a.NodeName, state)
		if why := FailureReason(a); why != "" {
			line += ": " + why
		}
		if a.NextAllocation != "" {
			line += fmt.Sprintf("; %s replaces it", console.ID(a.NextAllocation))
		}
		out.Line("%s", line)
	}
}

// Promotable reports whether a deployment has all the canaries that it wants, and waits for its promotion.
func Promotable(p api.Progress) bool {
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

// Show shows how far a deployment is: as a table on a terminal, else as a line.
func Show(screen *console.Screen, p api.Progress) {
	if screen.IsTerminal() {
		screen.WriteOver(func(out *console.Output) { Write(out, p) })
		return
	}
	for _, group := range p.Deployment.Groups() {
		n := p.Total(group)
		screen.Out.Line("%s  deployment %s is %s: group %q has %d healthy of %d, %d running, %d failed, %d deferred, %d of older versions",
			time.Now().Format(time.TimeOnly), console.ID(p.Deployment.ID), p.Deployment.Status, group,
			n.Healthy, p.Deployment.TaskGroups[group].DesiredTotal, n.Running, n.Failed, n.Deferred, n.Waiting)
	}
}

// FailureReason says why an allocation failed, by its last event that failed a task.
func FailureReason(a api.AllocStub) string {
	for _, task := range a.TaskStates {
		for _, e := range slices.Backward(task.Events) {
			if task.Failed && (e.Type == fleet.TaskDriverFailure || e.Type == fleet.TaskTerminated || e.Type == fleet.TaskSetup) {
				return console.Plain(strings.TrimSpace(e.Type + ": " + e.DisplayMessage))
			}
		}
	}
	return a.ClientDescription
}
