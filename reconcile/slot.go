package reconcile

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"skerry/fleet"
	"skerry/planted"
)

// slot is all allocations of one name.
type slot struct {
	index   int
	name    string
	members []*member // by creation
	holder  *member   // the one that counts, nil: none
	losers  []*member // could have been the holder, and are to stop
	why     string    // why it, of several
	// held is a lost allocation whose edge may still be running it, and that
	// nothing has replaced yet.
	held    *member
	surplus string // why the group does not want the slot, ""
}

// slots sorts the allocations of a group into slots, by index and name.
func (d *decision) slots(allocs []*fleet.Alloc) []*slot {
	byName := map[string]*slot{}
	var slots []*slot
	for _, a := range allocs {
		s := byName[a.Name]
		if s == nil {
			s = &slot{name: a.Name, index: math.MaxInt}
			if i, ok := a.NameIndex(); ok {
				s.index = i
			}
			byName[a.Name] = s
			slots = append(slots, s)
		}
		s.members = append(s.members, d.classify(a))
	}
	slices.SortFunc(slots, func(a, b *slot) int {
		return cmp.Or(cmp.Compare(a.index, b.index), cmp.Compare(a.name, b.name))
	})
	for _, s := range slots {
		slices.SortFunc(s.members, byCreation)
	}
	return slots
}

func byCreation(a, b *member) int {
	return cmp.Or(cmp.Compare(a.a.CreateIndex, b.a.CreateIndex),
		cmp.Compare(a.a.CreateTime, b.a.CreateTime), cmp.Compare(a.a.ID, b.a.ID))
}

// newest returns the newest member for which ok holds, or nil.
func (s *slot) newest(ok func(*member) bool) *member {
	for i := len(s.members) - 1; i >= 0; i-- {
		if ok(s.members[i]) {
			return s.members[i]
		}
	}
	return nil
}

// last is what the slot had last, in a slot that has nothing: of the members that nothing
// took the place of the one that was decided on last, or nil. What stood in for one may
// have been placed later and stopped before: then it took nobody's place.
func (d *decision) last(s *slot) (last *member) {
	for _, m := range s.members {
		next := d.byID[m.a.NextAllocation]
		replaced := m.a.NextAllocation != "" && (next == nil || next.AllocModifyIndex >= m.a.AllocModifyIndex)
		if !replaced && (last == nil || m.a.AllocModifyIndex >= last.a.AllocModifyIndex) {
			last = m
		}
	}
	return last
}

func (s *slot) has(k kind) bool {
	return s.newest(func(m *member) bool { return m.kind == k }) != nil
}

// active: the slot is one of those that the group has.
func (s *slot) active() bool {
	return s.surplus == "" &&
		(s.held != nil || s.newest(func(m *member) bool { return m.kind != ended }) != nil)
}

// counted is the member that tells how far the slot is: its holder, or what is out
// of sight.
func (s *slot) counted() *member {
	if s.holder != nil {
		return s.holder
	}
	return s.newest(func(m *member) bool { return m.kind == away || m.kind == leaving || m.kind == frozen })
}

// lives: something of the slot runs, or has succeeded.
func (s *slot) lives() bool {
	return s.newest(func(m *member) bool { return m.alive() || m.kind == done }) != nil
}

// resolve finds the slot's holder, and the others that could be it.
func (d *decision) resolve(s *slot) {
	var candidates []*member
	for _, m := range s.members {
		if m.counts() {
			candidates = append(candidates, m)
		}
	}
	s.holder, s.why = d.settle(candidates)
	for _, m := range candidates {
		m.loses = m != s.holder
	}
	loses := func(m *member) bool { return m.loses }
	s.losers = slices.DeleteFunc(candidates, func(m *member) bool { return !m.loses })
	s.members = slices.DeleteFunc(s.members, loses)
	last := s.newest(func(*member) bool { return true })
	if last != nil && last.kind == ended && last.rules.Hold > 0 && last.a.NextAllocation == "" &&
		(last.a.ClientStatus == fleet.ClientLost || d.unconfirmed(last)) {
		s.held = last
	}
}

// act decides for everything in a slot.
func (d *decision) act(s *slot, g *fleet.TaskGroup, r *rollout) {
	for _, m := range s.losers {
		if m != d.heir(s) {
			d.lose(m, s, r)
		}
	}
	for _, m := range s.members {
		if s.surplus != "" {
			d.drop(m, s.surplus)
			continue
		}
		switch m.kind {
		case ended:
			d.leaveEnded(m)
		case frozen:
			d.leaveFrozen(m)
		case away:
			d.stayAway(m)
		case leaving:
			d.leave(m)
		case lost:
			d.giveUp(m)
		case migrating:
			d.stop(m, Change{Reason: "an operator wants it stopped and replaced"})
		}
	}
	switch {
	case !s.active():
	case s.holder != nil && !(s.has(away) && planted.On(planted.ReplaceTwice)):
		d.hold(s, g, r)
	case s.has(frozen):
	case s.has(away), s.has(leaving):
		d.standIn(s, g, r)
	default:
		d.refill(s, g, r)
	}
	if m := d.heir(s); m != nil {
		d.lose(m, s, r)
	}
}

// heir is what is there already to take the place of a slot's holder, which is of an
// older version and runs, when its turn comes. Where that is not now, it stops: it does
// not run yet. nil: nothing.
func (d *decision) heir(s *slot) *member {
	for _, m := range s.losers {
		if m.early && m.kind == present && d.outdated(s.holder.a) {
			return m
		}
	}
	return nil
}

// lose stops what could have been the slot's holder. What a promoted canary stands for
// is replaced by it, which is for the windows of its node.
func (d *decision) lose(m *member, s *slot, r *rollout) {
	if m.due || s.surplus != "" || s.holder == nil || s.holder.due || !d.outdated(m.a) || d.outdated(s.holder.a) {
		d.replace(m, Change{Reason: m.reason})
		return
	}
	if why := r.shut(m); why != "" {
		d.keep(m, fmt.Sprintf("stays beside %s: %s", fleet.Short(s.holder.a.ID), why))
		return
	}
	d.replace(m, Change{Windows: windows(r.g), Reason: m.reason})
}

// standIn places a replacement for an allocation that is out of sight, where its
// rules want one: at once, if the reschedule policy allows another attempt. The policy's
// delay is for what fails: an edge that is away has crashed nothing.
func (d *decision) standIn(s *slot, g *fleet.TaskGroup, r *rollout) {
	m := s.newest(func(m *member) bool { return m.kind == away || m.kind == leaving })
	if !m.rules.Replace {
		return
	}
	since := d.in.Now
	if m.kind == away {
		since = awaySince(m.a)
	}
	next := nextAttempt(m.a, g.ReschedulePolicy, since)
	if !next.allowed {
		list, i := d.entry(m)
		(*list)[i].Reason += "; but " + next.why
		return
	}
	d.place(Placement{
		Name: s.name, Group: g.Name, Previous: m.a, AvoidNode: m.a.NodeID, Job: r.version(m),
		Tracker: nextTracker(m.a, g.ReschedulePolicy, lastDelay(m.a.RescheduleTracker), d.in.Now),
		Reason:  fmt.Sprintf("stands in for %s, which is out of sight on node %s", fleet.Short(m.a.ID), d.nodeName(m.a)),
	})
}

// refill places what takes the place of a lost or stopped allocation.
func (d *decision) refill(s *slot, g *fleet.TaskGroup, r *rollout) {
	m := s.held
	if m == nil {
		m = s.newest(func(m *member) bool { return m.kind == lost || m.kind == migrating })
	}
	p := Placement{
		Name: s.name, Group: g.Name, Previous: m.a, Job: r.version(m), Reason: fmt.Sprintf("replaces %s", fleet.Short(m.a.ID)),
	}
	if m.kind == migrating {
		d.place(p)
		return
	}
	p.AvoidNode = m.a.NodeID
	since := d.in.Now
	if m.a.ClientStatus == fleet.ClientLost || m.a.ClientStatus == fleet.ClientUnknown {
		since = awaySince(m.a)
	}
	if until := since.Add(m.rules.Hold); until.After(d.in.Now) {
		list, i := d.entry(m)
		d.wishes = append(d.wishes, wish{
			at: until, trigger: fleet.TriggerDisconnectTimeout, list: list, i: i,
			why: fmt.Sprintf("replace %s when its edge has surely stopped it", fleet.Short(m.a.ID)),
		})
		return
	}
	d.place(p)
}

// hold decides for the holder of a slot: it is where it should be, unless it
// failed, has ended, or is not what the job now says.
func (d *decision) hold(s *slot, g *fleet.TaskGroup, r *rollout) {
	m := s.holder
	if m.kind == done && !d.outdated(m.a) {
		d.remain(m, "it has completed")
		return
	}
	if next := d.successor(s); next != nil {
		d.remain(m, fmt.Sprintf("stays until %s is back, which takes its place", fleet.Short(next.a.ID)))
		return
	}
	change := d.change(m.a)
	unsuited := ""
	if change == fleet.GroupInPlace && m.kind == present && d.in.Suits != nil {
		unsuited = d.in.Suits(d.in.Nodes[m.a.NodeID], g.Name)
	}
	stale := d.outdated(m.a) || unsuited != ""
	if stale {
		if ok, why := r.take(m); !ok {
			d.stays(m, s, r, why)
			return
		}
	}
	switch next := d.heir(s); {
	case next != nil:
		m.reason = fmt.Sprintf("the other, %s, has the newest version of the job", fleet.Short(next.a.ID))
		s.holder, s.losers = next, slices.DeleteFunc(s.losers, func(l *member) bool { return l == next })
		d.lose(m, s, r)
		d.hold(s, g, r)
	case d.outdated(m.a):
		d.anew(m, s, g, fmt.Sprintf("version %d of the job changes its tasks", d.in.Job.Version))
	case unsuited != "":
		d.anew(m, s, g, fmt.Sprintf("node %s does not suit version %d of the job: %s", d.nodeName(m.a), d.in.Job.Version, unsuited))
	case m.kind == failed && r.triesAnew(m):
		why := fmt.Sprintf("it failed, and version %d of the job is another attempt", d.in.Job.Version)
		d.stop(m, Change{WithPlacement: !m.due, Reason: why})
		d.place(Placement{
			Name: s.name, Group: g.Name, Previous: m.a, AvoidNode: m.a.NodeID, Reason: fmt.Sprintf("replaces %s: %s", fleet.Short(m.a.ID), why),
		})
	case m.kind == failed:
		d.reschedule(m, s, g, nil)
	case m.kind == spent:
		d.replace(m, Change{WithPlacement: !m.due, Reason: "it has ended, and is replaced"})
		d.place(Placement{
			Name: s.name, Group: g.Name, Previous: m.a, Reason: fmt.Sprintf("replaces %s, which has ended", fleet.Short(m.a.ID)),
		})
	case m.due && s.has(frozen):
		d.keep(m, "what stands in for it is on a node whose history is still coming in")
	case m.due:
		why := s.why
		if why == "" {
			why = "it was not replaced"
		}
		d.reconnect(m, Change{Update: r.updates(m, change), Reason: fmt.Sprintf("node %s is back: %s", d.nodeName(m.a), why)})
	case r.updates(m, change):
		d.inPlace(m, change)
	default:
		d.keep(m, "it is as it should be")
	}
}

// successor is what takes the place of a slot's holder, of an older version, as soon as
// it is in sight again: a canary that was promoted while its edge was away. nil: nothing.
func (d *decision) successor(s *slot) *member {
	if s.holder == nil || s.holder.kind != present || !d.outdated(s.holder.a) {
		return nil
	}
	return s.newest(func(m *member) bool {
		return (m.kind == away || m.kind == leaving || m.kind == frozen) && !d.outdated(m.a)
	})
}

// stays leaves a holder at its older version for now, and keeps that alive.
func (d *decision) stays(m *member, s *slot, r *rollout, why string) {
	switch g := m.a.Group(); {
	case g == nil:
		d.remain(m, "it is of an older version: "+why)
	case m.kind == failed:
		d.reschedule(m, s, g, r.version(m))
	case m.kind == spent:
		d.replace(m, Change{WithPlacement: !m.due, Reason: "it has ended, and is replaced"})
		d.place(Placement{
			Name: s.name, Group: g.Name, Previous: m.a, Job: r.version(m),
			Reason: fmt.Sprintf("replaces %s, which has ended", fleet.Short(m.a.ID)),
		})
	default:
		d.remain(m, fmt.Sprintf("waits for its turn to become version %d: %s", d.in.Job.Version, why))
	}
}

// anew stops a holder and places the newest version in its stead.
func (d *decision) anew(m *member, s *slot, g *fleet.TaskGroup, why string) {
	d.replace(m, Change{Anew: true, WithPlacement: !m.due, Windows: windows(g), Reason: why})
	d.place(Placement{
		Name: s.name, Group: g.Name, Previous: m.a, Reason: fmt.Sprintf("replaces %s: %s", fleet.Short(m.a.ID), why),
	})
}

// reschedule replaces a failed holder, now, later or never.
func (d *decision) reschedule(m *member, s *slot, g *fleet.TaskGroup, version *fleet.Job) {
	next := nextAttempt(m.a, g.ReschedulePolicy, time.Unix(0, m.a.ModifyTime))
	if waits, ok := d.in.Waiting[m.a.FollowupEvalID]; ok && !m.due && waits.Before(next.at) {
		next.at = waits // that it began to wait has changed its time
	}
	asked := m.a.DesiredTransition.Reschedule
	if dep := d.deployment; dep != nil && m.a.DeploymentID == dep.ID && !m.a.AwaitsPlacement() {
		// The rollout decides first: it asks for another attempt, or fails.
		if !asked || !dep.Active() {
			d.remain(m, "it failed, and its deployment decides what comes of that")
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
		d.remain(m, "it failed, and "+next.why)
	case !now:
		list, i := d.remain(m, fmt.Sprintf("it failed, and is replaced %s after that", next.delay))
		d.wishes = append(d.wishes, wish{
			at: next.at, trigger: fleet.TriggerRetryFailedAlloc, list: list, i: i,
			why: "replace what failed, after the delay of the reschedule policy",
		})
	default:
		d.stop(m, Change{WithPlacement: !m.due, Reschedules: true, Reason: "it failed, and is replaced"})
		d.place(Placement{
			Name: s.name, Group: g.Name, Previous: m.a, AvoidNode: m.a.NodeID, Job: version,
			Tracker: nextTracker(m.a, g.ReschedulePolicy, next.delay, d.in.Now),
			Reason:  fmt.Sprintf("replaces %s, which failed on node %s", fleet.Short(m.a.ID), d.nodeName(m.a)),
		})
	}
}
