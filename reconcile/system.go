package reconcile

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"skerry/fleet"
	"skerry/fleet/diff"
)

// How an allocation that ended badly is started anew on its node: at once the
// first time, and later each time after that. One that ran for longer than
// systemDelayMax begins a new series.
const (
	systemDelay    = 30 * time.Second
	systemDelayMax = time.Hour
)

// systemBackoff is how long after its end an allocation is started anew.
func systemBackoff(t *fleet.RescheduleTracker, endedAt time.Time) time.Duration {
	if t == nil || len(t.Events) == 0 {
		return 0
	}
	last := t.Events[len(t.Events)-1]
	if endedAt.UnixNano()-last.RescheduleTime > int64(systemDelayMax) {
		return 0
	}
	return min(max(systemDelay, 2*last.Delay), systemDelayMax)
}

// nodeAllocs is where a system job has one allocation of a group: a node, with all that
// the job has or had of the group there.
type nodeAllocs struct {
	node    *fleet.Node // nil: its record was removed
	id      fleet.NodeID
	target  bool      // takes new work, and is one of the job's
	members []*member // by creation
	current *member   // the one that counts, nil: none
	vacant  bool      // has nothing, and is to have something
	awaited bool      // vacant as soon as its node is ready again
	canary  bool      // emptied for one that is still to be placed
}

// DecideSystem returns what is to be done for a system or sysbatch job: one
// allocation of each group on every node of Input.Targets that suits it.
//
// Nothing is ever replaced elsewhere. What is out of sight is waited for by the
// rules of AbsenceOf, and runs on when it is back. A node that takes no new work
// keeps what it has, until the job changes it.
func DecideSystem(in Input) Output {
	d := &decision{in: in, changes: map[versionKey]diff.GroupChange{}, desiredNodes: map[string]int{}}
	d.out.Groups = map[string]GroupSummary{}
	groups := d.prepareAllocGroups()
	if !in.Job.Stopped() {
		for i := range in.Job.TaskGroups {
			g := &in.Job.TaskGroups[i]
			d.reconcileSystemGroup(g, d.allocsByNode(groups[g.Name]))
			delete(groups, g.Name)
		}
	}
	d.stopGroups(groups)
	d.beginOrEndDeployment()
	d.requestWindowEval()
	d.assignFollowUpEvals()
	d.summarizeGroups()
	for name, n := range d.desiredNodes {
		s := d.out.Groups[name]
		s.Desired = n
		d.out.Groups[name] = s
	}
	return d.out
}

// allocsByNode sorts a group's allocations by node, and adds the nodes that have none
// yet.
func (d *decision) allocsByNode(allocs []*fleet.Alloc) []*nodeAllocs {
	byNode := map[fleet.NodeID]*nodeAllocs{}
	var posts []*nodeAllocs
	at := func(id fleet.NodeID) *nodeAllocs {
		p := byNode[id]
		if p == nil {
			p = &nodeAllocs{id: id, node: d.in.Nodes[id]}
			byNode[id] = p
			posts = append(posts, p)
		}
		return p
	}
	for _, n := range d.in.Targets {
		p := at(n.ID)
		p.node, p.target = n, true
	}
	for _, a := range allocs {
		p := at(a.NodeID)
		p.members = append(p.members, d.classifyAlloc(a))
	}
	slices.SortFunc(posts, func(a, b *nodeAllocs) int { return cmp.Compare(a.id, b.id) })
	for _, p := range posts {
		slices.SortFunc(p.members, byCreation)
		for _, m := range p.members {
			if m.canBeCurrent() {
				p.current = m
			}
		}
	}
	return posts
}

func (p *nodeAllocs) hasMemberOfKind(k allocKind) bool {
	return slices.ContainsFunc(p.members, func(m *member) bool { return m.kind == k })
}

// newestOfKinds returns the newest member of the kinds, or nil.
func (p *nodeAllocs) newestOfKinds(kinds ...allocKind) *member {
	for i := len(p.members) - 1; i >= 0; i-- {
		if slices.Contains(kinds, p.members[i].kind) {
			return p.members[i]
		}
	}
	return nil
}

// reconcileSystemGroup decides for one group of a system job.
func (d *decision) reconcileSystemGroup(g *fleet.TaskGroup, posts []*nodeAllocs) {
	var members []*member
	for _, p := range posts {
		members = append(members, p.members...)
	}
	r := d.newRollout(g, members)
	d.rollouts = append(d.rollouts, r)
	d.findVacantNodes(g, posts, r)
	d.systemCanaries(g, posts, r)
	d.desiredNodes[g.Name] = 0
	var crowded []*nodeAllocs
	for _, p := range posts {
		if d.isNodeFullForUpdate(p, r) {
			crowded = append(crowded, p)
			continue
		}
		d.reconcileNode(p, g, r)
	}
	for _, p := range crowded {
		d.reconcileNode(p, g, r)
	}
	r.total = d.desiredNodes[g.Name]
}

// isNodeFullForUpdate reports whether the newest version has no room at a post whose turn it may be. It
// is looked at behind the others: a node that stays full keeps nobody else from its turn.
func (d *decision) isNodeFullForUpdate(p *nodeAllocs, r *rollout) bool {
	return r.turnsLeft > 0 && p.target && p.current != nil && d.needsDestructiveUpdate(p.current.a) && d.in.Room != nil && !d.in.Room(p.current.a)
}

// reconcileNode decides for a post.
func (d *decision) reconcileNode(p *nodeAllocs, g *fleet.TaskGroup, r *rollout) {
	for _, m := range p.members {
		d.reconcileOtherAlloc(m, p)
	}
	wanted := true
	switch {
	case p.current != nil:
		wanted = d.reconcileCurrentOnNode(p, g, r)
	case p.vacant:
		d.placeOnEmptyNode(p, g)
		r.noteNewPlacement()
	case p.awaited:
		r.deferred++
	case p.hasMemberOfKind(kindReplaying), p.hasMemberOfKind(kindUnknown), p.hasMemberOfKind(kindDisconnecting), d.isLastAllocLost(p):
	default:
		wanted = false
	}
	if wanted {
		d.desiredNodes[g.Name]++
		r.recordProgress(p.currentOrUnknown())
	}
}

// findVacantNodes finds the posts that are to have what they have not. Where something is
// stopped for it, by the deployment or by an operator, it keeps its turn, and its site
// goes without it, until that is there. A node that never had any takes no turn: nothing
// is out of service for it, and it may be too full for as long as it lives. Where the
// node is away nothing can be placed: that takes no turn, but its site goes without it.
func (d *decision) findVacantNodes(g *fleet.TaskGroup, posts []*nodeAllocs, r *rollout) {
	for _, p := range posts {
		empty := p.currentOrUnknown() == nil && d.unsuitableReason(p, g) == "" && !d.isLastAllocLost(p)
		p.vacant, p.awaited = empty && p.target, empty && d.isAwaitingNode(p)
		switch {
		case p.awaited:
			r.sites.countMissingAbsent(p.node.SiteName())
		case !p.vacant:
		case p.hasMemberOfKind(kindMigrating) || d.isEmptiedByDeployment(p):
			r.reserveTurns(1)
			r.sites.countMissing(p.node.SiteName())
			r.changes = r.changes || r.update != nil && d.deployment == nil && d.needsUpdateOnReturn(p.members[len(p.members)-1])
		default:
			r.vacant++
		}
	}
}

// isAwaitingNode reports whether an empty post had something, was told to stop it, and gets the
// newest version as soon as its node is ready again. A node whose absence means that its
// allocations are lost is not waited for, nor one that takes no new work then.
func (d *decision) isAwaitingNode(p *nodeAllocs) bool {
	n := p.node
	if d.isBatchJob() || n.Revoked != nil || n.Status == fleet.NodeReady || n.SchedulingEligibility == fleet.NodeIneligible || len(p.members) == 0 {
		return false
	}
	last := p.members[len(p.members)-1]
	if last.a.Job == nil || last.a.Job.CreateIndex != d.in.Job.CreateIndex {
		return false // of a job of that name that was purged
	}
	since := awaySince(last.a)
	if last.a.ClientStatus != fleet.ClientUnknown && (last.kind == kindLost || d.isStopUnconfirmed(last)) {
		since = d.in.Now // this decision gives it up
	}
	switch {
	case n.Status == fleet.NodeInitializing:
		return true
	case !last.rules.Tolerated, last.rules.Nomad, last.rules.isPastLostAfter(since, d.in.Now):
		return false
	case last.rules.LostAfter > 0:
		d.evalRequests = append(d.evalRequests, evalRequest{
			at: since.Add(last.rules.LostAfter), trigger: fleet.TriggerDisconnectTimeout, why: "wait no longer for node " + d.nodeName(last.a),
		})
	}
	return true
}

// systemCanaries finds how many nodes may get the newest version as canaries: a
// part of all, and no more at once than others would.
func (d *decision) systemCanaries(g *fleet.TaskGroup, posts []*nodeAllocs, r *rollout) {
	if r.update == nil {
		return
	}
	placed, targets := 0, 0
	for _, p := range posts {
		if p.target && d.unsuitableReason(p, g) == "" {
			targets++
		}
		if m := p.currentOrUnknown(); m != nil && m.a.DeploymentStatus.IsCanary() && d.deployment != nil && m.a.DeploymentID == d.deployment.ID {
			placed++ // also one that is away
		}
	}
	if d.deployment == nil && r.update.Canary > 0 && r.outdated > 0 && !d.versionSucceeded {
		r.state.DesiredCanaries = min((targets*r.update.Canary+99)/100, r.update.MaxParallel)
	}
	if r.state.DesiredCanaries == 0 || r.state.Promoted {
		return
	}
	if r.canariesObsolete = d.deployment != nil && placed < r.state.DesiredCanaries && !slices.ContainsFunc(posts, d.hasOlderVersion); r.canariesObsolete {
		return
	}
	r.changes = true
	for _, p := range posts {
		if placed < r.state.DesiredCanaries && p.vacant && d.isEmptiedByDeployment(p) {
			p.canary = true
			placed++
		}
	}
	if r.holdReason == "" {
		r.holdForPromotion()
		r.canaryTurns = max(r.state.DesiredCanaries-placed, 0)
	}
}

// hasOlderVersion reports whether a post has, or had to make room, what runs an older version: a
// canary may take its place.
func (d *decision) hasOlderVersion(p *nodeAllocs) bool {
	return d.isEmptiedByDeployment(p) || slices.ContainsFunc(p.members, func(m *member) bool { return m.kind != kindEnded && d.needsDestructiveUpdate(m.a) })
}

// isEmptiedByDeployment reports whether a post has nothing because a deployment stopped what was there:
// the one that runs, or an earlier one whose newest version finds room there now.
func (d *decision) isEmptiedByDeployment(p *nodeAllocs) bool {
	if !p.target || len(p.members) == 0 || p.currentOrUnknown() != nil {
		return false
	}
	last := p.members[len(p.members)-1]
	return d.isStoppedForUpdate(last) || d.needsUpdateOnReturn(last)
}

// needsUpdateOnReturn reports whether what a post had last was stopped or lost before it was the newest
// version and healthy, and the newest has room in its stead now: its edge was away while the
// others were updated. It gets the newest version as part of a deployment.
func (d *decision) needsUpdateOnReturn(last *member) bool {
	a := last.a
	unserved := d.needsDestructiveUpdate(a) || a.DeploymentID != "" && !a.DeploymentStatus.IsHealthy()
	return unserved && a.Vacated() && (d.in.Room == nil || d.in.Room(a))
}

// isLastAllocLost reports whether what a sysbatch job had last at a post was lost: it ran there, and
// nobody knows how it ended, so that it is not run again before the job changes.
func (d *decision) isLastAllocLost(p *nodeAllocs) bool {
	if !d.isBatchJob() || len(p.members) == 0 {
		return false
	}
	m := p.members[len(p.members)-1]
	return (m.kind == kindLost || m.a.WasGivenUp()) && p.target && !d.needsDestructiveUpdate(m.a)
}

// currentOrUnknown is the member that tells how far the post is.
func (p *nodeAllocs) currentOrUnknown() *member {
	if p.current != nil {
		return p.current
	}
	return p.newestOfKinds(kindUnknown, kindDisconnecting, kindReplaying)
}

// reconcileOtherAlloc decides for an allocation that is not the holder of its post.
func (d *decision) reconcileOtherAlloc(m *member, p *nodeAllocs) {
	switch {
	case m == p.current:
	case m.kind == kindEnded:
		d.leaveEnded(m)
	case m.kind == kindReplaying:
		d.keepReplaying(m)
	case m.kind == kindUnknown:
		d.keepUnknown(m)
	case m.kind == kindDisconnecting:
		d.markAllocUnknown(m)
	case m.kind == kindLost:
		d.markAllocLost(m)
	case m.kind == kindMigrating:
		d.stopAllocation(m, Change{Reason: "an operator wants it stopped"})
	default:
		d.stopOrRetire(m, Change{Reason: fmt.Sprintf("%s has taken its place", fleet.Short(p.current.a.ID))})
	}
}

// unsuitableReason says why a node is not one for the newest version of a group, "" where
// it is.
func (d *decision) unsuitableReason(p *nodeAllocs, g *fleet.TaskGroup) string {
	switch {
	case p.node == nil:
		return "it was removed"
	case !d.in.Job.InPool(p.node.NodePool):
		return "node pool " + p.node.NodePool
	case !d.in.Job.InDatacenter(p.node.Datacenter):
		return "datacenter " + p.node.Datacenter
	case d.in.Suits == nil:
		return ""
	}
	return d.in.Suits(p.node, g.Name)
}

// reconcileCurrentOnNode decides for the holder of a post, and reports whether the job goes on having
// one there.
func (d *decision) reconcileCurrentOnNode(p *nodeAllocs, g *fleet.TaskGroup, r *rollout) bool {
	m := p.current
	change := d.groupChangeFor(m.a)
	// A version that is there already stays though a driver or an attribute comes
	// and goes: only a node that is none of the job's any more loses it.
	outside := p.node != nil && !(d.in.Job.InPool(p.node.NodePool) && d.in.Job.InDatacenter(p.node.Datacenter))
	unsuited := ""
	if change != diff.GroupSame || outside {
		unsuited = d.unsuitableReason(p, g)
	}
	ready, wanted := p.node != nil && p.node.Status == fleet.NodeReady, true
	switch {
	case m.kind == kindSucceeded && !d.needsDestructiveUpdate(m.a):
		d.keepOrReconnect(m, "it has completed")
	case change != diff.GroupSame && (unsuited != "" || d.needsDestructiveUpdate(m.a) && ready && !p.target) && r.outsideWindowReason(m) != "":
		d.keepOrReconnect(m, fmt.Sprintf("version %d of the job takes it away when a window of node %s opens", d.in.Job.Version, d.nodeName(m.a)))
	case unsuited != "":
		wanted = false
		d.stopOrRetire(m, Change{Reason: fmt.Sprintf("node %s is not one for version %d of the job: %s", d.nodeName(m.a), d.in.Job.Version, unsuited)})
	case d.needsDestructiveUpdate(m.a) && ready && !p.target:
		wanted = false
		d.stopOrRetire(m, Change{Reason: fmt.Sprintf("version %d of the job changes its tasks, and node %s takes no new work", d.in.Job.Version, d.nodeName(m.a))})
	case d.needsDestructiveUpdate(m.a) && !p.target:
		d.keepOrReconnect(m, fmt.Sprintf("it has ended, and its node is away: version %d of the job comes when it is back", d.in.Job.Version))
	case d.needsDestructiveUpdate(m.a):
		d.updateAllocOnNode(m, g, r)
	case m.kind == kindFailed, m.kind == kindCompleted:
		d.restartEndedAlloc(p, g)
		wanted = p.target || !ready || d.isBatchJob() // or nothing takes its place
	case m.reconnecting:
		d.reconnectAlloc(m, Change{Update: r.needsInPlaceUpdate(m, change), Reason: fmt.Sprintf("node %s is back", d.nodeName(m.a))})
	case r.needsInPlaceUpdate(m, change):
		d.inPlace(m, change)
	default:
		d.keepUnchanged(m, "it is as it should be")
	}
	return wanted
}

// updateAllocOnNode replaces an allocation by the newest version, as far as the group's update
// rules let it now. What does not run any more does not wait for its turn.
func (d *decision) updateAllocOnNode(m *member, g *fleet.TaskGroup, r *rollout) {
	if r.canaryTurns > 0 {
		if why := r.outsideWindowReason(m); why != "" {
			d.keepOrReconnect(m, fmt.Sprintf("waits to become version %d: %s", d.in.Job.Version, why))
			return
		}
	}
	canary := r.takeCanaryTurn(m)
	if !canary {
		if ok, wait := r.takeUpdateTurn(m); !ok {
			d.keepOrReconnect(m, fmt.Sprintf("waits for its turn to become version %d: %s", d.in.Job.Version, wait))
			return
		}
	}
	why := fmt.Sprintf("version %d of the job changes its tasks", d.in.Job.Version)
	d.stopOrRetire(m, Change{Anew: true, WithPlacement: !m.reconnecting, Windows: updateWindows(g), Reason: why})
	d.addPlacement(Placement{
		Name: allocName(d.in.JobID, g.Name, 0), Group: g.Name, Node: m.a.NodeID, Previous: m.a, Canary: canary,
		Reason: fmt.Sprintf("replaces %s: %s", fleet.Short(m.a.ID), why),
	})
}

// restartEndedAlloc starts anew what has ended and should not have; a sysbatch job's
// allocation that failed stays so.
func (d *decision) restartEndedAlloc(p *nodeAllocs, g *fleet.TaskGroup) {
	m := p.current
	switch {
	case d.isBatchJob():
		d.keepOrReconnect(m, "it failed, and jobs of its type are not started again")
		return
	case !p.target:
		d.keepOrReconnect(m, "it has ended, and its node takes no new work")
		return
	}
	ended := time.Unix(0, m.a.ModifyTime)
	delay := systemBackoff(m.a.RescheduleTracker, ended)
	at := ended.Add(delay)
	if waits, ok := d.in.Waiting[m.a.FollowupEvalID]; ok {
		at = waits // that it began to wait has changed its time
	}
	asked := m.a.FollowupEvalID != "" && m.a.FollowupEvalID == d.in.EvalID
	if !asked && at.After(d.in.Now.Add(rescheduleWindow)) {
		list, i := d.keepOrReconnect(m, fmt.Sprintf("it has ended, and is started anew %s after that", delay))
		d.evalRequests = append(d.evalRequests, evalRequest{
			at: at, trigger: fleet.TriggerRetryFailedAlloc, list: list, i: i, why: "start anew what ended on its node",
		})
		return
	}
	d.stopOrRetire(m, Change{WithPlacement: !m.reconnecting, Reason: "it has ended, and is started anew"})
	d.addPlacement(Placement{
		Name: allocName(d.in.JobID, g.Name, 0), Group: g.Name, Node: p.id, Previous: m.a,
		Canary:  m.a.DeploymentStatus.IsCanary() && d.deployment.Active() && m.a.DeploymentID == d.deployment.ID,
		Tracker: nextTracker(m.a, &fleet.ReschedulePolicy{Unlimited: true}, delay, d.in.Now),
		Reason:  fmt.Sprintf("replaces %s, which has ended", fleet.Short(m.a.ID)),
	})
}

// placeOnEmptyNode places the group on a node that has nothing of it.
func (d *decision) placeOnEmptyNode(p *nodeAllocs, g *fleet.TaskGroup) {
	place := Placement{
		Name: allocName(d.in.JobID, g.Name, 0), Group: g.Name, Node: p.id, Canary: p.canary,
		Reason: fmt.Sprintf("group %s wants one on node %s", g.Name, nodeName(p.node)),
	}
	if m := p.newestOfKinds(kindLost, kindMigrating, kindEnded); m != nil && m.a.NextAllocation == "" {
		place.Previous = m.a
	}
	d.addPlacement(place)
}
