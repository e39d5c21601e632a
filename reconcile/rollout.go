package reconcile

import (
	"fmt"
	"slices"

	"skerry/fleet"
	"skerry/planted"
)

// rollout is what the job's deployment means for one group: how much of it may be
// started anew in this decision, and how far it is.
//
// What is on an edge that is away is deferred: it takes no turn, fails nothing and
// is waited for only where wait_for says so. When its edge is back it goes straight
// to the newest version, in the running deployment or one that is begun for it.
type rollout struct {
	d       *decision
	g       *fleet.TaskGroup
	u       *fleet.Update // nil: all at once, and no deployment
	state   fleet.DeploymentState
	held    string // why nothing becomes the newest version now; ""
	left    int    // turns
	turns   int    // turns of canaries, of a system job
	sites   sites
	blocked int    // what waits for nothing but the return of those
	waiting int    // what waits for a window to open
	stale   int    // what runs an older version, in sight
	ajar    bool   // a window is open for some of that
	next    Window // else the one that opens first
	fresh   bool   // nothing has ever run this version
	changes bool   // something becomes the newest version, or waits to
	healthy int
	away    int  // deferred
	over    int  // not this deployment's business
	vacant  int  // nodes of a system job that never had any
	moot    bool // its canaries were lost, and there is nothing left that others could stand for
	total   int
}

// beginDeployments looks at the job's newest deployment: one of an older version,
// or of a job that is not to run, is over.
func (d *decision) beginDeployments() {
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
		d.proven = true
	case last.Active() || last.Status == fleet.DeploymentFailed:
		d.deployment = last
	}
}

// rolls reports whether a group's new versions are rolled out.
func rolls(j *fleet.Job, g *fleet.TaskGroup) bool {
	return g.Update != nil && g.Update.MaxParallel > 0 && (j.Type == fleet.JobTypeService || j.Type == fleet.JobTypeSystem)
}

// newRollout looks at all of a group's allocations.
func (d *decision) newRollout(g *fleet.TaskGroup, members []*member) *rollout {
	r := &rollout{d: d, g: g, fresh: true, sites: newSites(g)}
	if !rolls(d.in.Job, g) {
		return r
	}
	r.u, r.left = g.Update, g.Update.MaxParallel
	if planted.On(planted.TakeDownAll) {
		r.left = len(members) * fleet.JobCountMax
	}
	if d.deployment != nil {
		r.state = d.deployment.TaskGroups[g.Name]
	}
	for _, m := range members {
		if d.ofNewest(m.a) {
			r.fresh = false
		}
		r.count(m)
	}
	switch dep := d.deployment; {
	case dep == nil:
	case dep.Status == fleet.DeploymentFailed:
		r.held = "its deployment failed"
	case dep.Status == fleet.DeploymentPaused:
		r.held = "its deployment is paused"
	}
	return r
}

// count takes account of one allocation: one of the deployment that is not healthy
// yet takes a turn, and one that is not going to be stops the rollout.
func (r *rollout) count(m *member) {
	if m.kind == present && r.d.outdated(m.a) {
		r.stale++
		r.see(m)
	}
	dep := r.d.deployment
	system := r.d.system()
	if (dep == nil || m.a.DeploymentID != dep.ID) && m.kind == present && m.unproven() && !m.loses && !r.d.outdated(m.a) {
		r.left = max(r.left-1, 0) // it starts, on behalf of an earlier version that was the same for it, or is to be judged anew
	}
	if !m.unproven() || m.loses || system && m.kind == migrating { // what takes its place, if anything does, takes a turn
		return
	}
	if n := r.d.in.Nodes[m.a.NodeID]; system && m.kind == failed && n != nil && n.Status == fleet.NodeReady && !n.Schedulable() {
		return // nothing is started there: who took its node out of service knows that
	}
	r.sites.count(m, r.site(m))
	switch {
	case dep == nil, m.a.DeploymentID != dep.ID:
	case m.absent, m.kind == frozen, m.a.DeploymentStatus.IsCanary(), r.onItsWay(m):
	case system && m.kind == failed: // it is started anew where it is
	case m.a.DeploymentStatus.IsUnhealthy(), m.kind == failed:
		r.left = 0
	case r.left > 0:
		r.left--
	}
}

// hold keeps the newest version back until canaries are promoted.
func (r *rollout) hold() { r.held = "its canaries are not promoted" }

// open reports whether the newest version may be started where nothing is.
func (r *rollout) open() bool { return r.u == nil || r.held == "" }

// take asks for a turn to start anew what runs an older version; why says what it
// waits for where there is none. What does not run needs none.
func (r *rollout) take(m *member) (ok bool, why string) {
	if r.held == "" {
		if why := r.shut(m); why != "" {
			return false, why
		}
	}
	if r.u == nil {
		return true, ""
	}
	site := r.d.in.Nodes[m.a.NodeID].SiteName()
	if why := r.sites.full(m, site); why != "" && r.held == "" {
		r.blocked++ // and nothing changes before an edge is back
		return false, why
	}
	r.changes = true
	switch {
	case r.held != "":
		return false, r.held
	case m.kind == failed || m.kind == spent || m.kind == lost:
		r.left = max(r.left-1, 0)
		return true, ""
	case r.left == 0:
		return false, fmt.Sprintf("%d at once", r.u.MaxParallel)
	case !r.sites.room(m, site):
		return false, fmt.Sprintf("%d at once at site %s", r.u.MaxUnavailablePerSite, site)
	}
	r.left--
	r.sites.lose(m, site)
	return true, ""
}

// takeCanary takes one of the turns of a system job's canaries, if there is one left
// and its site may lose it for a while. A canary takes the place of what runs there, so
// that it is one of those that may be started anew at once.
func (r *rollout) takeCanary(m *member) bool {
	site := r.d.in.Nodes[m.a.NodeID].SiteName()
	if r.turns == 0 || r.left == 0 && m.kind == present || !r.sites.room(m, site) {
		return false
	}
	r.turns--
	r.left = max(r.left-1, 0)
	r.sites.lose(m, site)
	return true
}

// version is the version that takes the place of an allocation: its own where the
// newest is held back; nil: the newest.
func (r *rollout) version(m *member) *fleet.Job {
	if r.open() || !r.d.outdated(m.a) || r.d.canary {
		return nil
	}
	return m.a.Job
}

// updates reports whether an allocation takes the newest version in place.
func (r *rollout) updates(m *member, change fleet.GroupChange) bool {
	switch change {
	case fleet.GroupInPlace:
		r.changes = true
		return true
	case fleet.GroupSame:
		return r.joins(m)
	}
	return false
}

// places takes turns for what is placed where nothing is.
func (r *rollout) places(n int) {
	if r.u == nil || n <= 0 {
		return
	}
	r.left = max(r.left-n, 0)
	r.begins()
}

// begins notes that something is placed where nothing is.
func (r *rollout) begins() {
	if r.u != nil && (r.fresh || r.stale > 0) {
		r.changes = true
	}
}

// initial is the state that a group begins a deployment with.
func (r *rollout) initial() fleet.DeploymentState {
	return fleet.DeploymentState{
		AutoRevert: r.u.AutoRevert, AutoPromote: r.u.AutoPromote, ProgressDeadline: r.u.ProgressDeadline,
		DesiredTotal: r.total, DesiredCanaries: r.state.DesiredCanaries, WaitFor: r.u.WaitFor,
	}
}

// endDeployments begins a deployment where something changes and there is none, or
// ends the one that has got where it should; what is placed belongs to it.
func (d *decision) endDeployments() {
	if d.in.Job.Stopped() {
		return
	}
	current := d.deployment
	if current == nil && slices.ContainsFunc(d.rollouts, func(r *rollout) bool { return r.u != nil && r.changes && r.total > 0 }) {
		current = d.newDeployment()
		d.out.Deployment = current
	}
	if !current.Active() {
		return
	}
	d.enlist(current)
	if d.out.Deployment != nil || current.Status != fleet.DeploymentRunning {
		return
	}
	for _, r := range d.rollouts {
		s := current.TaskGroups[r.g.Name]
		if r.u != nil && (!r.done() || s.DesiredCanaries > 0 && !s.Promoted && !r.moot) {
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
		if r.u != nil && r.total > 0 {
			dep.TaskGroups[r.g.Name] = r.initial()
		}
	}
	dep.StatusDescription = dep.Running()
	return dep
}

// enlist makes what takes the newest version in this decision part of a
// deployment.
func (d *decision) enlist(dep *fleet.Deployment) {
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

// canaries keeps as many canaries beside what runs as the group asks for, until
// they are promoted; their names are those of what they stand beside.
func (d *decision) canaries(g *fleet.TaskGroup, slots []*slot, r *rollout) {
	if r.u == nil {
		return
	}
	if d.deployment == nil && r.u.Canary > 0 && r.stale > 0 && !d.proven && g.Count > 0 {
		r.state.DesiredCanaries = min(r.u.Canary, g.Count)
	}
	if r.state.DesiredCanaries == 0 || r.state.Promoted {
		return
	}
	paused := r.held != "" || r.canariesWait() != ""
	r.changes = true
	d.canary = true
	defer func() { d.canary = false }()
	taken := map[int]bool{}
	active := 0
	for _, s := range slots {
		d.resolve(s)
		if s.active() {
			taken[s.index] = true
			active++
		}
		d.act(s, g, r)
	}
	r.hold()
	next, missing := 0, r.state.DesiredCanaries-active
	if planted.On(planted.OneCanaryMore) {
		missing++
	}
	for range missing {
		if paused {
			break
		}
		for taken[next] {
			next++
		}
		taken[next] = true
		d.place(Placement{
			Name: allocName(d.in.JobID, g.Name, next), Group: g.Name,
			Reason: fmt.Sprintf("canary of version %d: group %s wants %d", d.in.Job.Version, g.Name, r.state.DesiredCanaries),
		})
	}
}

// dropCanaries stops canaries that nobody will promote.
func (d *decision) dropCanaries(allocs []*fleet.Alloc) {
	for _, s := range d.slots(allocs) {
		for _, m := range s.members {
			d.drop(m, "its deployment is over, and it was not promoted")
		}
	}
}
