package rollout

import (
	"time"

	"skerry/fleet"
	"skerry/fleet/cron"
	"skerry/hub/state"
)

// DeploymentSnapshot has everything that Next decides from.
type DeploymentSnapshot struct {
	Deployment *fleet.Deployment
	Progress   *Progress  // of the deployment's allocations
	Job        *fleet.Job // newest version; nil: purged
	// Seen is the index of the newest state that an evaluation of the job has used.
	Seen fleet.Index
	// Evaluating reports that the last evaluation for health has not ended. What becomes healthy meanwhile waits for the next
	// one, which is made at NextEval or later.
	Evaluating bool
	NextEval   time.Time
	Now        time.Time

	// Waits reports whether a placement of the group waits for nodes that are away: one of them
	// could run it, or no node that the job may use is connected.
	Waits func(group string) bool
	Site  func(fleet.NodeID) string // site of a node
	// Away reports whether a node is not ready: disconnected, down, or still replaying.
	Away func(fleet.NodeID) bool
	// Awaited reports whether a system job waits for the absent node of a stopped allocation (reconcile.AwaitsNode).
	Awaited func(*fleet.Alloc) bool
	// Window returns the state of a group's update windows on a node; nil: always open.
	Window   func(fleet.NodeID, *fleet.TaskGroup) cron.WindowState
	Versions func() []*fleet.Job   // kept versions of the job, newest first
	Whole    func() []*fleet.Alloc // all of the job's allocations: read once, and only if asked for
	Alloc    func(fleet.AllocID) (*fleet.Alloc, bool)
	NewEval  func() fleet.EvalID
}

// Step is the next step of a deployment: a command to commit, or (nil) to wait for a change of the
// state or for Until (zero: for a change only).
type Step struct {
	Command state.Command
	Why     string
	Seen    fleet.Index  // Seen of the next snapshot, once the command is committed
	Eval    fleet.EvalID // the evaluation for health that the command makes; empty: none
	Until   time.Time
}

// Next returns the next step of a deployment. It is pure. It does nothing for a deployment that is
// paused, or that is not of the job's newest version: the scheduler ends that one.
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
		cutoff = p.Now.Add(p.recheckInterval()) // the rest is away or outside its window: a return or a window restarts the deadline
	}
	if opens := p.nextWindowOpening(); !opens.IsZero() && (cutoff.IsZero() || opens.Before(cutoff)) {
		cutoff = opens
	}
	newest := p.Progress.newestHealthyIndex
	switch {
	case newest <= p.Seen || p.Evaluating:
	case p.Now.Before(p.NextEval):
		if cutoff.IsZero() || p.NextEval.Sub(p.Now) < cutoff.Sub(p.Now) { // NextEval does not follow a clock that is set back
			cutoff = p.NextEval
		}
	default:
		e := p.newEvaluation()
		return Step{
			Command: state.Evals{Evals: []fleet.Evaluation{*e}, Now: p.Now.UnixNano()},
			Why:     "evaluate: more of it is healthy", Seen: newest, Eval: e.ID,
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

// failDeployment is the step that fails the deployment, and rolls the job back if auto_revert is set.
func (p DeploymentSnapshot) failDeployment(why string) Step {
	u, back := p.Deployment.Fail(p.Versions(), why)
	return Step{
		Command: state.DeploymentStatus{Update: u, Rollback: back, Eval: p.newEvaluation(), Now: p.Now.UnixNano()},
		Why:     u.StatusDescription,
	}
}

// handleFailedAllocs returns the step for failed or unhealthy allocations, false for none. Without a
// progress deadline, or if the reschedule policy permits no further attempt, the deployment fails.
// Else they are rescheduled until the deadline.
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
		case p.isSystemJob(): // replaced on its node, without a bound of attempts
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

// isManualHealthCheck reports whether only operators set the health of a group's allocations: a failed
// task does not make its allocation unhealthy then.
func isManualHealthCheck(g *fleet.TaskGroup) bool {
	return g != nil && g.Update != nil && g.Update.HealthCheck == fleet.HealthManual
}

// isReplaced reports whether an allocation has a replacement that is neither lost nor stopped.
func (p DeploymentSnapshot) isReplaced(a *fleet.Alloc) bool {
	if a.NextAllocation == "" {
		return false
	}
	next, known := p.Alloc(a.NextAllocation)
	return known && !next.NoLongerWanted() && next.ClientStatus != fleet.ClientLost
}

// canReschedule reports whether a reschedule policy permits another attempt at the time now.
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

// autoPromoteCanaries returns the step that promotes all groups of a deployment with auto_promote,
// once the canaries of all groups are healthy. false: not yet, or no auto_promote.
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

// earliestDeadline is the earliest progress deadline of the groups that are not done, or zero. A group
// whose canaries are healthy waits for an operator and has no deadline.
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

// hasMissedDeadline reports whether a group past its deadline still has an allocation to bring up on a
// node that is connected. Deferred allocations and placements that wait for absent nodes do not count.
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

// hasUnhealthyAlloc reports whether a group has an unhealthy allocation that is neither deferred nor
// replaced. A system job may have more nodes than when the deployment began, so that a sufficient
// number of healthy allocations does not prove the contrary.
func (p DeploymentSnapshot) hasUnhealthyAlloc(group string) bool {
	for _, a := range p.Progress.progressOfGroup(group).unhealthy {
		if !p.isDeferredAlloc(a) && !p.isReplaced(a) {
			return true
		}
	}
	return false
}

// isSystemJob reports whether the job is of type system.
func (p DeploymentSnapshot) isSystemJob() bool { return p.Job.Type == fleet.JobTypeSystem }

// countDoneOrDeferred counts the allocation names of a group (for a system job, its nodes) that are
// healthy or deferred: away, held back since the site's max_unavailable_per_site is used up by absent
// nodes, or outside their update window. all: every name or node of the group is counted.
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
			posts[key] = false // it runs an older version, or has to be placed again
		}
	}
	for _, done := range posts {
		if done {
			n++
		}
	}
	return n, n == len(posts)
}

// isNewestVersion reports whether an allocation is of the job's newest version, or of one with the
// same specification.
func (p DeploymentSnapshot) isNewestVersion(a *fleet.Alloc) bool {
	return a.JobVersion == p.Job.Version || a.JobHash != "" && a.JobHash == p.Job.SpecHash
}

// needsReplacement reports whether a stopped allocation still gets a replacement: the deployment
// stopped it before there was capacity for the new one, or its node is away and awaited.
func (p DeploymentSnapshot) needsReplacement(a *fleet.Alloc, newest bool) bool {
	away := p.Away(a.NodeID)
	if p.isSystemJob() && away {
		return a.NoLongerWanted() && a.DesiredStatus != fleet.DesiredEvict && a.NextAllocation == "" && p.Awaited(a)
	}
	return (p.isSystemJob() || away && a.OccupiesNode()) && !newest && p.Deployment.StoppedForUpdate(a)
}

// sitesAtLimit returns the sites whose max_unavailable_per_site is used up by allocations on absent
// nodes: no further update starts there before one of the nodes is back.
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
