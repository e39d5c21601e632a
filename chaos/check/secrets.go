package check

import (
	"strings"
	"time"

	"skerry/fleet"
)

// variableFact is what is known of a variable from its acknowledged changes. Values are numbers that only grow.
type variableFact struct {
	value   int // of the newest acknowledged change
	deleted bool
	at      time.Duration // when that was acknowledged
	removed int           // of the newest acknowledged deletion
	// unsure says that a deletion may have taken effect since.
	unsure, deleting bool
}

// mayBeDeleted reports whether a deletion goes on, or may have taken effect since the newest acknowledged change.
func (f *variableFact) mayBeDeleted() bool { return f.unsure || f.deleting }

// heldFact are the variables that an edge has, by their values, and those that it had when it was last known to have a
// session.
type heldFact struct {
	values map[string]int
	kept   map[string]int
	// session is that of kept, and since when it was looked at last.
	session uint64
	since   time.Duration
	told    map[string]bool // reported violations
}

// lockFact is the newest acquisition of a variable's lock.
type lockFact struct {
	client string
	until  time.Duration // for which the holder has it for sure
}

// secrets checks variables: what users read of them, that edges have those that they need and no others, and that their
// values are nowhere in clear.
type secrets struct {
	paths map[string]*variableFact
	held  map[string]*heldFact // by edge
	locks map[string]*lockFact // by path
	next  time.Duration        // when the edges' variables are judged again
}

// judgeVariablesEvery is the interval at which the edges' variables are judged.
const judgeVariablesEvery = 5 * time.Second

// newSecrets returns the checker of variables.
func newSecrets() checker {
	t := &secrets{paths: map[string]*variableFact{}, held: map[string]*heldFact{}, locks: map[string]*lockFact{}}
	return checker{
		state: t, variable: t.judgeOperation, held: t.recordHeld, delivered: t.judgeDelivery, search: t.judgeSearch, tick: t.judgeHeldVariables,
		rewind: func(*runContext) { clear(t.paths); clear(t.locks) },
	}
}

// judgeOperation records what an operation of a user shows of a variable, and judges it.
func (t *secrets) judgeOperation(s *runContext, o *VariableOperation) {
	switch o.Does {
	case OpLock, OpRenew, OpUnlock:
		t.judgeLock(s, o)
		return
	}
	f := ensure(t.paths, o.Path)
	if o.Does == OpDelete {
		if f.deleting = o.Outcome == OutcomeBegun; f.deleting {
			return
		}
	}
	if o.Failed != "" {
		if s.faults.hasHubFaultSince(s.now, o.Call-s.limits.Heal, Severs, Halts) {
			return // a hub that has just come back asks another one for a state key that is newer than its own
		}
		s.countJudgement(NewestVariables)
		s.reportViolation(NewestVariables, o.Path, "%s cannot read it: %s", o.Client, o.Failed)
		return
	}
	before := f.value > 0 && f.at <= o.Call // the newest change was acknowledged before this operation began
	if before {
		s.countJudgement(NewestVariables)
	}
	switch {
	case o.Does == OpRead && o.Outcome == OutcomeOK:
		t.judgeValue(s, f, o, o.Value, before)
	case o.Does == OpRead && o.Outcome == OutcomeNotFound && before && !f.deleted && !f.mayBeDeleted():
		s.reportViolation(NewestVariables, o.Path, "%s finds none: change %d was acknowledged at %s", o.Client, f.value, f.at)
	case o.Outcome == OutcomeConflict && o.Found > 0:
		t.judgeValue(s, f, o, o.Found, before)
	case o.Does != OpRead && o.Outcome == OutcomeOK && o.Value > f.value:
		*f = variableFact{value: o.Value, deleted: o.Does == OpDelete, at: s.now, removed: f.removed}
		if f.deleted {
			f.removed = o.Value
		}
	case o.Does == OpDelete && o.Outcome == OutcomeUnknown:
		f.unsure = true
	}
}

// judgeValue reports a value that is older than the newest acknowledged change.
func (t *secrets) judgeValue(s *runContext, f *variableFact, o *VariableOperation, value int, before bool) {
	if before && (value < f.value || f.deleted && value == f.value) {
		s.reportViolation(NewestVariables, o.Path, "%s finds the value of change %d: change %d was acknowledged at %s", o.Client, value, f.value, f.at)
	}
}

// judgeLock records the acquisition, renewal or release of a lock. It reports an acquisition while another client has the
// lock for sure.
func (t *secrets) judgeLock(s *runContext, o *VariableOperation) {
	l := ensure(t.locks, o.Path)
	switch {
	case o.Does == OpUnlock && l.client == o.Client:
		l.until = 0 // it may have taken effect, whatever the answer was
	case o.Outcome != OutcomeOK:
	case o.Does == OpRenew && l.client == o.Client && l.until > 0:
		l.until = o.Call + o.TTL
	case o.Does == OpLock:
		s.countJudgement(OneHolder)
		if l.client != o.Client && l.until > s.now {
			s.reportViolation(OneHolder, o.Path, "%s gets the lock, which %s has until %s", o.Client, l.client, l.until)
		}
		*l = lockFact{client: o.Client, until: o.Call + o.TTL}
	}
}

// pathsOf returns the paths of the variables of a job and of its group that its tasks may read. A child of a periodic or
// parameterized job reads those of its parent.
func (f *allocFact) pathsOf() []string {
	job := string(f.alloc.JobID)
	for _, child := range []string{"/periodic-", "/dispatch-"} {
		if parent, _, ok := strings.Cut(job, child); ok {
			job = parent
		}
	}
	return []string{fleet.VariablesOfJobs + "/" + job, fleet.VariablesOfJobs + "/" + job + "/" + f.alloc.TaskGroup}
}

// recordHeld records the variables that an edge has.
func (t *secrets) recordHeld(s *runContext, h *HeldVariables) {
	f := t.ensureHeld(h.Edge)
	m := s.machines.ensureMachine(h.Edge)
	for path, value := range h.Values {
		known := t.paths[path]
		if known != nil && f.values[path] > 0 && value > f.values[path] && known.at < m.connected {
			s.countBranch(BranchVariableCaughtUp)
		}
	}
	f.values, f.since = h.Values, s.now
}

// ensureHeld returns what an edge has.
func (t *secrets) ensureHeld(edge string) *heldFact {
	f := ensure(t.held, edge)
	if f.told == nil {
		f.told = map[string]bool{}
	}
	return f
}

// judgeHeldVariables judges the variables of all edges, once in judgeVariablesEvery.
func (t *secrets) judgeHeldVariables(s *runContext) {
	if s.now < t.next || len(t.paths) == 0 {
		return
	}
	t.next = s.now + judgeVariablesEvery
	for _, id := range sorted(s.registry.allocs) {
		f := s.registry.allocs[id]
		m := s.connectedMachineOf(f)
		if m == nil || t.held[m.name] == nil {
			continue
		}
		for _, path := range f.pathsOf() {
			if known := t.paths[path]; known != nil && known.value > 0 {
				t.judgeNewest(s, m, f, path, known)
			}
		}
	}
	for _, name := range sorted(t.held) {
		t.judgeKept(s, s.machines.ensureMachine(name), t.held[name])
	}
}

// connectedMachineOf returns the machine of an allocation that has not ended, if its edge has a session; nil: otherwise, for a
// clone, and for an allocation that nobody has seen since a restore.
func (s *runContext) connectedMachineOf(f *allocFact) *machine {
	m := s.machineOf(f.alloc.NodeID)
	if m == nil || m.connected < 0 || f.stale || !f.isNonTerminal() || s.isClonedMachine(m.name) {
		return nil
	}
	return m
}

// judgeNewest reports a variable that an edge with a session still has not as it is, long after its last change, after the
// session began, and after the allocation came that needs it.
func (t *secrets) judgeNewest(s *runContext, m *machine, f *allocFact, path string, known *variableFact) {
	since := max(known.at, m.connected, f.first)
	if !s.isOverdue(m.name, since, s.limits.Deliver) || m.looked < since+s.limits.Deliver || known.mayBeDeleted() {
		return
	}
	s.countJudgement(NewestVariables)
	h := t.held[m.name]
	value, there := h.values[path]
	if there == !known.deleted && (known.deleted || value >= known.value) || value > known.value {
		return
	}
	t.reportOnce(s, m, h, path, "its variable %s is of change %d (0: it has none), long after change %d at %s (deleted: %t), which allocation %s needs",
		path, value, known.value, known.at, known.deleted, fleet.Short(f.alloc.ID))
}

// judgeKept reports a variable that an edge has lost, or has of an older change, since it lost its session, although a
// task there reads it.
func (t *secrets) judgeKept(s *runContext, m *machine, h *heldFact) {
	if m.agent < 0 || h.since < m.agent {
		return // the agent does not run, or was not looked at since it started
	}
	wiped := s.faults.hasFaultSince(s.now, h.since, m.name, Revokes) // it may have heard that it is revoked
	if m.connected >= 0 || m.session != h.session || m.hasDamageSince(h.since) || wiped || s.isClonedMachine(m.name) {
		h.kept, h.session = h.values, m.session
		return
	}
	for _, task := range sortedTasks(m.tasks) {
		f := s.registry.allocs[task.Alloc]
		if f == nil || m.tasks[task].live == 0 || m.tasks[task].begun > m.looked {
			continue // it does not run, or runs since the edge was looked at last
		}
		for _, path := range f.pathsOf() {
			known := t.paths[path]
			if known == nil || known.deleted || known.mayBeDeleted() || h.kept[path] == 0 {
				continue
			}
			s.countJudgement(NewestVariables)
			if value := h.values[path]; value >= h.kept[path] || value == 0 && known.removed > h.kept[path] {
				if m.agent > known.at {
					s.countBranch(BranchVariableKept)
				}
				continue
			}
			t.reportOnce(s, m, h, path, "its variable %s is of change %d (0: it has none), and was of change %d before its link was lost: task %s runs with it",
				path, h.values[path], h.kept[path], task)
		}
	}
}

// reportOnce reports the first violation of a variable of an edge.
func (t *secrets) reportOnce(s *runContext, m *machine, h *heldFact, path, format string, args ...any) {
	if !h.told[path] {
		h.told[path] = true
		s.reportViolation(NewestVariables, m.name, format, args...)
	}
}

// formerReader is for how long after the end of an allocation a hub may still send its variables.
const formerReader = 5 * time.Minute

// judgeDelivery reports variables in a message to an edge whose allocations may not read them.
func (t *secrets) judgeDelivery(s *runContext, d *DeliveredVariables) {
	m := s.machines.ensureMachine(d.Edge)
	if m.node == "" || m.agent < 0 || m.looked < m.agent {
		return // since its agent started, nobody has looked which node it is: it may have come back as another one
	}
	s.countJudgement(SecretsSealed)
	for _, path := range d.Paths {
		if path != fleet.VariablesOfJobs && !s.mayRead(m, path) {
			s.reportViolation(SecretsSealed, d.Edge, "a hub sends it the variable %s, which none of its allocations may read", path)
		}
	}
}

// mayRead reports whether an allocation of an edge may read a variable, or could a short time ago.
func (s *runContext) mayRead(m *machine, path string) bool {
	for _, f := range s.registry.allocs {
		if f.alloc.NodeID != m.node || !f.stale && f.alloc.ServerTerminal() && s.now-f.stoppedLast > formerReader {
			continue
		}
		for _, readable := range f.pathsOf() {
			if path == readable || strings.HasPrefix(path, readable+"/") {
				return true
			}
		}
	}
	return false
}

// judgeSearch reports the secrets that a search found in clear.
func (t *secrets) judgeSearch(s *runContext, o *SecretSearch) {
	s.countJudgement(SecretsSealed)
	for _, where := range o.Found {
		s.reportViolation(SecretsSealed, o.Who, "a secret is in clear in %s", where)
	}
}
