package check

import (
	"time"

	"skerry/fleet"
)

// siteName is an allocation name on one edge. A stop on site holds all allocations of that name.
type siteName struct{ edge, name string }

// siteHold is a stop on site that holds.
type siteHold struct {
	alloc   fleet.AllocID // the allocation that was stopped
	job     fleet.JobID
	version uint64 // of the job, of that allocation
	since   time.Duration
}

// recordSiteRequest keeps the holds from the people's requests: from the recorded stop until a start is requested.
func (s *runContext) recordSiteRequest(r *Request) {
	key := siteName{r.Edge, r.Name}
	switch r.What {
	case StopRecorded:
		s.holds[key] = &siteHold{alloc: r.Alloc, job: r.Job, version: r.Version, since: s.now}
	case AskStart:
		delete(s.holds, key)
	}
}

// holdOf returns the hold of an allocation on an edge, or nil.
func (s *runContext) holdOf(edge string, f *allocFact) *siteHold {
	if f == nil {
		return nil
	}
	return s.holds[siteName{edge, f.alloc.Name}]
}

// isOverruledBy reports whether an allocation's job ends the hold: it has a newer version, which overrules the stop.
func (h *siteHold) isOverruledBy(f *allocFact) bool {
	return f.alloc.JobVersion > h.version && f.group != nil && f.group.LocalControl != nil &&
		f.group.LocalControl.Until == fleet.HoldUntilNextVersion
}

// holds checks stops on site: no task of a held name runs until a start on site, or until a newer version overrules
// the stop. The hubs learn of a stop once and replace nothing. A started allocation runs again.
type holds struct {
	reported map[fleet.AllocID]bool       // allocations whose stop on site a hub applied, without a start since
	started  map[siteName]time.Duration   // when the start of a name was requested, until one of its tasks runs
	booted   map[siteName]time.Duration   // holds whose edge's agent started since, without a link
	told     map[siteName]map[string]bool // reported violations of each hold
}

// newHolds returns the checker of stops on site.
func newHolds() checker {
	t := &holds{
		reported: map[fleet.AllocID]bool{}, started: map[siteName]time.Duration{}, booted: map[siteName]time.Duration{},
		told: map[siteName]map[string]bool{},
	}
	return checker{
		state: t, request: t.recordSiteStart, agent: t.recordBootUnderHold, task: t.judgeStartUnderHold, entry: t.judgeHoldEntry, hub: t.judgeShownHolds,
		rewind: func(*runContext) { clear(t.reported) }, tick: t.judgeHolds,
	}
}

// recordSiteStart expects an allocation to run after its start on site.
func (t *holds) recordSiteStart(s *runContext, r *Request) {
	key := siteName{r.Edge, r.Name}
	switch r.What {
	case StopRecorded:
		delete(t.started, key)
		delete(t.booted, key)
		delete(t.told, key)
	case StartRecorded:
		t.started[key] = s.now
	}
}

// recordBootUnderHold counts a hold during which the agent starts again without a link.
func (t *holds) recordBootUnderHold(s *runContext, p *Process) {
	if p.What != ProcessStart || !s.faults.hasFaultNow(p.Name, Severs) {
		return
	}
	for key := range s.holds {
		if _, again := t.booted[key]; key.edge == p.Name && !again {
			t.booted[key] = s.now
		}
	}
}

// reportHoldOnce reports each kind of violation of a hold once.
func (t *holds) reportHoldOnce(s *runContext, key siteName, what, format string, args ...any) {
	if t.told[key] == nil {
		t.told[key] = map[string]bool{}
	}
	if !t.told[key][what] {
		t.told[key][what] = true
		s.reportViolation(HeldOnSite, key.edge, format, args...)
	}
}

// judgeStartUnderHold reports a task that starts although it is held on site.
func (t *holds) judgeStartUnderHold(s *runContext, o *Task) {
	f := s.registry.allocs[o.Alloc]
	if o.What != TaskStarted || f == nil {
		return
	}
	key := siteName{o.Edge, f.alloc.Name}
	delete(t.started, key)
	h := s.holds[key]
	if h == nil || s.now-h.since <= s.limits.Slack+startDelay(f, o.Task) { // a start may have been in progress
		return
	}
	s.countJudgement(HeldOnSite)
	if h.isOverruledBy(f) {
		delete(s.holds, key)
		s.countBranch(BranchHoldOverruled)
		return
	}
	t.reportHoldOnce(s, key, "start", "task %s starts, though %s was stopped on site at %s and not started since", TaskKey{o.Alloc, o.Task}, key.name, h.since)
}

// judgeHoldEntry follows which stops on site the hubs have applied. It reports a stop that they apply twice, and
// replacements of held allocations.
func (t *holds) judgeHoldEntry(s *runContext, a *Applied) {
	for _, k := range s.newRows {
		for i := range k.rows {
			t.judgeHoldRow(s, k.node, &k.rows[i])
		}
	}
	for i := range a.Effects.Allocs {
		placed := &a.Effects.Allocs[i]
		if f := s.registry.allocs[placed.ID]; f.first == s.now && t.reported[placed.PreviousAllocation] {
			t.judgeHeldReplacement(s, placed, f)
		}
	}
}

// judgeHoldRow processes a row of an allocation, and reports a stop on site that is reported twice.
func (t *holds) judgeHoldRow(s *runContext, node fleet.NodeID, row *fleet.Transition) {
	switch {
	case row.Hold != nil && row.Kind == fleet.TransitionOperator:
		s.countJudgement(HeldOnSite)
		m := s.machineOf(node)
		if t.reported[row.Alloc] && m != nil && !s.isClonedMachine(m.name) && !s.faults.hasEverHadFault(m.name, Damages) {
			s.reportViolation(HeldOnSite, m.name, "row %d says again that allocation %s is %s", row.Seq, fleet.Short(row.Alloc), row.Hold)
		}
		t.reported[row.Alloc] = true
	case row.Hold != nil:
		t.reported[row.Alloc] = true
	case row.Released, row.ClientStatus == fleet.ClientComplete, row.ClientStatus == fleet.ClientFailed:
		delete(t.reported, row.Alloc)
	}
}

// judgeHeldReplacement reports a placement that replaces a held allocation, unless hubs stopped or moved the
// allocation before, or the newest version overrules the stop.
func (t *holds) judgeHeldReplacement(s *runContext, placed *fleet.Alloc, f *allocFact) {
	old := s.registry.allocs[placed.PreviousAllocation]
	if old == nil || old.stale || old.alloc.DesiredTransition.Migrate || old.stopped > 0 && old.stopped < s.now || s.decided < s.now {
		return
	}
	edge := s.registry.edgeNameOf(old.alloc.NodeID)
	h := s.holdOf(edge, old)
	if h == nil || s.isClonedMachine(edge) || h.isOverruledBy(f) {
		return
	}
	s.countJudgement(HeldOnSite)
	t.reportHoldOnce(s, siteName{edge, old.alloc.Name}, "replacement", "allocation %s takes the place of %s (%s), which was stopped on site at %s",
		fleet.Short(placed.ID), fleet.Short(old.alloc.ID), old.alloc.Name, h.since)
}

// judgeShownHolds reports allocations that a hub shows as not held long after a stop on site, or as held long after a
// start.
func (t *holds) judgeShownHolds(s *runContext, hub *Hub) {
	for i := range hub.Allocs {
		a := &hub.Allocs[i]
		m, f := s.machineOf(a.NodeID), s.registry.allocs[a.ID]
		if a.Terminal() || m == nil || f == nil || m.connected < 0 || s.now-m.connected <= s.limits.Deliver || s.isClonedMachine(m.name) {
			continue
		}
		h := s.holdOf(m.name, f)
		if h == nil || h.isOverruledBy(f) {
			continue
		}
		s.countJudgement(HeldOnSite)
		if a.Held == nil && s.isOverdue(m.name, max(h.since, f.first), s.limits.Deliver) {
			t.reportHoldOnce(s, siteName{m.name, f.alloc.Name}, "shown", "%s shows allocation %s (%s) without the stop on site of %s", hub.Name, fleet.Short(a.ID), a.Name, h.since)
		}
	}
}

// judgeHolds judges each hold and each start on site once a second.
func (t *holds) judgeHolds(s *runContext) {
	for key, h := range s.holds {
		m := s.machines.ensureMachine(key.edge)
		f := s.registry.allocs[h.alloc]
		switch {
		case m.hasDamageSince(h.since) || s.isClonedMachine(key.edge): // the record of the stop may be lost
			delete(s.holds, key)
		case f != nil:
			t.judgeHeldTasks(s, m, key, h, f)
		}
	}
	for key, since := range t.started {
		t.judgeSiteStart(s, key, since)
	}
}

// judgeHeldTasks reports a task that runs long after the stop on site of its allocation. It counts a hold that
// outlived a start of its agent without a link.
func (t *holds) judgeHeldTasks(s *runContext, m *machine, key siteName, h *siteHold, f *allocFact) {
	for task, truth := range m.tasks {
		if task.Alloc != h.alloc || truth.live == 0 {
			continue
		}
		s.countJudgement(HeldOnSite)
		if s.isOverdue(m.name, h.since, f.killTimeout(task.Task)+s.limits.Runner+2*s.limits.Slack) {
			t.reportHoldOnce(s, key, "running", "task %s runs, though it was stopped on site at %s", task, h.since)
		}
	}
	if at, ok := t.booted[key]; ok && at > 0 && s.now-at > s.limits.Start+s.limits.Slack && m.agent >= 0 {
		t.booted[key] = 0 // it is counted only once
		s.countBranch(BranchHeldAcrossStart)
	}
}

// judgeSiteStart reports, once, an allocation of which no task has run since its start on site, although hubs want it.
func (t *holds) judgeSiteStart(s *runContext, key siteName, since time.Duration) {
	m := s.machines.ensureMachine(key.edge)
	if s.holds[key] != nil || m.hasDamageSince(since) || s.isClonedMachine(key.edge) {
		delete(t.started, key)
		return
	}
	if !s.overdueEverywhere(max(since, s.registry.changed), s.limits.Heal) {
		return
	}
	delete(t.started, key)
	s.countJudgement(HeldOnSite)
	for id, f := range s.registry.allocs {
		if f.alloc.Name != key.name || f.alloc.NodeID != m.node || f.stale || !f.isNonTerminal() || startError(f) {
			continue
		}
		t.reportHoldOnce(s, key, "stopped", "allocation %s (%s) does not run: it was started on site at %s", fleet.Short(id), key.name, since)
	}
}

// startError reports whether the simulated tasks of an allocation cannot start, by their configuration.
func startError(f *allocFact) bool {
	if f.group == nil {
		return false
	}
	for i := range f.group.Tasks {
		if f.group.Tasks[i].Config["start_error"] != nil {
			return true
		}
	}
	return false
}
