package reconcile

import (
	"fmt"
	"slices"

	"skerry/fleet"
	"skerry/fleet/diff"
)

// rollout is the state of a group's update in one decision: how many allocations may still be replaced,
// and how far its deployment is.
//
// An allocation on a node that is away is deferred: it takes no turn, is no failure, and is only waited
// for if wait_for asks for it. When its edge is back it gets the newest version at once, in the active
// deployment or a new one.
type rollout struct {
	d                 *decision
	g                 *fleet.TaskGroup
	update            *fleet.Update         // nil: all at once, without a deployment
	state             fleet.DeploymentState // of the group in the deployment; zero: there is none
	holdReason        string                // why the newest version is held back; "": it is not
	turnsLeft         int                   // how many allocations may still be replaced in this decision
	canaryTurns       int                   // of a system job: how many may still be replaced by canaries
	sites             siteBudgets           // allocations out of service by site
	blockedByAbsence  int                   // allocations that wait only for absent ones of their site
	waiting           int                   // allocations that wait for a window to open
	outdated          int                   // allocations that run an older version on a ready node
	windowOpen        bool                  // a window is open for one of the outdated
	nextWindow        Window                // of the closed windows of the outdated, the one that opens first
	neverRun          bool                  // no allocation was ever placed for the newest version
	changes           bool                  // an allocation gets the newest version, or waits for it
	mayJoin           []*member             // unchanged allocations that join a deployment if one begins
	healthy           int                   // name indexes, or nodes, that are healthy with the newest version
	deferred          int                   // name indexes, or nodes, that are deferred
	unrelatedFailures int                   // failures that this deployment does not count; see isUnrelatedFailure
	vacant            int                   // nodes of a system job that never had an allocation
	canariesObsolete  bool                  // canaries were lost, and no older allocation is left that others could replace
	total             int                   // desired number of allocations
}

// selectDeployment sets the deployment of the newest version. It cancels an active deployment of an older
// version or of a stopped job.
func (d *decision) selectDeployment() {
	last := d.in.Deployment
	cancel := func(why string) {
		d.out.DeploymentUpdates = append(d.out.DeploymentUpdates, fleet.DeploymentUpdate{
			DeploymentID: last.ID, Status: fleet.DeploymentCancelled, StatusDescription: why,
		})
	}
	switch {
	case last == nil:
	case d.in.Job.Stopped():
		if last.Active() {
			cancel(fleet.DescStoppedJob)
		}
	case !last.Of(d.in.Job):
		if last.Active() {
			cancel(fleet.DescNewerJob)
		}
	case last.Status == fleet.DeploymentSuccessful:
		d.versionSucceeded = true
	case last.Active() || last.Status == fleet.DeploymentFailed:
		d.deployment = last
	}
}

// isRolledOut reports whether new versions of a group are rolled out by a deployment.
func isRolledOut(j *fleet.Job, g *fleet.TaskGroup) bool {
	return g.Update != nil && g.Update.MaxParallel > 0 && (j.Type == fleet.JobTypeService || j.Type == fleet.JobTypeSystem)
}

// newRollout computes the turns that are left for a group from all of its allocations.
func (d *decision) newRollout(g *fleet.TaskGroup, members []*member) *rollout {
	r := &rollout{d: d, g: g, neverRun: true, sites: newSiteBudgets(g)}
	if !isRolledOut(d.in.Job, g) {
		return r
	}
	r.update, r.turnsLeft = g.Update, g.Update.MaxParallel
	if d.deployment != nil {
		r.state = d.deployment.TaskGroups[g.Name]
	}
	for _, m := range members {
		if d.isOfNewestVersion(m.a) {
			r.neverRun = false
		}
		r.accountForAlloc(m)
	}
	switch dep := d.deployment; {
	case dep == nil:
	case dep.Status == fleet.DeploymentFailed:
		r.holdReason = "its deployment failed"
	case dep.Status == fleet.DeploymentPaused:
		r.holdReason = "its deployment is paused"
	}
	return r
}

// accountForAlloc counts one allocation. An allocation of the deployment that is not healthy yet takes a
// turn; a failed or unhealthy one takes all turns.
func (r *rollout) accountForAlloc(m *member) {
	if m.held {
		return
	}
	if m.kind == kindRunning && r.d.needsDestructiveUpdate(m.a) {
		r.outdated++
		r.recordWindowState(m)
	}
	dep := r.d.deployment
	system := r.d.isSystemJob()
	if (dep == nil || m.a.DeploymentID != dep.ID) && m.kind == kindRunning && m.isNotYetHealthy() && !m.isDuplicate && !r.d.needsDestructiveUpdate(m.a) {
		r.giveTurn(m) // it is starting, or not healthy yet in an earlier deployment
	}
	if !m.isNotYetHealthy() || m.isDuplicate || system && m.kind == kindMigrating { // its replacement takes the turn
		return
	}
	if n := r.d.in.Nodes[m.a.NodeID]; system && m.kind == kindFailed && n != nil && n.Status == fleet.NodeReady && !n.Schedulable() {
		return // the operator made its node ineligible, so it is not started there again
	}
	r.sites.countOutOfService(m, r.siteOfAlloc(m))
	switch {
	case dep == nil, m.a.DeploymentID != dep.ID:
	case m.absent, m.kind == kindReplaying, m.a.DeploymentStatus.IsCanary(), r.isHeldOnEdge(m):
	case system && m.kind == kindFailed: // it is restarted on its node
	case m.a.DeploymentStatus.IsUnhealthy(), m.kind == kindFailed:
		r.turnsLeft = 0
	default:
		r.giveTurn(m)
	}
}

// giveTurn gives an allocation a turn. Its replacement needs no other.
func (r *rollout) giveTurn(m *member) {
	if !m.hasTurn {
		m.hasTurn = true
		r.turnsLeft = max(r.turnsLeft-1, 0)
	}
}

// holdForPromotion holds the newest version back until its canaries are promoted.
func (r *rollout) holdForPromotion() { r.holdReason = "its canaries are not promoted" }

// canPlaceNewest reports whether the newest version is not held back.
func (r *rollout) canPlaceNewest() bool { return r.update == nil || r.holdReason == "" }

// takeUpdateTurn asks for a turn to replace an allocation of an older version. If ok is false, why is what
// it waits for. Unless the newest version is held back, an allocation that does not run always gets one.
func (r *rollout) takeUpdateTurn(m *member) (ok bool, why string) {
	if r.holdReason == "" {
		if why := r.outsideWindowReason(m); why != "" {
			return false, why
		}
	}
	if r.update == nil {
		return true, ""
	}
	site := r.d.in.Nodes[m.a.NodeID].SiteName()
	if why := r.sites.siteFullReason(m, site); why != "" && r.holdReason == "" {
		r.blockedByAbsence++ // nothing changes before a node of the site is back
		return false, why
	}
	r.changes = true
	switch {
	case r.holdReason != "":
		return false, r.holdReason
	case m.kind == kindFailed || m.kind == kindCompleted || m.kind == kindLost:
		r.giveTurn(m)
		return true, ""
	case r.turnsLeft == 0 && !m.hasTurn:
		return false, fmt.Sprintf("%d at once", r.update.MaxParallel)
	case !r.sites.hasSiteBudget(m, site):
		return false, fmt.Sprintf("%d at once at site %s", r.update.MaxUnavailablePerSite, site)
	}
	r.giveTurn(m)
	r.sites.countDestructiveUpdate(m, site)
	return true, ""
}

// takeCanaryTurn takes a turn to replace an allocation of a system job by a canary, and reports whether
// there was one. The canary replaces a running allocation, so it also needs an update turn and the site's
// budget.
func (r *rollout) takeCanaryTurn(m *member) bool {
	site := r.d.in.Nodes[m.a.NodeID].SiteName()
	if r.canaryTurns == 0 || r.turnsLeft == 0 && m.kind == kindRunning || !r.sites.hasSiteBudget(m, site) {
		return false
	}
	r.canaryTurns--
	r.giveTurn(m)
	r.sites.countDestructiveUpdate(m, site)
	return true
}

// replacementVersion returns the version to place as the replacement of an allocation: its own if the
// newest is held back; nil: the newest.
func (r *rollout) replacementVersion(m *member) *fleet.Job {
	if r.canPlaceNewest() || !r.d.needsDestructiveUpdate(m.a) || r.d.placingCanary {
		return nil
	}
	return m.a.Job
}

// needsInPlaceUpdate reports whether an allocation takes the newest version in place, or joins the new
// deployment.
func (r *rollout) needsInPlaceUpdate(m *member, change diff.GroupChange) bool {
	switch change {
	case diff.GroupInPlace:
		r.changes = r.changes || !m.held
		return true
	case diff.GroupSame:
		return r.needsToJoinDeployment(m)
	}
	return false
}

// reserveTurns takes n turns for new placements.
func (r *rollout) reserveTurns(n int) {
	if r.update == nil || n <= 0 {
		return
	}
	r.turnsLeft = max(r.turnsLeft-n, 0)
	r.noteNewPlacement()
}

// noteNewPlacement records that a new placement is part of the update, unless the version is running
// everywhere else.
func (r *rollout) noteNewPlacement() {
	if r.update != nil && (r.neverRun || r.outdated > 0) {
		r.changes = true
	}
}

// newDeploymentState returns the group's state in a new deployment.
func (r *rollout) newDeploymentState() fleet.DeploymentState {
	return fleet.DeploymentState{
		AutoRevert: r.update.AutoRevert, AutoPromote: r.update.AutoPromote, ProgressDeadline: r.update.ProgressDeadline,
		DesiredTotal: r.total, DesiredCanaries: r.state.DesiredCanaries, WaitFor: r.update.WaitFor,
	}
}

// beginOrEndDeployment begins a deployment if none is active and a group with an update block changes. Otherwise it
// ends the active one as successful if all groups are complete and promoted. In both cases it adds the placements and
// updates of the newest version to the deployment.
func (d *decision) beginOrEndDeployment() {
	if d.in.Job.Stopped() {
		return
	}
	current := d.deployment
	if current == nil && slices.ContainsFunc(d.rollouts, func(r *rollout) bool { return r.update != nil && r.changes && r.total > 0 }) {
		current = d.newDeployment()
		d.out.Deployment = current
		d.joinNewDeployment(current)
	}
	if !current.Active() {
		return
	}
	d.addToDeployment(current)
	if d.out.Deployment != nil || current.Status != fleet.DeploymentRunning {
		return
	}
	for _, r := range d.rollouts {
		s := current.TaskGroups[r.g.Name]
		if r.update != nil && (!r.isGroupComplete() || s.DesiredCanaries > 0 && !s.Promoted && !r.canariesObsolete) {
			return
		}
	}
	d.out.DeploymentUpdates = append(d.out.DeploymentUpdates, fleet.DeploymentUpdate{
		DeploymentID: current.ID, Status: fleet.DeploymentSuccessful, StatusDescription: fleet.DescSuccessful,
	})
}

// newDeployment returns a new deployment of the newest version.
func (d *decision) newDeployment() *fleet.Deployment {
	dep := &fleet.Deployment{
		ID: fleet.DeploymentID(d.in.NewID()), Namespace: d.in.Namespace, JobID: d.in.JobID, JobVersion: d.in.Job.Version,
		JobModifyIndex: d.in.Job.ModifyIndex, JobSpecModifyIndex: d.in.Job.JobModifyIndex, JobCreateIndex: d.in.Job.CreateIndex,
		Status: fleet.DeploymentRunning, EvalPriority: d.in.Priority,
		TaskGroups: map[string]fleet.DeploymentState{},
	}
	for _, r := range d.rollouts {
		if r.update != nil && r.total > 0 {
			dep.TaskGroups[r.g.Name] = r.newDeploymentState()
		}
	}
	dep.StatusDescription = dep.RunningDescription(false)
	return dep
}

// addToDeployment makes the placements and in-place updates of the newest version in this decision part of
// a deployment.
func (d *decision) addToDeployment(dep *fleet.Deployment) {
	part := func(group string) bool {
		_, ok := dep.TaskGroups[group]
		return ok
	}
	for i := range d.out.Place {
		if p := &d.out.Place[i]; p.Job == nil && part(p.Group) {
			p.Deployment = dep.ID
		}
	}
	for _, list := range [][]Change{d.out.InPlace, d.out.Reconnects} {
		for i := range list {
			if c := &list[i]; c.Update && part(c.Alloc.TaskGroup) {
				c.Deployment = dep.ID
			}
		}
	}
}

// splitCanaries splits a group's allocations into ordinary ones, canaries of the active deployment, and
// canaries of deployments that are over.
func (d *decision) splitCanaries(allocs []*fleet.Alloc) (rest, canaries, old []*fleet.Alloc) {
	rest = make([]*fleet.Alloc, 0, len(allocs))
	for _, a := range allocs {
		switch {
		case !a.DeploymentStatus.IsCanary():
			rest = append(rest, a)
		case d.deployment.Active() && a.DeploymentID == d.deployment.ID:
			canaries = append(canaries, a)
		default:
			old = append(old, a)
		}
	}
	return rest, canaries, old
}

// reconcileCanaries decides for the canaries of a group, and places missing ones, until they are promoted.
// A canary has the name of the allocation that it will replace. nameIndexes are the name indexes of the
// canaries.
func (d *decision) reconcileCanaries(g *fleet.TaskGroup, nameIndexes []*nameIndexAllocs, r *rollout) {
	if r.update == nil {
		return
	}
	if d.deployment == nil && r.update.Canary > 0 && r.outdated > 0 && !d.versionSucceeded && g.Count > 0 {
		r.state.DesiredCanaries = min(r.update.Canary, g.Count)
	}
	if r.state.DesiredCanaries == 0 || r.state.Promoted {
		return
	}
	paused := r.holdReason != "" || r.canaryWaitReason() != ""
	r.changes = true
	d.placingCanary = true
	defer func() { d.placingCanary = false }()
	taken := map[int]bool{}
	active := 0
	for _, s := range nameIndexes {
		d.findCurrentAlloc(s)
		if s.isActiveIndex() {
			taken[s.index] = true
			active++
		}
		d.reconcileNameIndex(s, g, r)
	}
	r.holdForPromotion()
	next, missing := 0, r.state.DesiredCanaries-active
	for range missing {
		if paused {
			break
		}
		for taken[next] {
			next++
		}
		taken[next] = true
		d.addPlacement(Placement{
			Name: allocName(d.in.JobID, g.Name, next), Group: g.Name,
			Reason: fmt.Sprintf("canary of version %d: group %s wants %d", d.in.Job.Version, g.Name, r.state.DesiredCanaries),
		})
	}
}

// dropCanaries stops the canaries of deployments that are over.
func (d *decision) dropCanaries(allocs []*fleet.Alloc) {
	for _, s := range d.allocsByNameIndex(allocs) {
		for _, m := range s.members {
			d.endWithoutReplacement(m, "its deployment is over, and it was not promoted")
		}
	}
}
