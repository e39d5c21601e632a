package reconcile

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"skerry/fleet"
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

// post is where a system job has one allocation of a group: a node, with all that
// the job has or had of the group there.
type post struct {
	node    *fleet.Node // nil: its record was removed
	id      fleet.NodeID
	target  bool      // takes new work, and is one of the job's
	members []*member // by creation
	holder  *member   // the one that counts, nil: none
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
	d := &decision{in: in, changes: map[versionKey]fleet.GroupChange{}, wanted: map[string]int{}}
	d.out.Groups = map[string]GroupSummary{}
	groups := d.begin()
	if !in.Job.Stopped() {
		for i := range in.Job.TaskGroups {
			g := &in.Job.TaskGroups[i]
			d.everywhere(g, d.posts(groups[g.Name]))
			delete(groups, g.Name)
		}
	}
	d.stopGroups(groups)
	d.endDeployments()
	d.wakeForWindow()
	d.followUps()
	d.summarize()
	for name, n := range d.wanted {
		s := d.out.Groups[name]
		s.Desired = n
		d.out.Groups[name] = s
	}
	return d.out
}

// posts sorts a group's allocations by node, and adds the nodes that have none
// yet.
func (d *decision) posts(allocs []*fleet.Alloc) []*post {
	byNode := map[fleet.NodeID]*post{}
	var posts []*post
	at := func(id fleet.NodeID) *post {
		p := byNode[id]
		if p == nil {
			p = &post{id: id, node: d.in.Nodes[id]}
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
		p.members = append(p.members, d.classify(a))
	}
	slices.SortFunc(posts, func(a, b *post) int { return cmp.Compare(a.id, b.id) })
	for _, p := range posts {
		slices.SortFunc(p.members, byCreation)
		for _, m := range p.members {
			if m.counts() {
				p.holder = m
			}
		}
	}
	return posts
}

func (p *post) has(k kind) bool {
	return slices.ContainsFunc(p.members, func(m *member) bool { return m.kind == k })
}

// newest returns the newest member of the kinds, or nil.
func (p *post) newest(kinds ...kind) *member {
	for i := len(p.members) - 1; i >= 0; i-- {
		if slices.Contains(kinds, p.members[i].kind) {
			return p.members[i]
		}
	}
	return nil
}

// everywhere decides for one group of a system job.
func (d *decision) everywhere(g *fleet.TaskGroup, posts []*post) {
	var members []*member
	for _, p := range posts {
		members = append(members, p.members...)
	}
	r := d.newRollout(g, members)
	d.rollouts = append(d.rollouts, r)
	d.vacancies(g, posts, r)
	d.systemCanaries(g, posts, r)
	d.wanted[g.Name] = 0
	var crowded []*post
	for _, p := range posts {
		if d.crowded(p, r) {
			crowded = append(crowded, p)
			continue
		}
		d.staff(p, g, r)
	}
	for _, p := range crowded {
		d.staff(p, g, r)
	}
	r.total = d.wanted[g.Name]
}

// crowded reports whether the newest version has no room at a post whose turn it may be. It
// is looked at behind the others: a node that stays full keeps nobody else from its turn.
func (d *decision) crowded(p *post, r *rollout) bool {
	return r.left > 0 && p.target && p.holder != nil && d.outdated(p.holder.a) && d.in.Room != nil && !d.in.Room(p.holder.a)
}

// staff decides for a post.
func (d *decision) staff(p *post, g *fleet.TaskGroup, r *rollout) {
	for _, m := range p.members {
		d.member(m, p)
	}
	wanted := true
	switch {
	case p.holder != nil:
		wanted = d.man(p, g, r)
	case p.vacant:
		d.occupy(p, g)
		r.begins()
	case p.awaited:
		r.away++
	case p.has(frozen), p.has(away), p.has(leaving), d.gaveUp(p):
	default:
		wanted = false
	}
	if wanted {
		d.wanted[g.Name]++
		r.progress(p.counted())
	}
}

// vacancies finds the posts that are to have what they have not. Where something is
// stopped for it, by the deployment or by an operator, it keeps its turn, and its site
// goes without it, until that is there. A node that never had any takes no turn: nothing
// is out of service for it, and it may be too full for as long as it lives. Where the
// node is away nothing can be placed: that takes no turn, but its site goes without it.
func (d *decision) vacancies(g *fleet.TaskGroup, posts []*post, r *rollout) {
	for _, p := range posts {
		empty := p.counted() == nil && d.unsuited(p, g) == "" && !d.gaveUp(p)
		p.vacant, p.awaited = empty && p.target, empty && d.awaited(p)
		switch {
		case p.awaited:
			r.sites.missAway(p.node.SiteName())
		case !p.vacant:
		case p.has(migrating) || d.emptied(p):
			r.places(1)
			r.sites.miss(p.node.SiteName())
			r.changes = r.changes || r.u != nil && d.deployment == nil && d.returned(p.members[len(p.members)-1])
		default:
			r.vacant++
		}
	}
}

// awaited reports whether an empty post had something, was told to stop it, and gets the
// newest version as soon as its node is ready again. A node whose absence means that its
// allocations are lost is not waited for, nor one that takes no new work then.
func (d *decision) awaited(p *post) bool {
	n := p.node
	if d.batch() || n.Revoked != nil || n.Status == fleet.NodeReady || n.SchedulingEligibility == fleet.NodeIneligible || len(p.members) == 0 {
		return false
	}
	last := p.members[len(p.members)-1]
	if last.a.Job == nil || last.a.Job.CreateIndex != d.in.Job.CreateIndex {
		return false // of a job of that name that was purged
	}
	since := awaySince(last.a)
	if last.a.ClientStatus != fleet.ClientUnknown && (last.kind == lost || d.unconfirmed(last)) {
		since = d.in.Now // this decision gives it up
	}
	switch {
	case n.Status == fleet.NodeInitializing:
		return true
	case !last.rules.Tolerated, last.rules.Nomad, last.rules.expired(since, d.in.Now):
		return false
	case last.rules.LostAfter > 0:
		d.wishes = append(d.wishes, wish{
			at: since.Add(last.rules.LostAfter), trigger: fleet.TriggerDisconnectTimeout, why: "wait no longer for node " + d.nodeName(last.a),
		})
	}
	return true
}

// systemCanaries finds how many nodes may get the newest version as canaries: a
// part of all, and no more at once than others would.
func (d *decision) systemCanaries(g *fleet.TaskGroup, posts []*post, r *rollout) {
	if r.u == nil {
		return
	}
	placed, targets := 0, 0
	for _, p := range posts {
		if p.target && d.unsuited(p, g) == "" {
			targets++
		}
		if m := p.counted(); m != nil && m.a.DeploymentStatus.IsCanary() && d.deployment != nil && m.a.DeploymentID == d.deployment.ID {
			placed++ // also one that is away
		}
	}
	if d.deployment == nil && r.u.Canary > 0 && r.stale > 0 && !d.proven {
		r.state.DesiredCanaries = min((targets*r.u.Canary+99)/100, r.u.MaxParallel)
	}
	if r.state.DesiredCanaries == 0 || r.state.Promoted {
		return
	}
	if r.moot = d.deployment != nil && placed < r.state.DesiredCanaries && !slices.ContainsFunc(posts, d.older); r.moot {
		return
	}
	r.changes = true
	for _, p := range posts {
		if placed < r.state.DesiredCanaries && p.vacant && d.emptied(p) {
			p.canary = true
			placed++
		}
	}
	if r.held == "" {
		r.hold()
		r.turns = max(r.state.DesiredCanaries-placed, 0)
	}
}

// older reports whether a post has, or had to make room, what runs an older version: a
// canary may take its place.
func (d *decision) older(p *post) bool {
	return d.emptied(p) || slices.ContainsFunc(p.members, func(m *member) bool { return m.kind != ended && d.outdated(m.a) })
}

// emptied reports whether a post has nothing because a deployment stopped what was there:
// the one that runs, or an earlier one whose newest version finds room there now.
func (d *decision) emptied(p *post) bool {
	if !p.target || len(p.members) == 0 || p.counted() != nil {
		return false
	}
	last := p.members[len(p.members)-1]
	return d.cleared(last) || d.returned(last)
}

// returned reports whether what a post had last was stopped or lost before it was the newest
// version and healthy, and the newest has room in its stead now: its edge was away while the
// others were updated. It gets the newest version as part of a deployment.
func (d *decision) returned(last *member) bool {
	a := last.a
	unserved := d.outdated(a) || a.DeploymentID != "" && !a.DeploymentStatus.IsHealthy()
	return unserved && a.Vacated() && (d.in.Room == nil || d.in.Room(a))
}

// gaveUp reports whether what a sysbatch job had last at a post was lost: it ran there, and
// nobody knows how it ended, so that it is not run again before the job changes.
func (d *decision) gaveUp(p *post) bool {
	if !d.batch() || len(p.members) == 0 {
		return false
	}
	m := p.members[len(p.members)-1]
	return (m.kind == lost || m.a.WasGivenUp()) && p.target && !d.outdated(m.a)
}

// counted is the member that tells how far the post is.
func (p *post) counted() *member {
	if p.holder != nil {
		return p.holder
	}
	return p.newest(away, leaving, frozen)
}

// member decides for an allocation that is not the holder of its post.
func (d *decision) member(m *member, p *post) {
	switch {
	case m == p.holder:
	case m.kind == ended:
		d.leaveEnded(m)
	case m.kind == frozen:
		d.leaveFrozen(m)
	case m.kind == away:
		d.stayAway(m)
	case m.kind == leaving:
		d.leave(m)
	case m.kind == lost:
		d.giveUp(m)
	case m.kind == migrating:
		d.stop(m, Change{Reason: "an operator wants it stopped"})
	default:
		d.end(m, Change{Reason: fmt.Sprintf("%s has taken its place", fleet.Short(p.holder.a.ID))})
	}
}

// unsuited says why a node is not one for the newest version of a group, "" where
// it is.
func (d *decision) unsuited(p *post, g *fleet.TaskGroup) string {
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

// man decides for the holder of a post, and reports whether the job goes on having
// one there.
func (d *decision) man(p *post, g *fleet.TaskGroup, r *rollout) bool {
	m := p.holder
	change := d.change(m.a)
	// A version that is there already stays though a driver or an attribute comes
	// and goes: only a node that is none of the job's any more loses it.
	outside := p.node != nil && !(d.in.Job.InPool(p.node.NodePool) && d.in.Job.InDatacenter(p.node.Datacenter))
	unsuited := ""
	if change != fleet.GroupSame || outside {
		unsuited = d.unsuited(p, g)
	}
	ready, wanted := p.node != nil && p.node.Status == fleet.NodeReady, true
	switch {
	case m.kind == done && !d.outdated(m.a):
		d.remain(m, "it has completed")
	case change != fleet.GroupSame && (unsuited != "" || d.outdated(m.a) && ready && !p.target) && r.shut(m) != "":
		d.remain(m, fmt.Sprintf("version %d of the job takes it away when a window of node %s opens", d.in.Job.Version, d.nodeName(m.a)))
	case unsuited != "":
		wanted = false
		d.end(m, Change{Reason: fmt.Sprintf("node %s is not one for version %d of the job: %s", d.nodeName(m.a), d.in.Job.Version, unsuited)})
	case d.outdated(m.a) && ready && !p.target:
		wanted = false
		d.end(m, Change{Reason: fmt.Sprintf("version %d of the job changes its tasks, and node %s takes no new work", d.in.Job.Version, d.nodeName(m.a))})
	case d.outdated(m.a) && !p.target:
		d.remain(m, fmt.Sprintf("it has ended, and its node is away: version %d of the job comes when it is back", d.in.Job.Version))
	case d.outdated(m.a):
		d.renew(m, g, r)
	case m.kind == failed, m.kind == spent:
		d.again(p, g)
		wanted = p.target || !ready || d.batch() // or nothing takes its place
	case m.due:
		d.reconnect(m, Change{Update: r.updates(m, change), Reason: fmt.Sprintf("node %s is back", d.nodeName(m.a))})
	case r.updates(m, change):
		d.inPlace(m, change)
	default:
		d.keep(m, "it is as it should be")
	}
	return wanted
}

// renew replaces an allocation by the newest version, as far as the group's update
// rules let it now. What does not run any more does not wait for its turn.
func (d *decision) renew(m *member, g *fleet.TaskGroup, r *rollout) {
	if r.turns > 0 {
		if why := r.shut(m); why != "" {
			d.remain(m, fmt.Sprintf("waits to become version %d: %s", d.in.Job.Version, why))
			return
		}
	}
	canary := r.takeCanary(m)
	if !canary {
		if ok, wait := r.take(m); !ok {
			d.remain(m, fmt.Sprintf("waits for its turn to become version %d: %s", d.in.Job.Version, wait))
			return
		}
	}
	why := fmt.Sprintf("version %d of the job changes its tasks", d.in.Job.Version)
	d.end(m, Change{Anew: true, WithPlacement: !m.due, Windows: windows(g), Reason: why})
	d.place(Placement{
		Name: allocName(d.in.JobID, g.Name, 0), Group: g.Name, Node: m.a.NodeID, Previous: m.a, Canary: canary,
		Reason: fmt.Sprintf("replaces %s: %s", fleet.Short(m.a.ID), why),
	})
}

// again starts anew what has ended and should not have; a sysbatch job's
// allocation that failed stays so.
func (d *decision) again(p *post, g *fleet.TaskGroup) {
	m := p.holder
	switch {
	case d.batch():
		d.remain(m, "it failed, and jobs of its type are not started again")
		return
	case !p.target:
		d.remain(m, "it has ended, and its node takes no new work")
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
		list, i := d.remain(m, fmt.Sprintf("it has ended, and is started anew %s after that", delay))
		d.wishes = append(d.wishes, wish{
			at: at, trigger: fleet.TriggerRetryFailedAlloc, list: list, i: i, why: "start anew what ended on its node",
		})
		return
	}
	d.end(m, Change{WithPlacement: !m.due, Reason: "it has ended, and is started anew"})
	d.place(Placement{
		Name: allocName(d.in.JobID, g.Name, 0), Group: g.Name, Node: p.id, Previous: m.a,
		Canary:  m.a.DeploymentStatus.IsCanary() && d.deployment.Active() && m.a.DeploymentID == d.deployment.ID,
		Tracker: nextTracker(m.a, &fleet.ReschedulePolicy{Unlimited: true}, delay, d.in.Now),
		Reason:  fmt.Sprintf("replaces %s, which has ended", fleet.Short(m.a.ID)),
	})
}

// occupy places the group on a node that has nothing of it.
func (d *decision) occupy(p *post, g *fleet.TaskGroup) {
	place := Placement{
		Name: allocName(d.in.JobID, g.Name, 0), Group: g.Name, Node: p.id, Canary: p.canary,
		Reason: fmt.Sprintf("group %s wants one on node %s", g.Name, nodeName(p.node)),
	}
	if m := p.newest(lost, migrating, ended); m != nil && m.a.NextAllocation == "" {
		place.Previous = m.a
	}
	d.place(place)
}
