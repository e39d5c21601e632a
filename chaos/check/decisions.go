package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry/fleet"
)

// decisions judges plans and evaluations: an allocation is replaced and settled once for each
// disconnect, nothing is evaluated before a replay is over, no node is over-committed, and no
// allocation is lost before its lost_after is over.
type decisions struct {
	status map[fleet.AllocID]*conclusion
	gone   map[fleet.NodeID]time.Duration // since when nodes are out of sight
	told   recent[string, bool]
	// excused are commands, and what was concluded about allocations.
	excused recent[string, bool]
}

// conclusion is what hubs last concluded about an allocation.
type conclusion struct {
	client       string
	states       int
	grown        time.Duration // when there were more states
	unknown      time.Duration // since when it is unknown
	reconnecting bool          // back, and not settled
	seen         time.Duration
	// absences are when it was first seen to be unknown, by what the hubs' record says
	// of that moment: hubs that were put back show the same ones again.
	absences map[int64]time.Duration
}

// keptAbsences is how many times of going out of sight are remembered of an allocation.
const keptAbsences = 100

// recordUnknownSince notes that an allocation is unknown.
func (c *conclusion) recordUnknownSince(a *fleet.Alloc, now time.Duration) {
	said := a.LastUnknown().UnixNano()
	first, again := c.absences[said]
	if !again || now < first {
		if first = now; c.absences == nil || len(c.absences) >= keptAbsences {
			c.absences = map[int64]time.Duration{}
		}
		c.absences[said] = first
	}
	c.unknown = first
}

func newDecisions() checker {
	t := &decisions{
		status: map[fleet.AllocID]*conclusion{}, gone: map[fleet.NodeID]time.Duration{},
		told: newRecent[string, bool](keptTold), excused: newRecent[string, bool](keptTold),
	}
	return checker{state: t, entry: t.judgeEntryDecisions, hub: t.judgeHubDecisions, rewind: t.forgetDecisions, tick: t.forgetOldConclusions}
}

func (t *decisions) judgeHubDecisions(s *runContext, h *Hub) {
	t.judgeAllocs(s, h.Allocs)
	for _, v := range Committed(h.Name, h.Nodes, h.Allocs) {
		if !s.canRunEndedTasks(v.Where) {
			t.reportOnce(s, v.Invariant, h.Name, nil, v.Message)
		}
	}
	s.countJudgement(NoOvercommit)
}

// forgetDecisions forgets what the hubs may have in an older version.
func (t *decisions) forgetDecisions(*runContext) {
	for _, c := range t.status {
		*c = conclusion{seen: c.seen, absences: c.absences}
	}
	clear(t.gone)
	t.told = newRecent[string, bool](keptTold)
}

// keptTold bounds how many violations are remembered as told.
const keptTold = 1000

// reportOnce notes a violation that each observation shows again.
func (t *decisions) reportOnce(s *runContext, i Invariant, where string, evidence []string, message string) {
	key := i.Slug() + where + message
	if !t.told.known[key] {
		t.told.addEntry(key, true)
		s.reportWithEvidence(i, where, evidence, "%s", message)
	}
}

func (t *decisions) judgeEntryDecisions(s *runContext, a *Applied) {
	e := a.Effects
	t.judgeEvaluations(s, a)
	e.nodeStatuses(func(id fleet.NodeID, status fleet.NodeStatus) {
		if status == fleet.NodeReady {
			delete(t.gone, id)
		}
	})
	for _, m := range e.Moved {
		if _, again := t.gone[m.Node]; !again {
			t.gone[m.Node] = s.decided
		}
		if m.Status == fleet.NodeDown {
			s.countBranch(BranchDown)
		} else {
			s.countBranch(BranchDisconnected)
		}
	}
	t.judgeLoads(s, a)
	t.unknownOnReady(s, a)
	t.judgeAllocs(s, e.Allocs)
}

// judgeLoads judges what an entry puts on its nodes. One that was excused is so, too, when it is
// applied again from an older copy.
func (t *decisions) judgeLoads(s *runContext, a *Applied) {
	for _, l := range a.Effects.Loads {
		s.countJudgement(NoOvercommit)
		dim := l.Used.Exceeds(l.Free)
		if dim == "" && l.Clash == "" {
			continue
		}
		if s.canRunEndedTasks(l.Name) {
			t.excused.addEntry(a.Command, true)
		}
		if t.excused.known[a.Command] {
			continue
		}
		if dim != "" {
			s.reportViolation(NoOvercommit, l.Name, "entry %d over-commits it in %s: %+v of %+v", a.Index, dim, l.Used, l.Free)
		}
		if l.Clash != "" {
			s.reportViolation(NoOvercommit, l.Name, "entry %d gives two allocations of it the same: %s", a.Index, l.Clash)
		}
	}
}

// unknownOnReady judges that a plan makes nothing unknown on a node that is ready: one that
// was made before the node was back comes too late.
func (t *decisions) unknownOnReady(s *runContext, a *Applied) {
	ready := map[fleet.NodeID]string{}
	for i := range a.Effects.Nodes {
		if n := &a.Effects.Nodes[i]; n.Status == fleet.NodeReady {
			ready[n.ID] = n.Name
		}
	}
	for i := range a.Effects.Allocs {
		alloc := &a.Effects.Allocs[i]
		s.countJudgement(LegalHistory)
		if name, is := ready[alloc.NodeID]; is && alloc.ClientStatus == fleet.ClientUnknown {
			s.reportViolation(LegalHistory, name, "entry %d leaves allocation %s unknown, and its node is ready", a.Index, fleet.Short(alloc.ID))
		}
	}
}

// canRunEndedTasks reports whether an edge may run what had ended: its journal was damaged of
// late, and went back to before the end. That bears on its node until it is told once
// more, and no plan gave it that.
func (s *runContext) canRunEndedTasks(edge string) bool {
	m := s.machines.by[edge]
	return m != nil && m.hasDamageSince(s.now-s.limits.Heal)
}

// judgeEvaluations judges what an entry's rows were a reason for.
func (t *decisions) judgeEvaluations(s *runContext, a *Applied) {
	e := a.Effects
	if len(e.Batches) == 0 && e.Opened == nil {
		return
	}
	final := finalStatuses(s, e)
	seen := map[fleet.JobID]fleet.EvalID{}
	for _, eval := range e.Evals {
		s.countJudgement(FinalState)
		name := s.registry.edgeNameOf(eval.NodeID)
		if other, twice := seen[eval.JobID]; twice {
			s.reportViolation(FinalState, name, "entry %d makes evaluations %s and %s of one job, %s", a.Index, fleet.Short(other), fleet.Short(eval.ID), eval.JobID)
		}
		seen[eval.JobID] = eval.ID
		switch {
		case stillReplays(e, eval.NodeID):
			s.reportViolation(FinalState, name, "entry %d makes an evaluation of job %s (%s) while the node's history is still coming in",
				a.Index, eval.JobID, eval.TriggeredBy)
		case eval.TriggeredBy == fleet.TriggerRetryFailedAlloc && final != nil && !final[eval.JobID]:
			s.reportViolation(FinalState, name, "entry %d evaluates job %s for an allocation that failed: after the entry none of its rows is of one that ended",
				a.Index, eval.JobID)
		}
	}
}

// stillReplays reports whether an entry leaves a node initializing that it brings
// rows of, or a session.
func stillReplays(e *Effects, id fleet.NodeID) bool {
	if e.Opened != nil && e.Opened.Node == id {
		return e.Opened.Status == fleet.NodeInitializing
	}
	return slices.ContainsFunc(e.Batches, func(b Batch) bool {
		return b.Node == id && b.Code == "" && b.Status == fleet.NodeInitializing
	})
}

// finalStatuses says of which jobs an entry's rows leave an allocation ended; nil:
// not all of their allocations' jobs are known.
func finalStatuses(s *runContext, e *Effects) map[fleet.JobID]bool {
	last := map[fleet.AllocID]string{}
	for _, b := range e.Batches {
		for _, row := range b.Rows {
			if row.Alloc != "" && row.ClientStatus != "" && b.Code == "" {
				last[row.Alloc] = row.ClientStatus
			}
		}
	}
	jobs := map[fleet.JobID]bool{}
	for id, status := range last {
		f := s.registry.allocs[id]
		if f == nil {
			return nil
		}
		if status == fleet.ClientFailed || status == fleet.ClientComplete {
			jobs[f.alloc.JobID] = true
		}
	}
	return jobs
}

// judgeAllocs judges allocations as a plan or a hub has them.
func (t *decisions) judgeAllocs(s *runContext, allocs []fleet.Alloc) {
	for i := range allocs {
		t.judgeAllocStates(s, &allocs[i])
	}
	t.judgeNameIndexes(s, allocs)
}

func (t *decisions) judgeAllocStates(s *runContext, a *fleet.Alloc) {
	c := ensure(t.status, a.ID)
	c.seen = s.now
	if len(a.AllocStates) < c.states {
		return // an older snapshot
	}
	if len(a.AllocStates) > c.states {
		s.countJudgement(OncePerDisconnect)
		for i := max(1, c.states); i < len(a.AllocStates); i++ {
			before, next := a.AllocStates[i-1].Value, a.AllocStates[i].Value
			if before == next && !(next == fleet.ClientLost && t.lostAgain(s, a, c.grown)) {
				t.reportOnce(s, OncePerDisconnect, a.Name, []string{states(a)},
					fmt.Sprintf("allocation %s is concluded to be %s twice in a row", fleet.Short(a.ID), next))
			}
		}
	}
	grew := len(a.AllocStates) > c.states
	if grew {
		c.grown = s.now
	}
	switch {
	case a.ClientStatus == fleet.ClientUnknown && (c.client != fleet.ClientUnknown || grew):
		since := s.decided
		if gone, ok := t.gone[a.NodeID]; ok { // the plan says so a little later
			since = min(since, gone)
		}
		c.recordUnknownSince(a, since)
		s.countBranch(BranchUnknown)
	case a.ClientStatus == fleet.ClientLost && c.client == fleet.ClientUnknown:
		t.givenUp(s, a, c)
	}
	due := a.NeedsToReconnect()
	if c.reconnecting && !due && a.ClientStatus != fleet.ClientLost {
		t.recordReconnectOutcome(s, a)
	}
	c.client, c.states, c.reconnecting = a.ClientStatus, len(a.AllocStates), due
}

// lostAgain reports whether an allocation may be lost once more: its edge, whose journal was
// damaged since then, may have taken up again what had ended there. What was excused is so,
// too, when an entry is applied again from an older copy.
func (t *decisions) lostAgain(s *runContext, a *fleet.Alloc, then time.Duration) bool {
	key := string(a.ID) + ": " + states(a)
	if m := s.machineOf(a.NodeID); m != nil && m.hasDamageSince(then) {
		t.excused.addEntry(key, true)
	}
	return t.excused.known[key]
}

func states(a *fleet.Alloc) string {
	var parts []string
	for _, st := range a.AllocStates {
		parts = append(parts, fmt.Sprintf("%s at %s", st.Value, st.Time.Format(time.TimeOnly)))
	}
	return strings.Join(parts, ", ")
}

// givenUp judges that an allocation's window was over. One that was told to stop has none: it is
// lost with its node.
func (t *decisions) givenUp(s *runContext, a *fleet.Alloc, c *conclusion) {
	s.countBranch(BranchLostAfterWindow)
	f := s.registry.allocs[a.ID]
	if a.ServerTerminal() || f == nil || f.group == nil || f.group.Disconnect == nil || f.group.Disconnect.LostAfter == nil {
		return
	}
	s.countJudgement(TrustedTime)
	if window := *f.group.Disconnect.LostAfter; s.decided-c.unknown < window-s.limits.Slack {
		s.reportViolation(TrustedTime, a.Name, "allocation %s was given up %s after it went out of sight: lost_after is %s",
			fleet.Short(a.ID), s.decided-c.unknown, window)
	}
}

// recordReconnectOutcome notes how a return was settled.
func (t *decisions) recordReconnectOutcome(s *runContext, a *fleet.Alloc) {
	replaced := false
	for _, f := range s.registry.allocs {
		replaced = replaced || f.alloc.PreviousAllocation == a.ID
	}
	switch {
	case replaced && a.NoLongerWanted():
		s.countBranch(BranchKeptReplacement)
	case replaced:
		s.countBranch(BranchKeptOriginal)
	}
}

// judgeNameIndexes judges that no place of a job is taken twice, but for one that is out of
// sight or has not been settled yet.
func (t *decisions) judgeNameIndexes(s *runContext, allocs []fleet.Alloc) {
	looked := map[string]bool{}
	for i := range allocs {
		at := place(&allocs[i])
		if looked[at] || len(s.registry.places[at]) < 2 {
			continue
		}
		looked[at] = true
		s.countJudgement(OncePerDisconnect)
		t.judgeNameIndex(s, allocs[i].Name, s.registry.places[at])
	}
}

func (t *decisions) judgeNameIndex(s *runContext, name string, ids []fleet.AllocID) {
	var holders, evidence []string
	replaced := map[fleet.AllocID]int{}
	for _, id := range ids {
		f := s.registry.allocs[id]
		if f.stale || f.system || !f.isNonTerminal() {
			continue
		}
		a := &f.alloc
		evidence = append(evidence, fmt.Sprintf("%s on %s: %s, %s, replaces %q", fleet.Short(id), s.registry.edgeNameOf(a.NodeID),
			a.ClientStatus, a.DesiredStatus, fleet.Short(a.PreviousAllocation)))
		if a.PreviousAllocation != "" {
			replaced[a.PreviousAllocation]++
		}
		if a.ClientStatus != fleet.ClientUnknown && !a.NeedsToReconnect() && !f.canary {
			holders = append(holders, fleet.Short(id))
		}
	}
	for _, previous := range sorted(replaced) {
		if n := replaced[previous]; n > 1 {
			t.reportOnce(s, OncePerDisconnect, name, evidence, fmt.Sprintf("allocation %s is replaced by %d at once", fleet.Short(previous), n))
		}
	}
	if len(holders) > 1 {
		t.reportOnce(s, OncePerDisconnect, name, evidence, strings.Join(holders, " and ")+" have one place")
	}
}

// isNonTerminal reports whether an allocation neither ended nor is to end, as far as any
// hub or its edge has said.
func (f *allocFact) isNonTerminal() bool { return !f.alloc.Terminal() && !f.ended }

func (t *decisions) forgetOldConclusions(s *runContext) {
	maps.DeleteFunc(t.status, func(_ fleet.AllocID, c *conclusion) bool { return s.now-c.seen > keptAllocs })
}
