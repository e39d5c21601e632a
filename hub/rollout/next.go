package rollout

import (
	"time"

	"skerry/fleet"
	"skerry/fleet/cron"
	"skerry/hub/state"
)

// DeploymentSnapshot is what is known of a deployment.
type DeploymentSnapshot struct {
	Deployment *fleet.Deployment
	Progress   *Progress  // of the deployment's allocations
	Job        *fleet.Job // as it shall be now; nil: purged
	// Seen is the newest entry that an evaluation has looked at.
	Seen fleet.Index
	Now  time.Time

	// Waits reports whether a placement of the group waits for nodes that are away: they
	// have a place for it, or no node that the job may use is connected.
	Waits func(group string) bool
	Site  func(fleet.NodeID) string // at which a node stands
	// Away reports whether a node is out of reach, or its history is not in yet.
	Away func(fleet.NodeID) bool
	// Window says how the windows of a group's updates stand on a node; nil: they are
	// always open.
	Window   func(fleet.NodeID, *fleet.TaskGroup) cron.WindowState
	Versions func() []*fleet.Job   // the job's kept ones, newest first
	Whole    func() []*fleet.Alloc // all of the job's allocations
	Alloc    func(fleet.AllocID) (*fleet.Alloc, bool)
	NewEval  func() fleet.EvalID
}

// Step is what is to be done about a deployment now: a command, or to wait until
// something changes or a time comes (zero: for changes alone).
type Step struct {
	Command state.Command
	Why     string
	Seen    fleet.Index // that the command's evaluation will have looked at
	Until   time.Time
}

// Next says what is to be done about a deployment. It decides from its arguments
// alone. A deployment that is paused, or not of the job's newest version (which the
// scheduler ends), is left alone.
func Next(p DeploymentSnapshot) Step {
	if !p.isRunningNewest() {
		return Step{}
	}
	if step, ok := p.handleFailedAllocs(); ok {
		return step
	}
	if step, ok := p.autoPromoteCanaries(); ok {
		return step
	}
	cutoff := p.earliestDeadline()
	if !cutoff.IsZero() && !p.Now.Before(cutoff) {
		if p.hasMissedDeadline() {
			return p.failDeployment(fleet.DescProgressDeadline)
		}
		cutoff = p.Now.Add(p.recheckInterval()) // all that is left is away, or shut: a return, or a window, gives it time
	}
	if opens := p.nextWindowOpening(); !opens.IsZero() && (cutoff.IsZero() || opens.Before(cutoff)) {
		cutoff = opens
	}
	if newest := p.Progress.newestHealthyIndex; newest > p.Seen {
		return Step{
			Command: state.Evals{Evals: []fleet.Evaluation{*p.newEvaluation()}, Now: p.Now.UnixNano()},
			Why:     "evaluate: more of it is healthy", Seen: newest,
		}
	}
	return Step{Until: cutoff}
}

// isRunningNewest reports whether the deployment runs, and is of the job's newest version.
func (p DeploymentSnapshot) isRunningNewest() bool {
	d := p.Deployment
	return d.Status == fleet.DeploymentRunning && !p.Job.Stopped() && d.Of(p.Job)
}

// newEvaluation is an evaluation of the deployment's job.
func (p DeploymentSnapshot) newEvaluation() *fleet.Evaluation {
	d := p.Deployment
	return &fleet.Evaluation{
		ID: p.NewEval(), Namespace: d.Namespace, JobID: d.JobID, Type: p.Job.Type, Priority: p.Job.Priority,
		JobModifyIndex: p.Job.JobModifyIndex, TriggeredBy: fleet.TriggerDeploymentWatcher, DeploymentID: d.ID, Status: fleet.EvalPending,
	}
}

// failDeployment ends the deployment, and takes the job back where it asks for that.
func (p DeploymentSnapshot) failDeployment(why string) Step {
	u, back := p.Deployment.Fail(p.Versions(), why)
	return Step{
		Command: state.DeploymentStatus{Update: u, Rollback: back, Eval: p.newEvaluation(), Now: p.Now.UnixNano()},
		Why:     u.StatusDescription,
	}
}

// handleFailedAllocs deals with what failed: without a progress deadline, and where nothing
// may be tried again, that ends the deployment; else another attempt follows, by the
// group's reschedule policy, until the deadline.
func (p DeploymentSnapshot) handleFailedAllocs() (Step, bool) {
	var again []fleet.AllocID
	for _, a := range sortedByID(p.Progress.failedAllocs) {
		g := p.Job.Group(a.TaskGroup)
		if !a.DeploymentStatus.IsUnhealthy() && isManualHealthCheck(g) || p.isReplaced(a) {
			continue
		}
		switch s := p.Deployment.TaskGroups[a.TaskGroup]; {
		case s.ProgressDeadline == 0:
			return p.failDeployment(fleet.DescFailedAllocations), true
		case p.isSystemJob(): // started anew on its node, whatever comes of it
		case g == nil || !canReschedule(a, g.ReschedulePolicy, p.Now):
			return p.failDeployment(fleet.DescFailedAllocations), true
		default:
			again = append(again, a.ID)
		}
	}
	if len(again) == 0 {
		return Step{}, false
	}
	return Step{
		Command: state.AllocHealth{DeploymentID: p.Deployment.ID, Reschedule: again, Eval: p.newEvaluation(), Now: p.Now.UnixNano()},
		Why:     "evaluate: another attempt follows what failed",
	}, true
}

// isManualHealthCheck reports whether people alone say what of a group is healthy: that something
// failed says nothing then.
func isManualHealthCheck(g *fleet.TaskGroup) bool {
	return g != nil && g.Update != nil && g.Update.HealthCheck == fleet.HealthManual
}

// isReplaced reports whether something has taken the place of an allocation, that was not
// lost or stopped meanwhile: then it is what counts.
func (p DeploymentSnapshot) isReplaced(a *fleet.Alloc) bool {
	if a.NextAllocation == "" {
		return false
	}
	next, known := p.Alloc(a.NextAllocation)
	return known && !next.NoLongerWanted() && next.ClientStatus != fleet.ClientLost
}

// canReschedule reports whether a policy allows another attempt.
func canReschedule(a *fleet.Alloc, policy *fleet.ReschedulePolicy, now time.Time) bool {
	switch {
	case policy == nil:
		return false
	case policy.Unlimited:
		return true
	}
	n := 0
	if t := a.RescheduleTracker; t != nil {
		for _, e := range t.Events {
			if now.UnixNano()-e.RescheduleTime < int64(policy.Interval) {
				n++
			}
		}
	}
	return n < policy.Attempts
}

// autoPromoteCanaries promotes canaries that promote themselves, all groups together.
func (p DeploymentSnapshot) autoPromoteCanaries() (Step, bool) {
	d := p.Deployment
	if !d.RequiresPromotion() || !d.AutoPromotes() {
		return Step{}, false
	}
	for name, s := range d.TaskGroups {
		if s.DesiredCanaries > 0 && !s.Promoted && p.Progress.progressOfGroup(name).healthyCanaries < s.DesiredCanaries {
			return Step{}, false
		}
	}
	return Step{
		Command: state.DeploymentPromote{DeploymentID: d.ID, Eval: p.newEvaluation(), Now: p.Now.UnixNano()},
		Why:     "promote: all canaries are healthy",
	}, true
}

// earliestDeadline is when the first of the groups that are not done has to have got on, or
// zero. Canaries that are healthy wait for people, who have no deadline.
func (p DeploymentSnapshot) earliestDeadline() time.Time {
	var first time.Time
	for name, s := range p.Deployment.TaskGroups {
		now := p.Progress.progressOfGroup(name)
		waits := s.DesiredCanaries > 0 && !s.Promoted && now.healthyCanaries >= s.DesiredCanaries
		by := p.groupDeadline(name, s)
		if by.IsZero() || waits {
			continue
		}
		done := now.healthy >= s.DesiredTotal && !p.hasUnhealthyAlloc(name)
		if done && p.isSystemJob() {
			_, done = p.countDoneOrDeferred(name, p.Whole())
		}
		if done {
			continue
		}
		if first.IsZero() || by.Before(first) {
			first = by
		}
	}
	return first
}

// hasMissedDeadline reports whether a group whose time is over has something left to do within
// reach: its deadline does not run for what is away, nor where all nodes are.
func (p DeploymentSnapshot) hasMissedDeadline() bool {
	whole := p.Whole()
	for name, s := range p.Deployment.TaskGroups {
		by := p.groupDeadline(name, s)
		over := !by.IsZero() && !p.Now.Before(by)
		if !over {
			continue
		}
		n, all := p.countDoneOrDeferred(name, whole)
		left := n < s.DesiredTotal || p.isSystemJob() && !all
		if (left && !p.isAwaitingPromotion(name, s) || p.hasUnhealthyAlloc(name)) && !p.Waits(name) {
			return true
		}
	}
	return false
}

// hasUnhealthyAlloc reports whether something of a group within reach is unhealthy, and nothing has
// taken its place. More nodes may want the group than when the deployment began: that as
// many are healthy as it was to have does not end it.
func (p DeploymentSnapshot) hasUnhealthyAlloc(group string) bool {
	for _, a := range p.Progress.progressOfGroup(group).unhealthy {
		if !p.isDeferredAlloc(a) && !p.isReplaced(a) {
			return true
		}
	}
	return false
}

// isSystemJob: the job has its allocations on every node.
func (p DeploymentSnapshot) isSystemJob() bool { return p.Job.Type == fleet.JobTypeSystem }

// countDoneOrDeferred counts the names, or the nodes, of a group that are healthy or deferred:
// away, held back for a site of which as much is away in the middle of it as may be out
// of service, or waiting for a window to open. all: the group has nothing else. Of a system
// job nodes that came later may make up the number.
func (p DeploymentSnapshot) countDoneOrDeferred(group string, whole []*fleet.Alloc) (n int, all bool) {
	full, held := p.sitesAtLimit(group, whole), p.namesHeldByEdge(group, whole)
	posts := map[string]bool{}
	for _, a := range whole {
		key := a.Name
		if p.isSystemJob() {
			key = string(a.NodeID)
		}
		newest := p.isNewestVersion(a)
		serves := a.DeploymentStatus.IsHealthy() || a.DeploymentID == "" && a.ClientStatus == fleet.ClientRunning
		switch {
		case a.TaskGroup != group || a.NoLongerWanted() && !p.hasJustReturned(a) && !p.needsReplacement(a, newest):
		case p.isDeferredAlloc(a), a.NoLongerWanted() && p.Away(a.NodeID), newest && serves && !a.ClientTerminal(),
			newest && a.ClientStatus == fleet.ClientFailed && a.DeploymentID != p.Deployment.ID, // after an earlier deployment brought it up
			!newest && full[p.Site(a.NodeID)], p.hasUpdateWindows(group) && p.isOutsideWindow(a, held):
			posts[key] = true
		case !posts[key]:
			posts[key] = false // it is there, or is to come again
		}
	}
	for _, done := range posts {
		if done {
			n++
		}
	}
	return n, n == len(posts)
}

// isNewestVersion reports whether an allocation runs what the newest version wants.
func (p DeploymentSnapshot) isNewestVersion(a *fleet.Alloc) bool {
	return a.JobVersion == p.Job.Version || a.JobHash != "" && a.JobHash == p.Job.SpecHash
}

// needsReplacement reports whether something is to take the place of an allocation that the hub has
// stopped: the deployment made room for it, or it waits for an edge that is away.
func (p DeploymentSnapshot) needsReplacement(a *fleet.Alloc, newest bool) bool {
	away := p.Away(a.NodeID)
	if p.isSystemJob() && away {
		return a.NoLongerWanted() && a.DesiredStatus != fleet.DesiredEvict && a.NextAllocation == ""
	}
	return (p.isSystemJob() || away && a.OccupiesNode()) && !newest && p.Deployment.StoppedForUpdate(a)
}

// sitesAtLimit are the sites at which nothing of a group may be started anew before an
// edge is back.
func (p DeploymentSnapshot) sitesAtLimit(group string, whole []*fleet.Alloc) map[string]bool {
	g := p.Job.Group(group)
	if g == nil || g.Update == nil || g.Update.MaxUnavailablePerSite == 0 {
		return nil
	}
	gone, full := map[string]int{}, map[string]bool{}
	for _, a := range whole {
		begun := !a.NoLongerWanted() && a.ClientStatus == fleet.ClientUnknown && a.DeploymentID != "" && !a.DeploymentStatus.IsHealthy()
		if a.TaskGroup == group && (begun || a.NoLongerWanted() && p.Away(a.NodeID) && p.needsReplacement(a, p.isNewestVersion(a))) {
			site := p.Site(a.NodeID)
			gone[site]++
			full[site] = gone[site] >= g.Update.MaxUnavailablePerSite
		}
	}
	return full
}
