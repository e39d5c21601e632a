package reconcile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

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
	held    string         // why nothing becomes the newest version now; ""
	left    int            // turns
	turns   int            // turns of canaries, of a system job
	sites   map[string]int // what is out of service for the rollout, by site
	gone    map[string]int // the part of it that is on edges that are away
	blocked int            // what waits for nothing but the return of those
	waiting int            // what waits for a window to open
	stale   int            // what runs an older version, in sight
	ajar    bool           // a window is open for some of that
	next    Window         // else the one that opens first
	fresh   bool           // nothing has ever run this version
	changes bool           // something becomes the newest version, or waits to
	healthy int
	away    int // deferred
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
	r := &rollout{d: d, g: g, fresh: true, sites: map[string]int{}, gone: map[string]int{}}
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
		if m.a.JobVersion == d.in.Job.Version && m.a.Job != nil && m.a.Job.CreateIndex == d.in.Job.CreateIndex {
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
	system := r.d.wanted != nil
	if (dep == nil || m.a.DeploymentID != dep.ID) && m.kind == present && m.status() == fleet.ClientPending && !r.d.outdated(m.a) {
		r.left = max(r.left-1, 0) // it starts, on behalf of an earlier version that was the same for it
	}
	if !m.unproven() {
		return
	}
	r.sites[r.site(m)]++
	if m.absent || m.kind == frozen {
		r.gone[r.site(m)]++
	}
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

// unproven reports whether an allocation is of a deployment, of this version or
// another, and nobody has seen it healthy: it is out of service for its site.
func (m *member) unproven() bool {
	return m.a.DeploymentID != "" && !m.a.DeploymentStatus.IsHealthy() && m.kind != ended && m.kind != lost
}

// site is where an allocation is out of service until it is healthy: where the one
// was that it replaced.
func (r *rollout) site(m *member) string {
	if prev := r.d.byID[m.a.PreviousAllocation]; prev != nil {
		return r.d.in.Nodes[prev.NodeID].SiteName()
	}
	return r.d.in.Nodes[m.a.NodeID].SiteName()
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
	if limit := r.u.MaxUnavailablePerSite; r.held == "" && limit > 0 && r.gone[site] >= limit && m.kind == present && !m.unproven() {
		r.blocked++ // and nothing changes before an edge is back
		return false, fmt.Sprintf("%d at site %s are away in the middle of it", r.gone[site], site)
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
	case !m.unproven() && !r.room(site):
		return false, fmt.Sprintf("%d at once at site %s", r.u.MaxUnavailablePerSite, site)
	}
	r.left--
	r.lose(m, site)
	return true, ""
}

// room reports whether a site may lose one more for a while.
func (r *rollout) room(site string) bool {
	if planted.On(planted.SitesForgotten) {
		return true
	}
	return r.u.MaxUnavailablePerSite == 0 || r.sites[site] < r.u.MaxUnavailablePerSite
}

// takeCanary takes one of the turns of a system job's canaries, if there is one left
// and its site may lose it for a while.
func (r *rollout) takeCanary(m *member) bool {
	site := r.d.in.Nodes[m.a.NodeID].SiteName()
	if r.turns == 0 || !m.unproven() && !r.room(site) {
		return false
	}
	r.turns--
	r.lose(m, site)
	return true
}

// lose books that an allocation of a site is started anew, where it is not out of
// service already.
func (r *rollout) lose(m *member, site string) {
	if !m.unproven() {
		r.sites[site]++
	}
}

// version is the version that takes the place of an allocation: its own where the
// newest is held back; nil: the newest.
func (r *rollout) version(m *member) *fleet.Job {
	if r.open() || !r.d.outdated(m.a) || r.d.canary {
		return nil
	}
	return m.a.Job
}

// updates notes that something takes the newest version in place.
func (r *rollout) updates(change fleet.GroupChange) {
	if change == fleet.GroupInPlace {
		r.changes = true
	}
}

// places takes turns for what is placed where nothing is.
func (r *rollout) places(n int) {
	if r.u == nil || n <= 0 {
		return
	}
	r.left = max(r.left-n, 0)
	if r.fresh || r.stale > 0 {
		r.changes = true
	}
}

// progress counts how far a name, or a node, of the group is.
func (r *rollout) progress(m *member) {
	switch {
	case m == nil:
	case !r.d.outdated(m.a) && (m.a.DeploymentStatus.IsHealthy() || m.a.DeploymentID == "" && m.status() == fleet.ClientRunning):
		r.healthy++
	case (m.absent || m.kind == frozen) && planted.On(planted.AbsentIsHealthy):
		r.healthy++
	case m.absent || m.kind == frozen:
		r.away++
	}
}

// done reports whether the group is where the deployment wants it, as far as
// wait_for asks.
func (r *rollout) done() bool {
	if planted.On(planted.NeverComplete) {
		return false
	}
	if r.waiting > 0 || r.healthy+r.away+r.blocked < r.total || r.healthy == 0 && r.total > 0 {
		return false // what nobody has seen healthy is no success
	}
	percent, ok := strings.CutSuffix(r.state.WaitFor, "%")
	switch {
	case r.state.WaitFor == fleet.WaitForAll:
		return r.healthy >= r.total
	case ok:
		n, err := strconv.ParseFloat(percent, 64)
		return err == nil && float64(r.healthy)*100 >= n*float64(r.total)
	}
	return true
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
	if d.out.Deployment != nil || current.Status != fleet.DeploymentRunning || current.RequiresPromotion() {
		return
	}
	for _, r := range d.rollouts {
		if r.u != nil && !r.done() {
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
		r.state.DesiredCanaries = r.u.Canary
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
