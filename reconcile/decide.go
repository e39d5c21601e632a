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
	changes      map[versionKey]diff.GroupChange
	evalRequests []evalRequest
	desiredNodes map[string]int // by group, of system jobs: how many nodes are to have one

	deployment       *fleet.Deployment // of this version: active, or failed
	versionSucceeded bool              // a deployment of this version has succeeded
	rollouts         []*rollout
	byID             map[fleet.AllocID]*fleet.Alloc
	placingCanary    bool      // what is placed just now is a canary
	nextWindowOpens  time.Time // the first window that something waits for; zero: none
}

// versionKey names a group of a version of the job.
type versionKey struct {
	hash  string
	job   *fleet.Job // where hash is empty
	group string
}

// Decide returns what is to be done for a service or batch job.
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

// prepareAllocGroups sorts the job's allocations by group.
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

// stopGroups ends what is left of groups.
func (d *decision) stopGroups(groups map[string][]*fleet.Alloc) {
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		d.stopGroup(name, groups[name])
	}
}

// stopGroup ends all allocations of a group that the job does not have, or of a
// job that is not to run.
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

// endedByItself reports whether an allocation that the hub wanted to run has ended: when its
// job stops, that is left as it is.
func (m *member) endedByItself() bool {
	return !m.a.ServerTerminal() && m.a.ClientTerminal() && m.kind != kindReplaying && m.kind != kindEnded
}

// reconcileGroup decides for one group of the job.
func (d *decision) reconcileGroup(g *fleet.TaskGroup, allocs []*fleet.Alloc) {
	rest, canaries, old := d.splitCanaries(allocs)
	slots, beside := d.allocsByNameIndex(rest), d.allocsByNameIndex(canaries)
	active := 0
	for _, s := range slots {
		d.findCurrentAlloc(s)
		if s.isActiveIndex() {
			active++
		}
	}
	if surplus := active - g.Count; surplus > 0 {
		d.markSurplusIndexes(slots, surplus, g)
		active = g.Count
	}
	r := d.newRollout(g, slices.Concat(membersOf(slots), membersOf(beside)))
	d.rollouts = append(d.rollouts, r)
	missing := g.Count - active
	d.countMissingAtSites(slots, missing, r)
	d.dropCanaries(old)
	d.reconcileCanaries(g, beside, r)
	if !r.canPlaceNewest() {
		d.restoreOldVersion(slots, missing, g, r)
		missing = 0
	}
	r.total = g.Count
	r.reserveTurns(missing)
	taken := map[int]bool{}
	for _, s := range slots {
		taken[s.index] = s.isActiveIndex()
		if s.isActiveIndex() {
			r.recordProgress(cmp.Or(d.absentPromotedCanary(s), s.currentOrUnknown()))
		}
		d.reconcileNameIndex(s, g, r)
	}
	d.placeMissing(slots, taken, g, missing)
}

// countMissingAtSites has sites go without what was stopped there for the deployment, until that is
// placed. Where its edge is away, and there is no room elsewhere, it is deferred with it.
func (d *decision) countMissingAtSites(slots []*nameIndexAllocs, missing int, r *rollout) {
	for _, s := range slots {
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

// membersOf lists what is in slots that the group goes on having: what is not needed
// takes nobody's turn, as its end may be the last that is heard of the group.
func membersOf(slots []*nameIndexAllocs) []*member {
	var all []*member
	for _, s := range slots {
		if s.surplusReason == "" {
			all = append(append(all, s.members...), s.duplicates...)
		}
	}
	return all
}

// restoreOldVersion places again what a group had while its newest version is held back: what
// was lost, evicted, or stopped to make room, and could not be placed at once. Names
// that the newest version adds wait with it.
func (d *decision) restoreOldVersion(slots []*nameIndexAllocs, missing int, g *fleet.TaskGroup, r *rollout) {
	for _, s := range slots {
		m := d.lastUnreplaced(s)
		if missing <= 0 || s.isActiveIndex() || m == nil || m.a.Group() == nil {
			continue
		}
		if m.a.ClientStatus != fleet.ClientLost && m.a.DesiredStatus != fleet.DesiredEvict && m.a.AllocModifyIndex < d.in.Job.JobModifyIndex {
			continue // an earlier version did without it
		}
		missing--
		d.addPlacement(Placement{
			Name: s.name, Group: g.Name, Previous: m.a, Job: r.replacementVersion(m),
			Reason: fmt.Sprintf("replaces %s: group %s wants %d", fleet.Short(m.a.ID), g.Name, g.Count),
		})
	}
}

// placeMissing places what is missing, under the lowest free names. What a name had last
// is replaced by it where that was stopped to make room for a newer version.
func (d *decision) placeMissing(slots []*nameIndexAllocs, taken map[int]bool, g *fleet.TaskGroup, missing int) {
	last := map[int]*fleet.Alloc{}
	for _, s := range slots {
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

// markSurplusIndexes gives up slots that the group does not want: first those in which
// nothing lives, then those of the highest index.
func (d *decision) markSurplusIndexes(slots []*nameIndexAllocs, surplus int, g *fleet.TaskGroup) {
	var candidates []*nameIndexAllocs
	for _, s := range slots {
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

// endWithoutReplacement ends an allocation that nothing is to take the place of.
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

// leaveEnded leaves an allocation alone that was stopped or retired, unless nobody will say that it
// ended.
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

// isStopUnconfirmed: it was told to stop, and its node went before it said that it had.
// One that is unknown stays so while its node may return, but under Nomad's rules, and one
// that may wait for a window there runs on.
func (d *decision) isStopUnconfirmed(m *member) bool {
	node := d.in.Nodes[m.a.NodeID]
	if node != nil && node.Revoked == nil && m.a.AwaitsWindow() {
		return false
	}
	gone := node == nil || node.Revoked != nil ||
		node.Status == fleet.NodeDown && (m.a.ClientStatus != fleet.ClientUnknown || m.rules.Nomad)
	return gone && m.a.ServerTerminal() && !m.a.ClientTerminal()
}

// groupChangeFor says what the newest version of the job means for an allocation. What
// the version leaves as it was takes it in place, so that all allocations show
// the same version.
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

// needsDestructiveUpdate: its tasks would have to be started anew to be what the job now says.
func (d *decision) needsDestructiveUpdate(a *fleet.Alloc) bool {
	if d.isBatchJob() && a.Job != nil && a.Job.CreateIndex < d.in.Job.CreateIndex {
		return true // of a job of that name that was purged
	}
	return d.groupChangeFor(a) == diff.GroupDestructive
}

// isBatchJob: the job's allocations are to end.
func (d *decision) isBatchJob() bool {
	return d.in.Job != nil && fleet.RunsToCompletion(d.in.Job.Type)
}

// summarizeGroups counts what was decided.
func (d *decision) summarizeGroups() {
	count := func(group string, add func(*GroupSummary)) {
		s := d.out.Groups[group]
		add(&s)
		d.out.Groups[group] = s
	}
	if !d.in.Job.Stopped() {
		for _, g := range d.in.Job.TaskGroups {
			count(g.Name, func(s *GroupSummary) { s.Desired = g.Count })
		}
	}
	updated := map[fleet.AllocID]bool{}
	for _, c := range d.out.Stops {
		if c.Anew {
			updated[c.Alloc.ID] = true
			count(c.Alloc.TaskGroup, func(s *GroupSummary) { s.Destructive++ })
		} else {
			count(c.Alloc.TaskGroup, func(s *GroupSummary) { s.Stop++ })
		}
	}
	for _, p := range d.out.Place {
		switch {
		case p.Canary && d.desiredNodes == nil:
			count(p.Group, func(s *GroupSummary) { s.Canary++ })
		case p.Previous == nil || !updated[p.Previous.ID]:
			count(p.Group, func(s *GroupSummary) { s.Place++ })
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
			count(c.Alloc.TaskGroup, l.add)
		}
	}
}

func allocName(job fleet.JobID, group string, index int) string {
	return fmt.Sprintf("%s.%s[%d]", job, group, index)
}
