package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry/fleet"
)

// decisions checks plans and evaluations: each disconnect of an allocation is replaced and settled once, no
// node is evaluated before its replay is over, no node is over-committed, and no allocation is lost before its
// lost_after is over.
type decisions struct {
	status map[fleet.AllocID]*conclusion
	gone   map[fleet.NodeID]time.Duration // since when nodes are disconnected or down
	told   recent[string, bool]           // violations that were reported
	// excused are digests of commands, and allocations with their states, that a damaged journal excuses.
	excused recent[string, bool]
}

// conclusion is the last status of an allocation that hubs decided.
type conclusion struct {
	client       string
	states       int           // how many AllocStates it has
	grown        time.Duration // when a state was added last
	unknown      time.Duration // since when it is unknown
	reconnecting bool          // its node is back, and the hubs have not settled it
	seen         time.Duration // when it was observed last
	// absences maps the times (UnixNano) at which hubs recorded the allocation as unknown to their first observation.
	// Hubs that were restored from an older copy show the same times again.
	absences map[int64]time.Duration
}

// keptAbsences bounds how many absences of an allocation are remembered. At the bound all are dropped.
const keptAbsences = 100

// recordUnknownSince records that an allocation became unknown now, or earlier if the same absence was observed
// before.
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

// newDecisions returns the checker of plans and evaluations.
func newDecisions() checker {
	t := &decisions{
		status: map[fleet.AllocID]*conclusion{}, gone: map[fleet.NodeID]time.Duration{},
		told: newRecent[string, bool](keptTold), excused: newRecent[string, bool](keptTold),
	}
	return checker{state: t, entry: t.judgeEntryDecisions, hub: t.judgeHubDecisions, rewind: t.forgetDecisions, tick: t.forgetOldConclusions}
}

// judgeHubDecisions judges the allocations that a hub shows, and whether they fit their nodes.
func (t *decisions) judgeHubDecisions(s *runContext, h *Hub) {
	t.judgeAllocs(s, h.Allocs)
	for _, v := range Committed(h.Name, h.Nodes, h.Allocs) {
		if !s.canRunEndedTasks(v.Where) {
			t.reportOnce(s, v.Invariant, h.Name, nil, v.Message)
		}
	}
	s.countJudgement(NoOvercommit)
}

// forgetDecisions drops facts that restored hubs may have in an older version. It keeps the absences.
func (t *decisions) forgetDecisions(*runContext) {
	for _, c := range t.status {
		*c = conclusion{seen: c.seen, absences: c.absences}
	}
	clear(t.gone)
	t.told = newRecent[string, bool](keptTold)
}

// keptTold bounds how many reported and excused violations are remembered.
const keptTold = 1000

// reportOnce records a violation, unless it recorded the same one before: each further observation shows it
// again.
func (t *decisions) reportOnce(s *runContext, i Invariant, where string, evidence []string, message string) {
	key := i.Slug() + where + message
	if !t.told.known[key] {
		t.told.addEntry(key, true)
		s.reportWithEvidence(i, where, evidence, "%s", message)
	}
}

// judgeEntryDecisions judges an entry's evaluations, loads and allocations, and updates which nodes are
// disconnected or down.
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
	t.judgeUnknownOnReady(s, a)
	t.judgeAllocs(s, e.Allocs)
}

// judgeLoads reports nodes that an entry over-commits, or on which it gives a port, core or device to two
// allocations. A command that was excused stays excused when rewound hubs apply it again.
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

// judgeUnknownOnReady reports allocations that a plan leaves unknown on a ready node. Such a plan was made before the
// node came back, and must be refused.
func (t *decisions) judgeUnknownOnReady(s *runContext, a *Applied) {
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

// canRunEndedTasks reports whether an edge may run allocations that had ended: damage to its journal within the last
// Limits.Heal lost their end. They occupy the node until a hub sends the desired state again; no plan placed them.
func (s *runContext) canRunEndedTasks(edge string) bool {
	m := s.machines.by[edge]
	return m != nil && m.hasDamageSince(s.now-s.limits.Heal)
}

// judgeEvaluations judges the evaluations that an entry makes for rows or a session: at most one for a job,
// none while the node still replays, and none for a failure that a later row of the same entry replaces.
func (t *decisions) judgeEvaluations(s *runContext, a *Applied) {
	e := a.Effects
	if len(e.Batches) == 0 && e.Opened == nil {
		return
	}
	final := jobsWithEndedAllocs(s, e)
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

// stillReplays reports whether an entry opens a session of a node or applies its rows, and leaves the node
// initializing.
func stillReplays(e *Effects, id fleet.NodeID) bool {
	if e.Opened != nil && e.Opened.Node == id {
		return e.Opened.Status == fleet.NodeInitializing
	}
	return slices.ContainsFunc(e.Batches, func(b Batch) bool {
		return b.Node == id && b.Code == "" && b.Status == fleet.NodeInitializing
	})
}

// jobsWithEndedAllocs returns the jobs of which an entry's rows leave an allocation complete or failed. It returns nil
// if the job of an allocation is unknown.
func jobsWithEndedAllocs(s *runContext, e *Effects) map[fleet.JobID]bool {
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

// judgeAllocs judges allocations as a plan leaves them or as a hub shows them: each one's states, and that no
// name index has two.
func (t *decisions) judgeAllocs(s *runContext, allocs []fleet.Alloc) {
	for i := range allocs {
		t.judgeAllocStates(s, &allocs[i])
	}
	t.judgeNameIndexes(s, allocs)
}

// judgeAllocStates judges the states that were added to an allocation since its last observation: none is repeated,
// and the allocation is not lost before its window is over. It ignores a view older than the last one.
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
			if before == next && !(next == fleet.ClientLost && t.mayBeLostAgain(s, a, c.grown)) {
				t.reportOnce(s, OncePerDisconnect, a.Name, []string{formatStates(a)},
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
		if gone, ok := t.gone[a.NodeID]; ok { // the plan records it a little later
			since = min(since, gone)
		}
		c.recordUnknownSince(a, since)
		s.countBranch(BranchUnknown)
	case a.ClientStatus == fleet.ClientLost && c.client == fleet.ClientUnknown:
		t.judgeLostAfter(s, a, c)
	}
	due := a.NeedsToReconnect()
	if c.reconnecting && !due && a.ClientStatus != fleet.ClientLost {
		t.recordReconnectOutcome(s, a)
	}
	c.client, c.states, c.reconnecting = a.ClientStatus, len(a.AllocStates), due
}

// mayBeLostAgain reports whether an allocation may be lost twice in a row: its edge's journal was damaged since then,
// so the edge may have run the allocation again. An excuse stays valid when rewound hubs apply the entry again.
func (t *decisions) mayBeLostAgain(s *runContext, a *fleet.Alloc, then time.Duration) bool {
	key := string(a.ID) + ": " + formatStates(a)
	if m := s.machineOf(a.NodeID); m != nil && m.hasDamageSince(then) {
		t.excused.addEntry(key, true)
	}
	return t.excused.known[key]
}

// formatStates lists an allocation's states with their times, for people.
func formatStates(a *fleet.Alloc) string {
	var parts []string
	for _, st := range a.AllocStates {
		parts = append(parts, fmt.Sprintf("%s at %s", st.Value, st.Time.Format(time.TimeOnly)))
	}
	return strings.Join(parts, ", ")
}

// judgeLostAfter reports an allocation that became lost sooner than lost_after after it became unknown (c.unknown). A
// stopped allocation is skipped: it becomes lost together with its node.
func (t *decisions) judgeLostAfter(s *runContext, a *fleet.Alloc, c *conclusion) {
	s.countBranch(BranchLostAfterWindow)
	f := s.registry.allocs[a.ID]
	if a.ServerTerminal() || f == nil || f.group == nil || f.group.Disconnect == nil || f.group.Disconnect.LostAfter == nil {
		return
	}
	s.countJudgement(TrustedTime)
	if window := *f.group.Disconnect.LostAfter; s.decided-c.unknown < window-s.limits.Slack {
		s.reportViolation(TrustedTime, a.Name, "allocation %s was given up %s after it became unknown: lost_after is %s",
			fleet.Short(a.ID), s.decided-c.unknown, window)
	}
}

// recordReconnectOutcome counts whether a reconnected allocation or its replacement was kept, if it had a replacement.
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

// judgeNameIndexes judges each name index of these allocations once: at most one allocation has it, besides unknown
// ones, reconnected ones that are not settled, and canaries.
func (t *decisions) judgeNameIndexes(s *runContext, allocs []fleet.Alloc) {
	looked := map[string]bool{}
	for i := range allocs {
		at := qualifiedName(&allocs[i])
		if looked[at] || len(s.registry.places[at]) < 2 {
			continue
		}
		looked[at] = true
		s.countJudgement(OncePerDisconnect)
		t.judgeNameIndex(s, allocs[i].Name, s.registry.places[at])
	}
}

// judgeNameIndex reports a name index that two or more of its allocations hold, and an allocation that two or
// more others replace. ids are all known allocations of the name index.
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
		t.reportOnce(s, OncePerDisconnect, name, evidence, strings.Join(holders, " and ")+" have the same name index")
	}
}

// isNonTerminal reports whether an allocation is desired and has not ended, by the newest record of hubs and by the
// rows of its edge.
func (f *allocFact) isNonTerminal() bool { return !f.alloc.Terminal() && !f.ended }

// forgetOldConclusions drops allocations that no hub or plan has shown for longer than keptAllocs.
func (t *decisions) forgetOldConclusions(s *runContext) {
	maps.DeleteFunc(t.status, func(_ fleet.AllocID, c *conclusion) bool { return s.now-c.seen > keptAllocs })
}
