package reconcile

import (
	"fmt"
	"slices"

	"skerry/fleet"
	"skerry/fleet/diff"
)

// rollout is what the job's deployment means for one group: how much of it may be
// started anew in this decision, and how far it is.
//
// What is on an edge that is away is deferred: it takes no turn, fails nothing and
// is waited for only where wait_for says so. When its edge is back it goes straight
// to the newest version, in the running deployment or one that is begun for it.
type rollout struct {
	d                 *decision
	g                 *fleet.TaskGroup
	update            *fleet.Update // nil: all at once, and no deployment
	state             fleet.DeploymentState
	holdReason        string // why nothing becomes the newest version now; ""
	turnsLeft         int    // turns
	canaryTurns       int    // turns of canaries, of a system job
	sites             siteBudgets
	blockedByAbsence  int    // what waits for nothing but the return of those
	waiting           int    // what waits for a window to open
	outdated          int    // what runs an older version, in sight
	windowOpen        bool   // a window is open for some of that
	nextWindow        Window // else the one that opens first
	neverRun          bool   // nothing has ever run this version
	changes           bool   // something becomes the newest version, or waits to
	healthy           int
	deferred          int  // deferred
	unrelatedFailures int  // not this deployment's business
	vacant            int  // nodes of a system job that never had any
	canariesObsolete  bool // its canaries were lost, and there is nothing left that others could stand for
	total             int
}

// selectDeployment looks at the job's newest deployment: one of an older version,
// or of a job that is not to run, is over.
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

// isRolledOut reports whether a group's new versions are rolled out.
func isRolledOut(j *fleet.Job, g *fleet.TaskGroup) bool {
	return g.Update != nil && g.Update.MaxParallel > 0 && (j.Type == fleet.JobTypeService || j.Type == fleet.JobTypeSystem)
}

// newRollout looks at all of a group's allocations.
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

// accountForAlloc takes account of one allocation: one of the deployment that is not healthy
// yet takes a turn, and one that is not going to be stops the rollout.
func (r *rollout) accountForAlloc(m *member) {
	if m.kind == kindRunning && r.d.needsDestructiveUpdate(m.a) {
		r.outdated++
		r.recordWindowState(m)
	}
	dep := r.d.deployment
	system := r.d.isSystemJob()
	if (dep == nil || m.a.DeploymentID != dep.ID) && m.kind == kindRunning && m.isNotYetHealthy() && !m.isDuplicate && !r.d.needsDestructiveUpdate(m.a) {
		r.turnsLeft = max(r.turnsLeft-1, 0) // it starts, on behalf of an earlier version that was the same for it, or is to be judged anew
	}
	if !m.isNotYetHealthy() || m.isDuplicate || system && m.kind == kindMigrating { // what takes its place, if anything does, takes a turn
		return
	}
	if n := r.d.in.Nodes[m.a.NodeID]; system && m.kind == kindFailed && n != nil && n.Status == fleet.NodeReady && !n.Schedulable() {
		return // nothing is started there: who took its node out of service knows that
	}
	r.sites.countOutOfService(m, r.siteOfAlloc(m))
	switch {
	case dep == nil, m.a.DeploymentID != dep.ID:
	case m.absent, m.kind == kindReplaying, m.a.DeploymentStatus.IsCanary(), r.isHeldOnEdge(m):
	case system && m.kind == kindFailed: // it is started anew where it is
	case m.a.DeploymentStatus.IsUnhealthy(), m.kind == kindFailed:
		r.turnsLeft = 0
	case r.turnsLeft > 0:
		r.turnsLeft--
	}
}

// holdForPromotion keeps the newest version back until canaries are promoted.
func (r *rollout) holdForPromotion() { r.holdReason = "its canaries are not promoted" }

// canPlaceNewest reports whether the newest version may be started where nothing is.
func (r *rollout) canPlaceNewest() bool { return r.update == nil || r.holdReason == "" }

// takeUpdateTurn asks for a turn to start anew what runs an older version; why says what it
// waits for where there is none. What does not run needs none.
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
		r.blockedByAbsence++ // and nothing changes before an edge is back
		return false, why
	}
	r.changes = true
	switch {
	case r.holdReason != "":
		return false, r.holdReason
	case m.kind == kindFailed || m.kind == kindCompleted || m.kind == kindLost:
		r.turnsLeft = max(r.turnsLeft-1, 0)
		return true, ""
	case r.turnsLeft == 0:
		return false, fmt.Sprintf("%d at once", r.update.MaxParallel)
	case !r.sites.hasSiteBudget(m, site):
		return false, fmt.Sprintf("%d at once at site %s", r.update.MaxUnavailablePerSite, site)
	}
	r.turnsLeft--
	r.sites.countDestructiveUpdate(m, site)
	return true, ""
}

// takeCanaryTurn takes one of the turns of a system job's canaries, if there is one left
// and its site may lose it for a while. A canary takes the place of what runs there, so
// that it is one of those that may be started anew at once.
func (r *rollout) takeCanaryTurn(m *member) bool {
	site := r.d.in.Nodes[m.a.NodeID].SiteName()
	if r.canaryTurns == 0 || r.turnsLeft == 0 && m.kind == kindRunning || !r.sites.hasSiteBudget(m, site) {
		return false
	}
	r.canaryTurns--
	r.turnsLeft = max(r.turnsLeft-1, 0)
	r.sites.countDestructiveUpdate(m, site)
	return true
}

// replacementVersion is the version that takes the place of an allocation: its own where the
// newest is held back; nil: the newest.
func (r *rollout) replacementVersion(m *member) *fleet.Job {
	if r.canPlaceNewest() || !r.d.needsDestructiveUpdate(m.a) || r.d.placingCanary {
		return nil
	}
	return m.a.Job
}

// needsInPlaceUpdate reports whether an allocation takes the newest version in place.
func (r *rollout) needsInPlaceUpdate(m *member, change diff.GroupChange) bool {
	switch change {
	case diff.GroupInPlace:
		r.changes = true
		return true
	case diff.GroupSame:
		return r.needsToJoinDeployment(m)
	}
	return false
}

// reserveTurns takes turns for what is placed where nothing is.
func (r *rollout) reserveTurns(n int) {
	if r.update == nil || n <= 0 {
		return
	}
	r.turnsLeft = max(r.turnsLeft-n, 0)
	r.noteNewPlacement()
}

// noteNewPlacement notes that something is placed where nothing is.
func (r *rollout) noteNewPlacement() {
	if r.update != nil && (r.neverRun || r.outdated > 0) {
		r.changes = true
	}
}

// newDeploymentState is the state that a group begins a deployment with.
func (r *rollout) newDeploymentState() fleet.DeploymentState {
	return fleet.DeploymentState{
		AutoRevert: r.update.AutoRevert, AutoPromote: r.update.AutoPromote, ProgressDeadline: r.update.ProgressDeadline,
		DesiredTotal: r.total, DesiredCanaries: r.state.DesiredCanaries, WaitFor: r.update.WaitFor,
	}
}

// beginOrEndDeployment begins a deployment where something changes and there is none, or
// ends the one that has got where it should; what is placed belongs to it.
func (d *decision) beginOrEndDeployment() {
	if d.in.Job.Stopped() {
		return
	}
	current := d.deployment
	if current == nil && slices.ContainsFunc(d.rollouts, func(r *rollout) bool { return r.update != nil && r.changes && r.total > 0 }) {
		current = d.newDeployment()
		d.out.Deployment = current
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
	dep.StatusDescription = dep.RunningDescription()
	return dep
}

// addToDeployment makes what takes the newest version in this decision part of a
// deployment.
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

// splitCanaries sets a group's canaries apart: those of the deployment that wait
// for their promotion, and those that nobody will promote any more.
func (d *decision) splitCanaries(allocs []*fleet.Alloc) (rest, canaries, old []*fleet.Alloc) {
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

// reconcileCanaries keeps as many canaries beside what runs as the group asks for, until
// they are promoted; their names are those of what they stand beside.
func (d *decision) reconcileCanaries(g *fleet.TaskGroup, slots []*nameIndexAllocs, r *rollout) {
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
	for _, s := range slots {
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

// dropCanaries stops canaries that nobody will promote.
func (d *decision) dropCanaries(allocs []*fleet.Alloc) {
	for _, s := range d.allocsByNameIndex(allocs) {
		for _, m := range s.members {
			d.endWithoutReplacement(m, "its deployment is over, and it was not promoted")
		}
	}
}
