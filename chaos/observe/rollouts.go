package observe

import (
	"maps"
	"slices"
	"time"

	"skerry/chaos/check"
	"skerry/fleet"
	"skerry/fleet/diff"
	"skerry/hub/consensus"
	"skerry/hub/state"
)

// rolloutChanges are what a plan does to rollouts: by group and version, what it starts anew
// beside what is starting already.
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
			r.Starting = append(r.Starting, check.Part{Alloc: now.ID, Node: now.NodeID, Site: site(a.View, before.NodeID), Canary: now.DeploymentStatus.IsCanary()})
		}
		if before != nil && isTakenDown(a, before) && before.JobHash != now.JobHash {
			r.Turns = append(r.Turns, check.Turn{
				Alloc: now.ID, Old: before.ID, Node: before.NodeID, Site: site(a.View, before.NodeID), Canary: now.DeploymentStatus.IsCanary(),
				Served: isInService(before),
			})
		}
	}
	for i := range placed {
		addStoppedForRoom(a, &rs, &placed[i])
	}
	return rs, advances
}

// isTakenDown reports whether an allocation was taken down by the entry while it was in
// sight and had not ended.
func isTakenDown(a consensus.Applied, old *fleet.Alloc) bool {
	n, known := a.View.Node(old.NodeID)
	return old.AllocModifyIndex == a.Index && old.ServerTerminal() && known && n.Status == fleet.NodeReady &&
		(old.ClientStatus == fleet.ClientRunning || old.ClientStatus == fleet.ClientPending)
}

// isInService reports whether an allocation that is taken down was in service: one that no
// deployment started was as soon as it ran.
func isInService(old *fleet.Alloc) bool {
	if old.DeploymentID == "" {
		return old.ClientStatus == fleet.ClientRunning
	}
	return old.DeploymentStatus.IsHealthy()
}

func site(v *state.View, id fleet.NodeID) string {
	n, ok := v.Node(id)
	if !ok {
		return ""
	}
	return n.SiteName()
}

// missedSite is the site that goes without an allocation that is not healthy yet: where
// what it replaces was.
func missedSite(v *state.View, a *fleet.Alloc) string {
	if before, ok := v.Alloc(a.PreviousAllocation); ok {
		return site(v, before.NodeID)
	}
	return site(v, a.NodeID)
}

// rolloutOf is the rollout of a group that a deployment has begun; nil: there is none.
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
		p := check.Part{Alloc: other.ID, Node: other.NodeID, Canary: other.DeploymentStatus.IsCanary(), Site: n.SiteName()}
		if before, ok := a.View.Alloc(other.PreviousAllocation); ok && site(a.View, before.NodeID) != p.Site {
			p.Site = ""
		}
		r.Starting = append(r.Starting, p)
	}
	r.Starting = append(r.Starting, awaitingRoom(a, dep, group)...)
	*rs = append(*rs, r)
	return &(*rs)[len(*rs)-1]
}

// ended are the deployments that the entry ended, and how far they had got.
func ended(a consensus.Applied, updates ...fleet.DeploymentUpdate) []check.Ended {
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

// deploymentProgress is how far each group of a deployment is.
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

// progressCounter is how far a group is, by what it has one of: a name, or a node.
type progressCounter struct {
	check.GroupProgress
	view *state.View
	job  *fleet.Job // of the deployment

	healthy, away map[string]bool
	behind        map[string][]check.Part
}

// needsNewVersion reports whether a system job's allocation was told to stop on an edge that is away,
// for whatever reason, and has nothing in its stead: that edge is still to get the newest version.
func (f *progressCounter) needsNewVersion(a *fleet.Alloc) bool {
	n, known := f.view.Node(a.NodeID)
	if !known || n.Status == fleet.NodeReady || n.SchedulingEligibility == fleet.NodeIneligible || !fleet.RunsEverywhere(f.job.Type) {
		return false
	}
	pool, _ := f.view.Pool(n.NodePool)
	return a.NoLongerWanted() && a.NextAllocation == "" &&
		a.Group() != nil && a.Group().Disconnect == nil && a.Job.CreateIndex == f.job.CreateIndex && (pool == nil || pool.DefaultDisconnect != fleet.DisconnectNomad)
}

// countAllocation adds an allocation that is to run.
func (f *progressCounter) countAllocation(a *fleet.Alloc) {
	key := a.Name
	if fleet.RunsEverywhere(f.job.Type) {
		key = string(a.NodeID)
	}
	n, known := f.view.Node(a.NodeID)
	gone := !known || n.Status != fleet.NodeReady
	same := a.JobHash == f.job.SpecHash
	open := !a.ClientTerminal() || a.NoLongerWanted() // or its edge is still to get the newest version
	switch {
	case same && (a.DeploymentStatus.IsHealthy() || a.DeploymentID == "" && a.ClientStatus == fleet.ClientRunning):
		f.healthy[key] = true
	case open && gone:
		f.away[key] = true
		f.Away, f.AwaySites = append(f.Away, a.NodeID), append(f.AwaySites, missedSite(f.view, a))
	}
	if !same && open && diff.GroupUpdate(a.Job, f.job, f.Group) == diff.GroupDestructive {
		f.behind[key] = append(f.behind[key], check.Part{Alloc: a.ID, Node: a.NodeID, Site: site(f.view, a.NodeID), Away: gone})
	}
}

// finishProgress is what all that was counted comes to.
func (f *progressCounter) finishProgress() check.GroupProgress {
	if g := f.job.Group(f.Group); g != nil && g.Update != nil {
		f.PerSite = g.Update.MaxUnavailablePerSite
	}
	for _, key := range slices.Sorted(maps.Keys(f.behind)) {
		if !f.healthy[key] { // nobody stands in for it
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

func promoted(c state.DeploymentPromote, a consensus.Applied) []check.Promotion {
	d, ok := a.View.Deployment(c.DeploymentID)
	if !ok || a.Result.Err != nil {
		return nil
	}
	return []check.Promotion{{Deployment: d.ID, Job: d.JobID, Auto: d.AutoPromotes()}}
}

// launched is nil where nothing was.
func launched(c state.PeriodicLaunch, a consensus.Applied) *check.Launch {
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

// dispatched is nil where nothing was, or without a token.
func dispatched(c state.JobDispatch, a consensus.Applied) *check.Dispatch {
	if a.Result.Err != nil || a.Result.Child == "" || c.Child == nil || c.Child.DispatchIdempotencyToken == "" {
		return nil
	}
	return &check.Dispatch{Job: c.ID, Child: a.Result.Child, Token: c.Child.DispatchIdempotencyToken}
}

func drain(c state.NodeDrain, a consensus.Applied) []check.Drain {
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

// drained are the drains that a step of the drainer ended.
func drained(c state.DrainStep, a consensus.Applied) []check.Drain {
	var ds []check.Drain
	for _, done := range c.Done {
		if n, ok := a.View.Node(done.NodeID); ok && n.DrainStrategy == nil && n.ModifyIndex == a.Index {
			ds = append(ds, check.Drain{Node: n.ID, Over: true, Emptied: true, Deadlined: done.Deadlined})
		}
	}
	return ds
}
