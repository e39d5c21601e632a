package observe

import (
	"maps"
	"slices"
	"time"

	"skerry/chaos/check"
	"skerry/fleet"
	"skerry/fleet/cron"
	"skerry/fleet/diff"
	"skerry/hub/consensus"
	"skerry/hub/state"
)

// rolloutChanges returns the effect of a plan on the rollout of each group: the allocations that it takes down, and
// those that are starting already. advances are its placements of newer versions. placed are the allocations that the
// plan changed.
func rolloutChanges(a consensus.Applied, placed []fleet.Alloc) (rs []check.Rollout, advances []check.Advance) {
	for i := range placed {
		now := &placed[i]
		if now.CreateIndex != a.Index {
			continue
		}
		before, _ := a.View.Alloc(now.PreviousAllocation)
		if before != nil && before.Job != nil && now.Job != nil && before.Job.CreateIndex == now.Job.CreateIndex && before.JobVersion < now.JobVersion {
			advances = append(advances, check.Advance{
				Alloc: now.ID, Node: now.NodeID, Job: now.JobID, From: before.JobVersion, To: now.JobVersion,
			})
		}
		r := rolloutOf(a, &rs, now.DeploymentID, now.Job, now.TaskGroup)
		if r == nil {
			continue
		}
		if now.DeploymentStatus.IsCanary() && !r.System {
			continue
		}
		if before != nil && before.AllocModifyIndex < a.Index && makesRoom(a.View, before, now.ID) {
			r.Starting = append(r.Starting, check.Part{Alloc: now.ID, Node: now.NodeID, Site: siteOf(a.View, before.NodeID), Canary: now.DeploymentStatus.IsCanary()})
		}
		if before != nil && isTakenDown(a, before) && before.JobHash != now.JobHash && !startsElsewhere(before, now) {
			r.Turns = append(r.Turns, check.Turn{
				Alloc: now.ID, Old: before.ID, Node: before.NodeID, Site: siteOf(a.View, before.NodeID), Canary: now.DeploymentStatus.IsCanary(),
				Served: isInService(before),
			})
		}
	}
	for i := range placed {
		addStoppedForRoom(a, &rs, &placed[i])
	}
	return rs, advances
}

// startsElsewhere reports whether a version changes nothing of an allocation that was not in service yet: it is only started on
// another node, because its own does not suit any more. It was out of service before, and has its turn.
func startsElsewhere(before, now *fleet.Alloc) bool {
	if isInService(before) {
		return false
	}
	change := diff.GroupUpdate(before.Job, now.Job, now.TaskGroup)
	return change == diff.GroupSame || change == diff.GroupInPlace
}

// isTakenDown reports whether the entry stopped an allocation that was pending or running on a ready node.
func isTakenDown(a consensus.Applied, old *fleet.Alloc) bool {
	n, known := a.View.Node(old.NodeID)
	return old.AllocModifyIndex == a.Index && old.ServerTerminal() && known && n.Status == fleet.NodeReady &&
		(old.ClientStatus == fleet.ClientRunning || old.ClientStatus == fleet.ClientPending)
}

// isInService reports whether an allocation that is taken down was in service: it was healthy, or it ran outside of a
// deployment.
func isInService(old *fleet.Alloc) bool {
	if old.DeploymentID == "" {
		return old.ClientStatus == fleet.ClientRunning
	}
	return old.DeploymentStatus.IsHealthy()
}

// siteOf returns the site of a node, or "" for an unknown node.
func siteOf(v *state.View, id fleet.NodeID) string {
	n, ok := v.Node(id)
	if !ok {
		return ""
	}
	return n.SiteName()
}

// missedSite returns the site that lacks an allocation until a new one is healthy: the site of the allocation that it
// replaces, or else its own site.
func missedSite(v *state.View, a *fleet.Alloc) string {
	if before, ok := v.Alloc(a.PreviousAllocation); ok {
		return siteOf(v, before.NodeID)
	}
	return siteOf(v, a.NodeID)
}

// rolloutOf returns the rollout of a group in a deployment from rs. A missing one is added to rs, with its canaries
// and starting allocations. It returns nil if the deployment has no such group.
func rolloutOf(a consensus.Applied, rs *[]check.Rollout, id fleet.DeploymentID, job *fleet.Job, group string) *check.Rollout {
	dep, ok := a.View.Deployment(id)
	if id == "" || !ok || job == nil {
		return nil
	}
	g := job.Group(group)
	if g == nil || g.Update == nil {
		return nil
	}
	for i := range *rs {
		if r := &(*rs)[i]; r.Deployment == dep.ID && r.Group == group {
			return r
		}
	}
	s := dep.TaskGroups[group]
	r := check.Rollout{
		Deployment: dep.ID, Job: job.ID, Group: group, Version: dep.JobVersion, System: fleet.RunsEverywhere(job.Type),
		MaxParallel: g.Update.MaxParallel, MaxPerSite: g.Update.MaxUnavailablePerSite,
		Wanted: s.DesiredCanaries, Asked: g.Update.Canary, Held: s.DesiredCanaries > 0 && !s.Promoted,
	}
	for other := range a.View.AllocsByDeployment(dep.ID) {
		n, known := a.View.Node(other.NodeID)
		if other.TaskGroup != r.Group || other.Terminal() || !known || n.Status != fleet.NodeReady || other.NeedsToReconnect() {
			continue
		}
		if other.DeploymentStatus.IsCanary() {
			r.Canaries = append(r.Canaries, check.Part{Alloc: other.ID, Node: other.NodeID})
		}
		if other.DeploymentStatus.IsHealthy() || other.CreateIndex == a.Index || other.ModifyIndex == a.Index {
			continue
		}
		if other.Held != nil && !job.Overrules(other.Held, group, job.Version) {
			continue // somebody on site stopped it: a deployment does not wait for it
		}
		if waitsForWindow(a, n, g, other) {
			continue
		}
		p := check.Part{Alloc: other.ID, Node: other.NodeID, Canary: other.DeploymentStatus.IsCanary(), Site: n.SiteName()}
		if before, ok := a.View.Alloc(other.PreviousAllocation); ok && siteOf(a.View, before.NodeID) != p.Site {
			p.Site = ""
		}
		r.Starting = append(r.Starting, p)
	}
	r.Starting = append(r.Starting, awaitingRoom(a, dep, group)...)
	*rs = append(*rs, r)
	return &(*rs)[len(*rs)-1]
}

// waitsForWindow reports whether a node's edge keeps the version before an allocation running until an update window opens, as of a plan.
// No rollout waits for it.
func waitsForWindow(a consensus.Applied, n *fleet.Node, g *fleet.TaskGroup, next *fleet.Alloc) bool {
	plan, ok := a.Command.(state.Plan)
	if !ok || next.ClientStatus != fleet.ClientPending || len(g.Update.Windows) == 0 || cron.NodeWindowState(n, g, time.Unix(0, plan.Now)).Open {
		return false
	}
	for before, ok := a.View.Alloc(next.PreviousAllocation); ok && before.NodeID == n.ID; before, ok = a.View.Alloc(before.PreviousAllocation) {
		if before.AwaitsWindow() && before.ClientStatus != fleet.ClientPending {
			return true
		}
	}
	return false
}

// endedDeployments returns the updated deployments that the entry made successful or failed, with the progress of
// their groups.
func endedDeployments(a consensus.Applied, updates ...fleet.DeploymentUpdate) []check.Ended {
	var es []check.Ended
	for _, u := range updates {
		d, ok := a.View.Deployment(u.DeploymentID)
		if !ok || d.Active() || d.ModifyIndex != a.Index || d.Status == fleet.DeploymentCancelled {
			continue
		}
		es = append(es, check.Ended{Deployment: d.ID, Job: d.JobID, Status: d.Status, Why: d.StatusDescription, Groups: deploymentProgress(a, d)})
	}
	return es
}

// deploymentProgress returns the progress of each group of a deployment, or nil if the state no longer has the job's
// version.
func deploymentProgress(a consensus.Applied, d *fleet.Deployment) []check.GroupProgress {
	versions := a.View.JobVersions(d.Namespace, d.JobID)
	i := slices.IndexFunc(versions, func(j *fleet.Job) bool { return j.Version == d.JobVersion && j.CreateIndex == d.JobCreateIndex })
	if i < 0 {
		return nil
	}
	var rs []check.GroupProgress
	for _, name := range d.Groups() {
		f := progressCounter{
			view: a.View, job: versions[i], GroupProgress: check.GroupProgress{Group: name, Total: d.TaskGroups[name].DesiredTotal, WaitFor: d.TaskGroups[name].WaitFor},
			healthy: map[string]bool{}, away: map[string]bool{}, behind: map[string][]check.Part{},
		}
		for other := range a.View.AllocsByJob(d.Namespace, d.JobID) {
			if other.TaskGroup == name && (!other.NoLongerWanted() || f.needsNewVersion(other)) {
				f.countAllocation(other)
			}
		}
		rs = append(rs, f.finishProgress())
	}
	return rs
}

// progressCounter counts a group's allocations by allocation name, or by node for jobs that run on every node.
type progressCounter struct {
	check.GroupProgress
	view *state.View
	job  *fleet.Job // the version of the deployment

	healthy, away map[string]bool
	behind        map[string][]check.Part
}

// needsNewVersion reports whether a system job's allocation must stop on a node that is not ready, and has no
// replacement. The node must still get the newest version.
func (f *progressCounter) needsNewVersion(a *fleet.Alloc) bool {
	n, known := f.view.Node(a.NodeID)
	if !known || n.Status == fleet.NodeReady || n.SchedulingEligibility == fleet.NodeIneligible || !fleet.RunsEverywhere(f.job.Type) {
		return false
	}
	pool, _ := f.view.Pool(n.NodePool)
	return a.NoLongerWanted() && a.NextAllocation == "" &&
		a.Group() != nil && a.Group().Disconnect == nil && a.Job.CreateIndex == f.job.CreateIndex && (pool == nil || pool.DefaultDisconnect != fleet.DisconnectNomad)
}

// isHeld reports whether an allocation is held on site and the newest version does not overrule that. No rollout waits
// for it.
func isHeld(a *fleet.Alloc, newest *fleet.Job) bool {
	return a.Held != nil && !newest.Overrules(a.Held, a.TaskGroup, newest.Version)
}

// countAllocation counts an allocation as healthy, as absent (its node is not ready, or it is held on site), and as
// behind (it has another version's tasks).
func (f *progressCounter) countAllocation(a *fleet.Alloc) {
	key := a.Name
	if fleet.RunsEverywhere(f.job.Type) {
		key = string(a.NodeID)
	}
	n, known := f.view.Node(a.NodeID)
	gone := !known || n.Status != fleet.NodeReady
	same := a.JobHash == f.job.SpecHash
	open := !a.ClientTerminal() || a.NoLongerWanted() // or its edge must still get the newest version
	switch {
	case same && (a.DeploymentStatus.IsHealthy() || a.DeploymentID == "" && a.ClientStatus == fleet.ClientRunning):
		f.healthy[key] = true
	case open && isHeld(a, f.job):
		f.away[key] = true
	case open && gone:
		f.away[key] = true
		f.Away, f.AwaySites = append(f.Away, a.NodeID), append(f.AwaySites, missedSite(f.view, a))
	}
	if !same && open && !isHeld(a, f.job) && diff.GroupUpdate(a.Job, f.job, f.Group) == diff.GroupDestructive {
		f.behind[key] = append(f.behind[key], check.Part{Alloc: a.ID, Node: a.NodeID, Site: siteOf(f.view, a.NodeID), Away: gone})
	}
}

// finishProgress returns the group's progress. It leaves out an absent or outdated allocation if a healthy one has the
// same name or node.
func (f *progressCounter) finishProgress() check.GroupProgress {
	if g := f.job.Group(f.Group); g != nil && g.Update != nil {
		f.PerSite = g.Update.MaxUnavailablePerSite
	}
	for _, key := range slices.Sorted(maps.Keys(f.behind)) {
		if !f.healthy[key] { // no other allocation replaces it
			f.Behind = append(f.Behind, f.behind[key]...)
		}
	}
	for key := range f.away {
		if !f.healthy[key] {
			f.Deferred++
		}
	}
	f.Healthy = len(f.healthy)
	return f.GroupProgress
}

// promotedDeployments returns the deployment that an entry promoted. It returns none if the command was refused or the
// deployment is unknown.
func promotedDeployments(c state.DeploymentPromote, a consensus.Applied) []check.Promotion {
	d, ok := a.View.Deployment(c.DeploymentID)
	if !ok || a.Result.Err != nil {
		return nil
	}
	return []check.Promotion{{Deployment: d.ID, Job: d.JobID, Auto: d.AutoPromotes()}}
}

// launchedChild returns the child that a periodic launch made, with the other unfinished children of the job, or nil
// if it made none.
func launchedChild(c state.PeriodicLaunch, a consensus.Applied) *check.Launch {
	if a.Result.Err != nil || a.Result.Child == "" {
		return nil
	}
	l := &check.Launch{Job: c.ID, Child: a.Result.Child}
	parent, ok := a.View.Job(c.Namespace, c.ID)
	l.Alone = ok && parent.IsPeriodic() && parent.Periodic.ProhibitOverlap
	for child := range a.View.Jobs(c.Namespace, fleet.PeriodicPrefix(c.ID)) {
		for other := range a.View.AllocsByJob(c.Namespace, child.ID) {
			if child.ID != l.Child && !other.Terminal() {
				l.Beside = append(l.Beside, child.ID)
				break
			}
		}
	}
	return l
}

// dispatchedChild returns the child that answers a dispatch, or nil for a dispatch without a child or a token.
func dispatchedChild(c state.JobDispatch, a consensus.Applied) *check.Dispatch {
	if a.Result.Err != nil || a.Result.Child == "" || c.Child == nil || c.Child.DispatchIdempotencyToken == "" {
		return nil
	}
	d := &check.Dispatch{Job: c.ID, Child: a.Result.Child, Token: c.Child.DispatchIdempotencyToken}
	for child := range a.View.ChildJobs(c.Namespace, c.ID) {
		if child.DispatchIdempotencyToken == d.Token {
			d.Children++
		}
		if child.ID == d.Child {
			d.Input = check.DescribeInput(child.Payload, child.Meta)
		}
	}
	return d
}

// drainChange returns the change that an operator's command made to a node's drain. It returns none if the command was
// refused.
func drainChange(c state.NodeDrain, a consensus.Applied) []check.Drain {
	n, ok := a.View.Node(c.NodeID)
	if !ok || a.Result.Err != nil {
		return nil
	}
	d := check.Drain{Node: n.ID, Over: n.DrainStrategy == nil}
	if s := n.DrainStrategy; s != nil {
		d.KeepSystem = s.IgnoreSystemJobs
		if !s.ForceDeadline.IsZero() {
			d.Deadline = max(1, s.ForceDeadline.Sub(time.Unix(0, c.Now)))
		}
	}
	return []check.Drain{d}
}

// endedDrains returns the drains that a step of the drainer ended.
func endedDrains(c state.DrainStep, a consensus.Applied) []check.Drain {
	var ds []check.Drain
	for _, done := range c.Done {
		if n, ok := a.View.Node(done.NodeID); ok && n.DrainStrategy == nil && n.ModifyIndex == a.Index {
			ds = append(ds, check.Drain{Node: n.ID, Over: true, Emptied: true, Deadlined: done.Deadlined})
		}
	}
	return ds
}
