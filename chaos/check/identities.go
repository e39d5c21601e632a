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
		f.told = map[TaskKey]bool{}
	}
	m := s.machines.ensureMachine(h.Edge)
	for key, end := range h.Ends {
		if before := f.ends[key]; before > 0 && before < m.connected && end > s.now {
			s.countBranch(BranchIdentityExpired)
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
		m := s.connectedMachineOf(f)
		if m == nil || f.group == nil || t.held[m.name] == nil {
			continue
		}
		for i := range f.group.Tasks {
			if hasExpiringIdentity(&f.group.Tasks[i]) {
				t.judgeTask(s, m, f, TaskKey{id, f.group.Tasks[i].Name})
			}
		}
	}
}

// hasExpiringIdentity reports whether a task gets the token of its default identity, which ends.
func hasExpiringIdentity(t *fleet.Task) bool {
	return t.Identity != nil && t.Identity.File && t.Identity.TTL > 0
}

// judgeTask reports a running task without an identity, or with one that has expired, long after its edge could get
// another one.
func (t *identities) judgeTask(s *runContext, m *machine, f *allocFact, key TaskKey) {
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
	if end > s.now || there && !s.isOverdue(m.name, end, s.limits.Deliver) || m.looked < end+s.limits.Deliver || h.told[key] {
		return
	}
	h.told[key] = true
	s.reportViolation(IdentitiesRenewed, m.name, "task %s runs with an identity that ended at %s (0s: it has none), and its edge has a session since %s", key, end, m.connected)
}
