package reconcile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"skerry/fleet"
	"skerry/fleet/diff"
)

// decision is the work on one Input.
type decision struct {
	in           Input
	out          Output
	changes      map[versionKey]diff.GroupChange // cache of groupChangeFor
	evalRequests []evalRequest
	desiredNodes map[string]int // of a system job, by group: number of nodes that are to have an allocation

	deployment       *fleet.Deployment // the active or failed deployment of the newest version; nil: none
	versionSucceeded bool              // a deployment of the newest version has succeeded
	rollouts         []*rollout
	byID             map[fleet.AllocID]*fleet.Alloc
	placingCanary    bool      // placements that are added now are canaries
	nextWindowOpens  time.Time // when the first window opens that an allocation waits for; zero: none
}

// versionKey identifies a group of a job version.
type versionKey struct {
	hash  string
	job   *fleet.Job // set if hash is empty
	group string
}

// Decide computes the decisions for a service or batch job.
func Decide(in Input) Output {
	d := &decision{in: in, changes: map[versionKey]diff.GroupChange{}}
	d.out.Groups = map[string]GroupSummary{}
	groups := d.prepareAllocGroups()
	if !in.Job.Stopped() {
		for i := range in.Job.TaskGroups {
			g := &in.Job.TaskGroups[i]
			d.reconcileGroup(g, groups[g.Name])
			delete(groups, g.Name)
		}
	}
	d.stopGroups(groups)
	d.beginOrEndDeployment()
	d.requestWindowEval()
	d.assignFollowUpEvals()
	d.summarizeGroups()
	return d.out
}

// prepareAllocGroups selects the deployment, fills in byID, and returns the job's allocations by group.
func (d *decision) prepareAllocGroups() map[string][]*fleet.Alloc {
	d.selectDeployment()
	d.byID = make(map[fleet.AllocID]*fleet.Alloc, len(d.in.Allocs))
	groups := map[string][]*fleet.Alloc{}
	for _, a := range d.in.Allocs {
		groups[a.TaskGroup] = append(groups[a.TaskGroup], a)
		d.byID[a.ID] = a
	}
	return groups
}

// stopGroups ends all allocations of the given groups.
func (d *decision) stopGroups(groups map[string][]*fleet.Alloc) {
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		d.stopGroup(name, groups[name])
	}
}

// stopGroup ends all allocations of a group that the job no longer has, or of a stopped or purged job.
func (d *decision) stopGroup(name string, allocs []*fleet.Alloc) {
	reason := fmt.Sprintf("the job has no group %s any more", name)
	switch {
	case d.in.Job == nil:
		reason = "the job was purged"
	case d.in.Job.Stop:
		reason = "the job was stopped"
	}
	for _, s := range d.allocsByNameIndex(allocs) {
		for _, m := range s.members {
			if d.in.Job.Stopped() && m.endedByItself() {
				d.keepOrReconnect(m, "it has ended, and "+reason)
				continue
			}
			d.endWithoutReplacement(m, reason)
		}
	}
}

// endedByItself reports whether an allocation has ended that the hub wanted to run. It is left as it is
// when its job stops.
func (m *member) endedByItself() bool {
	return !m.a.ServerTerminal() && m.a.ClientTerminal() && m.kind != kindReplaying && m.kind != kindEnded
}

// reconcileGroup decides for all allocations of one group of the job.
func (d *decision) reconcileGroup(g *fleet.TaskGroup, allocs []*fleet.Alloc) {
	rest, canaries, old := d.splitCanaries(allocs)
	nameIndexes, beside := d.allocsByNameIndex(rest), d.allocsByNameIndex(canaries)
	active := 0
	for _, s := range nameIndexes {
		d.findCurrentAlloc(s)
		if s.isActiveIndex() {
			active++
		}
	}
	if surplus := active - g.Count; surplus > 0 {
		d.markSurplusIndexes(nameIndexes, surplus, g)
		active = g.Count
	}
	r := d.newRollout(g, slices.Concat(membersOf(nameIndexes), membersOf(beside)))
	d.rollouts = append(d.rollouts, r)
	missing := g.Count - active
	d.countMissingAtSites(nameIndexes, missing, r)
	d.dropCanaries(old)
	d.reconcileCanaries(g, beside, r)
	if !r.canPlaceNewest() {
		d.restoreOldVersion(nameIndexes, missing, g, r)
		missing = 0
	}
	r.total = g.Count
	r.reserveTurns(missing)
	d.out.Kept = slices.Grow(d.out.Kept, max(0, active-r.outdated))
	taken := make(map[int]bool, len(nameIndexes))
	for _, s := range nameIndexes {
		taken[s.index] = s.isActiveIndex()
		if s.isActiveIndex() {
			r.recordProgress(cmp.Or(d.absentPromotedCanary(s), s.currentOrUnknown()))
		}
		d.reconcileNameIndex(s, g, r)
	}
	d.placeMissing(nameIndexes, taken, g, missing)
}

// countMissingAtSites counts name indexes without an allocation, because the deployment stopped it, as out
// of service at their site. If the node of such an allocation is away and still occupied, the name index
// is deferred. missing is the number of name indexes without an allocation.
func (d *decision) countMissingAtSites(nameIndexes []*nameIndexAllocs, missing int, r *rollout) {
	for _, s := range nameIndexes {
		m := s.newestMatching(func(*member) bool { return true })
		if missing <= 0 || s.isActiveIndex() || !d.isStoppedForUpdate(m) {
			continue
		}
		missing--
		node := d.in.Nodes[m.a.NodeID]
		if node == nil || node.Status == fleet.NodeReady || !m.a.OccupiesNode() {
			r.sites.countMissing(node.SiteName())
			continue
		}
		r.sites.countMissingAbsent(node.SiteName())
		r.deferred++
	}
}

// membersOf returns the allocations of the name indexes that are not surplus. A surplus allocation must
// not take an update turn, because nothing may be heard of it again.
func membersOf(nameIndexes []*nameIndexAllocs) []*member {
	all := make([]*member, 0, len(nameIndexes))
	for _, s := range nameIndexes {
		if s.surplusReason == "" {
			all = append(append(all, s.members...), s.duplicates...)
		}
	}
	return all
}

// restoreOldVersion places the older version again, for name indexes whose allocation was lost, evicted or
// stopped to make room, while the newest version is held back. Name indexes that the newest version adds
// wait.
func (d *decision) restoreOldVersion(nameIndexes []*nameIndexAllocs, missing int, g *fleet.TaskGroup, r *rollout) {
	for _, s := range nameIndexes {
		m := d.lastUnreplaced(s)
		if missing <= 0 || s.isActiveIndex() || m == nil || m.a.Group() == nil {
			continue
		}
		if m.a.ClientStatus != fleet.ClientLost && m.a.DesiredStatus != fleet.DesiredEvict && m.a.AllocModifyIndex < d.in.Job.JobModifyIndex {
			continue // an earlier version of the job removed it
		}
		missing--
		d.addPlacement(Placement{
			Name: s.name, Group: g.Name, Previous: m.a, Job: r.replacementVersion(m),
			Reason: fmt.Sprintf("replaces %s: group %s wants %d", fleet.Short(m.a.ID), g.Name, g.Count),
		})
	}
}

// placeMissing places the missing allocations, under the lowest free name indexes (taken: not free). If an
// allocation of the name was stopped for an update or evicted, the placement replaces it.
func (d *decision) placeMissing(nameIndexes []*nameIndexAllocs, taken map[int]bool, g *fleet.TaskGroup, missing int) {
	last := map[int]*fleet.Alloc{}
	for _, s := range nameIndexes {
		if m := s.newestMatching(func(*member) bool { return true }); m != nil && m.a.NoLongerWanted() && m.a.NextAllocation == "" &&
			(d.needsDestructiveUpdate(m.a) || m.a.DesiredStatus == fleet.DesiredEvict) {
			last[s.index] = m.a
		}
	}
	next := 0
	for range missing {
		for taken[next] {
			next++
		}
		taken[next] = true
		d.addPlacement(Placement{
			Name: allocName(d.in.JobID, g.Name, next), Group: g.Name, Previous: last[next],
			Reason: fmt.Sprintf("group %s wants %d", g.Name, g.Count),
		})
	}
}

// markSurplusIndexes marks that many name indexes as surplus: first those without a running or successful
// allocation, then those with the highest index.
func (d *decision) markSurplusIndexes(nameIndexes []*nameIndexAllocs, surplus int, g *fleet.TaskGroup) {
	var candidates []*nameIndexAllocs
	for _, s := range nameIndexes {
		if s.isActiveIndex() {
			candidates = append(candidates, s)
		}
	}
	slices.SortStableFunc(candidates, func(a, b *nameIndexAllocs) int {
		if a.hasRunningOrSucceeded() != b.hasRunningOrSucceeded() {
			if a.hasRunningOrSucceeded() {
				return 1
			}
			return -1
		}
		return cmp.Compare(b.index, a.index)
	})
	for _, s := range candidates[:surplus] {
		s.surplusReason = fmt.Sprintf("not needed: group %s wants %d", g.Name, g.Count)
	}
}

// endWithoutReplacement stops or retires an allocation, marks it lost, or leaves it alone if it has ended.
func (d *decision) endWithoutReplacement(m *member, reason string) {
	switch {
	case m.kind == kindEnded || m.a.AwaitsPlacement() && !m.reconnecting:
		if d.isStopUnconfirmed(m) || !d.skipWindowForStop(m, reason) {
			d.leaveEnded(m)
		}
	case m.kind == kindLost:
		d.markAllocLost(m)
	default:
		d.stopOrRetire(m, Change{Reason: reason})
	}
}

// leaveEnded leaves a stopped or retired allocation as it is. If its node is gone, it is marked lost,
// because nobody will report its end. If its stop has become urgent, it no longer waits for a window.
func (d *decision) leaveEnded(m *member) {
	if d.isStopUnconfirmed(m) {
		m.reason = "it was to stop, and its node is gone"
		d.markAllocLost(m)
		return
	}
	if why := d.urgentStopReason(m); why != "" && d.skipWindowForStop(m, why) {
		return
	}
	reason := m.a.DesiredDescription
	if reason == "" {
		reason = "it has ended"
	}
	d.keepUnchanged(m, reason)
}

// isStopUnconfirmed reports whether an allocation was told to stop, and its node is gone without having
// confirmed that. An unknown one stays unknown while its node may return, except under Nomad's rules. One
// that may wait for a window on its edge runs on.
func (d *decision) isStopUnconfirmed(m *member) bool {
	node := d.in.Nodes[m.a.NodeID]
	if node != nil && node.Revoked == nil && m.a.AwaitsWindow() {
		return false
	}
	gone := node == nil || node.Revoked != nil ||
		node.Status == fleet.NodeDown && (m.a.ClientStatus != fleet.ClientUnknown || m.rules.Nomad)
	return gone && m.a.ServerTerminal() && !m.a.ClientTerminal()
}

// groupChangeFor returns what the job's newest version changes for an allocation. An allocation whose
// group is unchanged takes the version in place, so that all allocations show the same version.
func (d *decision) groupChangeFor(a *fleet.Alloc) diff.GroupChange {
	job := d.in.Job
	if a.JobHash != "" && a.JobHash == job.SpecHash {
		return diff.GroupSame
	}
	key := versionKey{hash: a.JobHash, group: a.TaskGroup}
	if key.hash == "" {
		key.job = a.Job
	}
	change, ok := d.changes[key]
	if !ok {
		change = diff.GroupUpdate(a.Job, job, a.TaskGroup)
		if change == diff.GroupSame && a.JobHash != "" && job.SpecHash != "" {
			change = diff.GroupInPlace
		}
		d.changes[key] = change
	}
	return change
}

// needsDestructiveUpdate reports whether the newest version changes the allocation's tasks, so that it
// must be replaced.
func (d *decision) needsDestructiveUpdate(a *fleet.Alloc) bool {
	if d.isBatchJob() && a.Job != nil && a.Job.CreateIndex < d.in.Job.CreateIndex {
		return true // it belongs to an earlier job of the same name
	}
	return d.groupChangeFor(a) == diff.GroupDestructive && !d.isHeld(a)
}

// isBatchJob reports whether the job's allocations run to completion (batch, sysbatch).
func (d *decision) isBatchJob() bool {
	return d.in.Job != nil && fleet.RunsToCompletion(d.in.Job.Type)
}

// summarizeGroups counts the stops, placements and updates of the output in its GroupSummary of each group.
func (d *decision) summarizeGroups() {
	summaries := map[string]*GroupSummary{}
	summaryOf := func(group string) *GroupSummary {
		if summaries[group] == nil {
			s := d.out.Groups[group]
			summaries[group] = &s
		}
		return summaries[group]
	}
	if !d.in.Job.Stopped() {
		for _, g := range d.in.Job.TaskGroups {
			summaryOf(g.Name).Desired = g.Count
		}
	}
	updated := map[fleet.AllocID]bool{}
	for _, c := range d.out.Stops {
		if c.Destructive {
			updated[c.Alloc.ID] = true
			summaryOf(c.Alloc.TaskGroup).Destructive++
		} else {
			summaryOf(c.Alloc.TaskGroup).Stop++
		}
	}
	for _, p := range d.out.Place {
		switch {
		case p.Canary && d.desiredNodes == nil:
			summaryOf(p.Group).Canary++
		case p.Previous == nil || !updated[p.Previous.ID]:
			summaryOf(p.Group).Place++
		}
	}
	lists := []struct {
		changes []Change
		add     func(*GroupSummary)
	}{
		{d.out.Retired, func(s *GroupSummary) { s.Ignore++ }},
		{d.out.Lost, func(s *GroupSummary) { s.Lost++ }},
		{d.out.Unknown, func(s *GroupSummary) { s.Unknown++ }},
		{d.out.Reconnects, func(s *GroupSummary) { s.Reconnect++ }},
		{d.out.InPlace, func(s *GroupSummary) { s.InPlace++ }},
		{d.out.Kept, func(s *GroupSummary) { s.Ignore++ }},
	}
	for _, l := range lists {
		for _, c := range l.changes {
			l.add(summaryOf(c.Alloc.TaskGroup))
		}
	}
	for group, s := range summaries {
		d.out.Groups[group] = *s
	}
}

// allocName returns the name of an allocation: JOB.GROUP[INDEX].
func allocName(job fleet.JobID, group string, index int) string {
	return fmt.Sprintf("%s.%s[%d]", job, group, index)
}
