package reconcile

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"skerry/fleet"
	"skerry/fleet/diff"
)

// nameIndexAllocs holds all allocations of one name.
type nameIndexAllocs struct {
	index         int
	name          string
	members       []*member // by creation, without duplicates once the current one is chosen
	current       *member   // the allocation that counts; nil: none
	duplicates    []*member // could be the current allocation, and are to stop
	currentReason string    // why current was chosen; "": there was no choice
	// maybeStillRunning is a lost allocation, or an unknown one that was told to stop, that is not replaced
	// yet and that its edge may still run; nil: none.
	maybeStillRunning *member
	surplusReason     string // why the group does not need the name index; "": it does
}

// allocsByNameIndex classifies the allocations of a group and groups them by name, ordered by index and
// name.
func (d *decision) allocsByNameIndex(allocs []*fleet.Alloc) []*nameIndexAllocs {
	byName := make(map[string]*nameIndexAllocs, len(allocs))
	nameIndexes := make([]*nameIndexAllocs, 0, len(allocs))
	for _, a := range allocs {
		s := byName[a.Name]
		if s == nil {
			s = &nameIndexAllocs{name: a.Name, index: math.MaxInt}
			if i, ok := a.NameIndex(); ok {
				s.index = i
			}
			byName[a.Name] = s
			nameIndexes = append(nameIndexes, s)
		}
		s.members = append(s.members, d.classifyAlloc(a))
	}
	slices.SortFunc(nameIndexes, func(a, b *nameIndexAllocs) int {
		return cmp.Or(cmp.Compare(a.index, b.index), cmp.Compare(a.name, b.name))
	})
	for _, s := range nameIndexes {
		slices.SortFunc(s.members, byCreation)
	}
	return nameIndexes
}

// byCreation compares two allocations by their creation.
func byCreation(a, b *member) int {
	return cmp.Or(cmp.Compare(a.a.CreateIndex, b.a.CreateIndex),
		cmp.Compare(a.a.CreateTime, b.a.CreateTime), cmp.Compare(a.a.ID, b.a.ID))
}

// newestMatching returns the newest member for which ok returns true, or nil.
func (s *nameIndexAllocs) newestMatching(ok func(*member) bool) *member {
	for i := len(s.members) - 1; i >= 0; i-- {
		if ok(s.members[i]) {
			return s.members[i]
		}
	}
	return nil
}

// lastUnreplaced returns the member whose desired state changed last, among those that were not replaced;
// nil: there is none. A replacement that stopped before the member it replaced did does not count.
func (d *decision) lastUnreplaced(s *nameIndexAllocs) (last *member) {
	for _, m := range s.members {
		next := d.byID[m.a.NextAllocation]
		replaced := m.a.NextAllocation != "" && (next == nil || next.AllocModifyIndex >= m.a.AllocModifyIndex)
		if !replaced && (last == nil || m.a.AllocModifyIndex >= last.a.AllocModifyIndex) {
			last = m
		}
	}
	return last
}

// hasMemberOfKind reports whether one of the members has a kind.
func (s *nameIndexAllocs) hasMemberOfKind(k allocKind) bool {
	return s.newestMatching(func(m *member) bool { return m.kind == k }) != nil
}

// isActiveIndex reports whether the name index counts as one of the group's: it is not surplus, and has an
// allocation that has not ended, or may still run.
func (s *nameIndexAllocs) isActiveIndex() bool {
	return s.surplusReason == "" &&
		(s.maybeStillRunning != nil || s.newestMatching(func(m *member) bool { return m.kind != kindEnded }) != nil)
}

// currentOrUnknown returns the member that shows the progress of the name index: the current one, else the
// newest that is unknown, disconnecting or replaying, or nil.
func (s *nameIndexAllocs) currentOrUnknown() *member {
	if s.current != nil {
		return s.current
	}
	return s.newestMatching(func(m *member) bool {
		return m.kind == kindUnknown || m.kind == kindDisconnecting || m.kind == kindReplaying
	})
}

// hasRunningOrSucceeded reports whether a member may be running, or has succeeded.
func (s *nameIndexAllocs) hasRunningOrSucceeded() bool {
	return s.newestMatching(func(m *member) bool { return m.isPossiblyRunning() || m.kind == kindSucceeded }) != nil
}

// findCurrentAlloc sets current, duplicates and maybeStillRunning, and removes the duplicates from
// members.
func (d *decision) findCurrentAlloc(s *nameIndexAllocs) {
	var candidates []*member
	for _, m := range s.members {
		if m.canBeCurrent() {
			candidates = append(candidates, m)
		}
	}
	s.current, s.currentReason = d.chooseCurrent(candidates)
	for _, m := range candidates {
		m.isDuplicate = m != s.current
	}
	loses := func(m *member) bool { return m.isDuplicate }
	s.duplicates = slices.DeleteFunc(candidates, func(m *member) bool { return !m.isDuplicate })
	s.members = slices.DeleteFunc(s.members, loses)
	last := s.newestMatching(func(*member) bool { return true })
	if last != nil && last.kind == kindEnded && last.rules.Hold > 0 && last.a.NextAllocation == "" &&
		(isLostOrUnknown(last) || d.isStopUnconfirmed(last)) {
		s.maybeStillRunning = last
	}
}

// isLostOrUnknown reports whether the client status of an allocation is lost or unknown.
func isLostOrUnknown(m *member) bool {
	return m.a.ClientStatus == fleet.ClientLost || m.a.ClientStatus == fleet.ClientUnknown
}

// reconcileNameIndex decides for all allocations of a name index.
func (d *decision) reconcileNameIndex(s *nameIndexAllocs, g *fleet.TaskGroup, r *rollout) {
	for _, m := range s.duplicates {
		if m != d.promotedCanary(s) {
			d.stopDuplicate(m, s, r)
		}
	}
	for _, m := range s.members {
		if s.surplusReason != "" {
			d.endWithoutReplacement(m, s.surplusReason)
			continue
		}
		switch m.kind {
		case kindEnded:
			d.leaveEnded(m)
		case kindReplaying:
			d.keepReplaying(m)
		case kindUnknown:
			d.keepUnknown(m)
		case kindDisconnecting:
			d.markAllocUnknown(m)
		case kindLost:
			d.markAllocLost(m)
		case kindMigrating:
			d.stopAllocation(m, Change{Reason: "an operator wants it stopped and replaced"})
		}
	}
	switch {
	case !s.isActiveIndex():
	case s.current != nil:
		d.reconcileCurrent(s, g, r)
	case s.hasMemberOfKind(kindReplaying):
	case s.hasMemberOfKind(kindUnknown), s.hasMemberOfKind(kindDisconnecting):
		d.replaceUnknown(s, g, r)
	default:
		d.replaceLostOrStopped(s, g, r)
	}
	if m := d.promotedCanary(s); m != nil {
		d.stopDuplicate(m, s, r)
	}
}

// promotedCanary returns the duplicate of the newest version that will replace the current allocation,
// which is older and runs; nil: there is none. It does not run yet: if the current one has no update turn
// now, it is stopped.
func (d *decision) promotedCanary(s *nameIndexAllocs) *member {
	for _, m := range s.duplicates {
		if m.newerNotRunning && m.kind == kindRunning && d.needsDestructiveUpdate(s.current.a) {
			return m
		}
	}
	return nil
}

// stopDuplicate stops a duplicate. If it is the older version that a promoted canary replaces, it stops
// only in an update window of its node, and is kept beside the canary until then.
func (d *decision) stopDuplicate(m *member, s *nameIndexAllocs, r *rollout) {
	if m.reconnecting || s.surplusReason != "" || s.current == nil || s.current.reconnecting || !d.needsDestructiveUpdate(m.a) || d.needsDestructiveUpdate(s.current.a) {
		d.stopOrRetireReplaced(m, Change{Reason: m.reason})
		return
	}
	if why := r.outsideWindowReason(m); why != "" {
		d.keepUnchanged(m, fmt.Sprintf("stays beside %s: %s", fleet.Short(s.current.a.ID), why))
		return
	}
	d.stopOrRetireReplaced(m, Change{Windows: updateWindows(r.g), Reason: m.reason})
}

// replaceUnknown places a replacement for an unknown allocation if its rules want one and its reschedule
// policy allows another attempt. The policy's delay does not apply: nothing has failed.
func (d *decision) replaceUnknown(s *nameIndexAllocs, g *fleet.TaskGroup, r *rollout) {
	m := s.newestMatching(func(m *member) bool { return m.kind == kindUnknown || m.kind == kindDisconnecting })
	if !m.rules.Replace {
		return
	}
	since := d.in.Now
	if m.kind == kindUnknown {
		since = m.awaySince()
	}
	next := nextAttempt(m.a, g.ReschedulePolicy, since)
	if !next.allowed {
		list, i := d.locateChange(m)
		(*list)[i].Reason += "; but " + next.why
		return
	}
	d.addPlacement(Placement{
		Name: s.name, Group: g.Name, Previous: m.a, AvoidNode: m.a.NodeID, Job: r.replacementVersion(m),
		Tracker: nextTracker(m.a, g.ReschedulePolicy, lastDelay(m.a.RescheduleTracker), d.in.Now),
		Reason:  fmt.Sprintf("stands in for %s, which is out of sight on node %s", fleet.Short(m.a.ID), d.nodeName(m.a)),
	})
}

// replaceLostOrStopped places the replacement of a lost or migrating allocation. If the edge may still run
// it, an evaluation is requested for the time when it has surely stopped.
func (d *decision) replaceLostOrStopped(s *nameIndexAllocs, g *fleet.TaskGroup, r *rollout) {
	m := s.maybeStillRunning
	if m == nil {
		m = s.newestMatching(func(m *member) bool { return m.kind == kindLost || m.kind == kindMigrating })
	}
	p := Placement{
		Name: s.name, Group: g.Name, Previous: m.a, Job: r.replacementVersion(m), Reason: fmt.Sprintf("replaces %s", fleet.Short(m.a.ID)),
	}
	if m.kind == kindMigrating {
		d.addPlacement(p)
		return
	}
	p.AvoidNode = m.a.NodeID
	since := d.in.Now
	if isLostOrUnknown(m) {
		since = m.awaySince()
	}
	if until := since.Add(m.rules.Hold); until.After(d.in.Now) {
		list, i := d.locateChange(m)
		d.evalRequests = append(d.evalRequests, evalRequest{
			at: until, trigger: fleet.TriggerDisconnectTimeout, list: list, i: i,
			why: fmt.Sprintf("replace %s when its edge has surely stopped it", fleet.Short(m.a.ID)),
		})
		return
	}
	d.addPlacement(p)
}

// reconcileCurrent decides for the current allocation of a name index: it is kept unless it has ended, or
// the newest version changes it.
func (d *decision) reconcileCurrent(s *nameIndexAllocs, g *fleet.TaskGroup, r *rollout) {
	m := s.current
	if m.kind == kindSucceeded && !d.needsDestructiveUpdate(m.a) {
		d.keepOrReconnect(m, "it has completed")
		return
	}
	if next := d.absentPromotedCanary(s); next != nil {
		d.keepOrReconnect(m, fmt.Sprintf("stays until %s is back, which takes its place", fleet.Short(next.a.ID)))
		return
	}
	change := d.groupChangeFor(m.a)
	unsuited := ""
	if change == diff.GroupInPlace && m.kind == kindRunning && !m.held {
		unsuited = d.leaveReason(d.in.Nodes[m.a.NodeID], g)
	}
	stale := d.needsDestructiveUpdate(m.a) || unsuited != ""
	if stale {
		if ok, why := r.takeUpdateTurn(m); !ok {
			d.keepOlderVersion(m, s, r, why)
			return
		}
	}
	switch next := d.promotedCanary(s); {
	case next != nil:
		m.reason = fmt.Sprintf("the other, %s, has the newest version of the job", fleet.Short(next.a.ID))
		s.current, s.duplicates = next, slices.DeleteFunc(s.duplicates, func(l *member) bool { return l == next })
		d.stopDuplicate(m, s, r)
		d.reconcileCurrent(s, g, r)
	case d.needsDestructiveUpdate(m.a):
		d.updateDestructively(m, s, g, fmt.Sprintf("version %d of the job changes its tasks", d.in.Job.Version))
	case unsuited != "":
		d.updateDestructively(m, s, g, fmt.Sprintf("node %s does not suit version %d of the job: %s", d.nodeName(m.a), d.in.Job.Version, unsuited))
	case m.kind == kindFailed && r.needsAnotherAttempt(m):
		why := fmt.Sprintf("it failed, and version %d of the job is another attempt", d.in.Job.Version)
		d.stopAllocation(m, Change{WithPlacement: !m.reconnecting, Reason: why})
		d.addPlacement(Placement{
			Name: s.name, Group: g.Name, Previous: m.a, AvoidNode: m.a.NodeID, Reason: fmt.Sprintf("replaces %s: %s", fleet.Short(m.a.ID), why),
		})
	case m.kind == kindFailed:
		d.rescheduleFailed(m, s, g, nil)
	case m.kind == kindCompleted:
		d.stopOrRetireReplaced(m, Change{WithPlacement: !m.reconnecting, Reason: "it has ended, and is replaced"})
		d.addPlacement(Placement{
			Name: s.name, Group: g.Name, Previous: m.a, Reason: fmt.Sprintf("replaces %s, which has ended", fleet.Short(m.a.ID)),
		})
	case m.reconnecting && s.hasMemberOfKind(kindReplaying):
		d.keepUnchanged(m, "what stands in for it is on a node whose history is still coming in")
	case m.reconnecting:
		why := s.currentReason
		if why == "" {
			why = "it was not replaced"
		}
		d.reconnectAlloc(m, Change{Update: r.needsInPlaceUpdate(m, change), Reason: fmt.Sprintf("node %s is back: %s", d.nodeName(m.a), why)})
	case r.needsInPlaceUpdate(m, change):
		d.updateInPlace(m, change)
	default:
		d.keepUnchanged(m, m.keptReason())
	}
}

// absentPromotedCanary returns the promoted canary that will replace the current, older allocation as soon
// as the canary's node is back; nil: there is none.
func (d *decision) absentPromotedCanary(s *nameIndexAllocs) *member {
	if s.current == nil || s.current.kind != kindRunning || !d.needsDestructiveUpdate(s.current.a) {
		return nil
	}
	return s.newestMatching(func(m *member) bool {
		return (m.kind == kindUnknown || m.kind == kindDisconnecting || m.kind == kindReplaying) && !d.needsDestructiveUpdate(m.a)
	})
}

// keepOlderVersion keeps the older version of an allocation for now. If the allocation has ended, it
// places the older version again. why is what the update waits for.
func (d *decision) keepOlderVersion(m *member, s *nameIndexAllocs, r *rollout, why string) {
	switch g := m.a.Group(); {
	case g == nil:
		d.keepOrReconnect(m, "it is of an older version: "+why)
	case m.kind == kindFailed:
		d.rescheduleFailed(m, s, g, r.replacementVersion(m))
	case m.kind == kindCompleted:
		d.stopOrRetireReplaced(m, Change{WithPlacement: !m.reconnecting, Reason: "it has ended, and is replaced"})
		d.addPlacement(Placement{
			Name: s.name, Group: g.Name, Previous: m.a, Job: r.replacementVersion(m),
			Reason: fmt.Sprintf("replaces %s, which has ended", fleet.Short(m.a.ID)),
		})
	default:
		d.keepOrReconnect(m, fmt.Sprintf("waits for its turn to become version %d: %s", d.in.Job.Version, why))
	}
}

// updateDestructively stops the current allocation and places the newest version as its replacement.
func (d *decision) updateDestructively(m *member, s *nameIndexAllocs, g *fleet.TaskGroup, why string) {
	d.stopOrRetireReplaced(m, Change{Destructive: true, WithPlacement: !m.reconnecting, Windows: updateWindows(g), Reason: why})
	d.addPlacement(Placement{
		Name: s.name, Group: g.Name, Previous: m.a, Reason: fmt.Sprintf("replaces %s: %s", fleet.Short(m.a.ID), why),
	})
}

// rescheduleFailed replaces a failed allocation now, requests an evaluation for later, or leaves it
// failed, according to its reschedule policy. version is the job version to place; nil: the newest.
func (d *decision) rescheduleFailed(m *member, s *nameIndexAllocs, g *fleet.TaskGroup, version *fleet.Job) {
	next := nextAttempt(m.a, g.ReschedulePolicy, time.Unix(0, m.a.ModifyTime))
	if waits, ok := d.in.Waiting[m.a.FollowupEvalID]; ok && !m.reconnecting && waits.Before(next.at) {
		next.at = waits // recording the wait changed ModifyTime, which next.at is computed from
	}
	asked := m.a.DesiredTransition.Reschedule
	if dep := d.deployment; dep != nil && m.a.DeploymentID == dep.ID && !m.a.AwaitsPlacement() {
		// hub/rollout decides first: it flags the allocation for rescheduling, or fails the deployment.
		if !asked || !dep.Active() {
			d.keepOrReconnect(m, "it failed, and its deployment decides what comes of that")
			return
		}
		asked = false
	}
	if asked && !next.allowed {
		next = attempt{allowed: true, at: d.in.Now}
	}
	now := asked || m.a.AwaitsPlacement() || (m.a.FollowupEvalID != "" && m.a.FollowupEvalID == d.in.EvalID) ||
		!next.at.After(d.in.Now.Add(rescheduleWindow))
	switch {
	case !next.allowed:
		d.keepOrReconnect(m, "it failed, and "+next.why)
	case !now:
		list, i := d.keepOrReconnect(m, fmt.Sprintf("it failed, and is replaced %s after that", next.delay))
		d.evalRequests = append(d.evalRequests, evalRequest{
			at: next.at, trigger: fleet.TriggerRetryFailedAlloc, list: list, i: i,
			why: "replace what failed, after the delay of the reschedule policy",
		})
	default:
		d.stopAllocation(m, Change{WithPlacement: !m.reconnecting, Reschedules: true, Reason: "it failed, and is replaced"})
		d.addPlacement(Placement{
			Name: s.name, Group: g.Name, Previous: m.a, AvoidNode: m.a.NodeID, Job: version,
			Tracker: nextTracker(m.a, g.ReschedulePolicy, next.delay, d.in.Now),
			Reason:  fmt.Sprintf("replaces %s, which failed on node %s", fleet.Short(m.a.ID), d.nodeName(m.a)),
		})
	}
}
