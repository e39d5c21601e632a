package check

import (
	"time"

	"skerry/fleet"
)

// identities checks that edges have identities that have not expired, for the running tasks that ask for them.
type identities struct {
	held map[string]*heldIdentities // by edge
	next time.Duration              // when they are judged again
}

// heldIdentities are the identities that an edge has.
type heldIdentities struct {
	ends map[TaskKey]time.Duration
	told map[TaskKey]bool // reported violations
	// renews has the offline identities of tasks that the edge has to renew without a link: it had them while it had one.
	renews map[TaskKey]bool
}

// newIdentities returns the checker of identities.
func newIdentities() checker {
	t := &identities{held: map[string]*heldIdentities{}}
	return checker{state: t, identity: t.recordHeld, tick: t.judgeHeldIdentities}
}

// recordHeld records the identities that an edge has.
func (t *identities) recordHeld(s *runContext, h *HeldIdentities) {
	f := ensure(t.held, h.Edge)
	if f.told == nil {
		f.told, f.renews = map[TaskKey]bool{}, map[TaskKey]bool{}
	}
	m := s.machines.ensureMachine(h.Edge)
	for key, end := range h.Ends {
		before := f.ends[key]
		if before > 0 && before < m.connected && end > s.now {
			s.countBranch(BranchIdentityExpired)
		}
		if before > 0 && end > before && m.connected < 0 && f.renews[key] {
			s.countBranch(BranchIdentityOffline)
		}
	}
	f.ends = h.Ends
}

// judgeHeldIdentities judges the identities of all edges with a session, once in judgeVariablesEvery.
func (t *identities) judgeHeldIdentities(s *runContext) {
	if s.now < t.next || len(t.held) == 0 {
		return
	}
	t.next = s.now + judgeVariablesEvery
	for _, id := range sorted(s.registry.allocs) {
		f := s.registry.allocs[id]
		m := s.machineOf(f.alloc.NodeID)
		if m == nil || f.group == nil || t.held[m.name] == nil {
			continue
		}
		for i := range f.group.Tasks {
			task := &f.group.Tasks[i]
			switch {
			case !hasExpiringIdentity(task):
			case s.connectedMachineOf(f) != nil:
				t.judgeTask(s, m, f, TaskKey{id, task.Name}, task.Identity.Offline)
			case task.Identity.Offline:
				t.judgeAway(s, m, TaskKey{id, task.Name})
			}
		}
	}
}

// hasExpiringIdentity reports whether a task gets the token of its default identity, which ends.
func hasExpiringIdentity(t *fleet.Task) bool {
	return t.Identity != nil && t.Identity.File && t.Identity.TTL > 0
}

// judgeAway reports a running task with an offline identity that has expired, while its edge has no session and nothing kept
// it from signing another one. The time is that of the hubs: it is not judged where a clock was ever wrong.
func (t *identities) judgeAway(s *runContext, m *machine, key TaskKey) {
	task, h := m.tasks[key], t.held[m.name]
	since := s.now - s.limits.Deliver
	if m.damaged || s.isClonedMachine(m.name) {
		delete(h.renews, key) // the keys may be lost
	}
	if task == nil || task.live == 0 || !h.renews[key] || m.connected >= 0 || m.agent < 0 || m.agent > since || m.looked < since ||
		s.faults.hasFaultSince(s.now, since, m.name, Halts, Reboots, Damages, Chokes) || s.faults.hasEverHadFault(m.name, MovesTime) || s.faults.hasHubFaultSince(s.now, 0, MovesTime) {
		return
	}
	s.countJudgement(IdentitiesRenewed)
	if end := h.ends[key]; end <= since && !h.told[key] {
		h.told[key] = true
		s.reportViolation(IdentitiesRenewed, m.name, "task %s runs with an offline identity that ended at %s, and its edge has had no session since %s", key, end, m.linked)
	}
}

// judgeTask reports a running task without an identity, or with one that has expired, long after its edge could get
// another one. An edge that has an offline identity then has to renew it later.
func (t *identities) judgeTask(s *runContext, m *machine, f *allocFact, key TaskKey, offline bool) {
	task, h := m.tasks[key], t.held[m.name]
	if task == nil || task.live == 0 {
		return
	}
	since := max(m.connected, f.first, task.begun)
	if !s.isOverdue(m.name, since, s.limits.Deliver) || m.looked < since+s.limits.Deliver {
		return
	}
	s.countJudgement(IdentitiesRenewed)
	end, there := h.ends[key]
	h.renews[key] = offline && end > s.now
	if end > s.now || there && !s.isOverdue(m.name, end, s.limits.Deliver) || m.looked < end+s.limits.Deliver || h.told[key] {
		return
	}
	h.told[key] = true
	s.reportViolation(IdentitiesRenewed, m.name, "task %s runs with an identity that ended at %s (0s: it has none), and its edge has a session since %s", key, end, m.connected)
}
