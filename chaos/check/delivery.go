package check

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"skerry/fleet"
)

// delivery compares the edges' journals with the rows that hubs apply. Each journaled row is applied once,
// unchanged, and within Limits.Deliver while the link works. Each row that an edge holds as acknowledged is in
// the log.
type delivery struct {
	edges map[string]*journalFact
	// early are rows that were applied before they were observed in a journal.
	early map[fleet.NodeID]map[fleet.Seq]fleet.Transition
	// owner is the edge whose rows are applied, for a node whose identity several machines use.
	owner   map[fleet.NodeID]string
	applied map[fleet.NodeID]fleet.Seq // the newest row that an entry applied
}

// journalFact is the part of an edge's journal that was observed so far.
type journalFact struct {
	node         fleet.NodeID
	last         fleet.Seq     // the newest row
	acknowledged fleet.Seq     // the newest row that the agent counts as acknowledged
	dropped      uint64        // rows that were dropped at the journal's bound
	agentSince   int64         // when the agent that gave the last answer was started
	connected    time.Duration // since when the edge has a session; -1: it has none
	// behind says that the hubs were restored from an older copy, and have not yet applied again all rows that they
	// had acknowledged.
	behind bool
	rows   map[fleet.Seq]rowFact
}

// rowFact is a journaled row that was not observed to be applied.
type rowFact struct {
	row fleet.Transition // see leanRow
	at  time.Duration    // when it was observed first
}

// keptRows bounds the remembered rows of one edge; the oldest are dropped.
const keptRows = 200_000

// newDelivery returns the checker that compares journals with applied rows.
func newDelivery() checker {
	t := &delivery{
		edges: map[string]*journalFact{}, early: map[fleet.NodeID]map[fleet.Seq]fleet.Transition{},
		owner: map[fleet.NodeID]string{}, applied: map[fleet.NodeID]fleet.Seq{},
	}
	return checker{
		state: t, entry: t.judgeEntryRows, edge: t.judgeJournal, fault: t.forgetAfterFault, tick: t.judgeOverdueRows,
		agent: func(_ *runContext, p *Process) { t.journalFactOf(p.Name).resetProcessMemory() },
	}
}

// judgeEntryRows compares the rows that an entry applies with the journals, and with the histories that the
// entry writes.
func (t *delivery) judgeEntryRows(s *runContext, a *Applied) {
	for _, taken := range s.newRows {
		t.judgeAppliedRows(s, taken)
	}
	if opened := a.Effects.Opened; opened != nil {
		t.applied[opened.Node] = max(t.applied[opened.Node], opened.Applied)
	}
	t.judgeRecordedRows(s, a)
}

// journalFactOf returns the record of an edge's journal. It adds an empty one for a new edge.
func (t *delivery) journalFactOf(name string) *journalFact {
	if t.edges[name] == nil {
		t.edges[name] = &journalFact{connected: -1, rows: map[fleet.Seq]rowFact{}}
	}
	return t.edges[name]
}

// resetProcessMemory forgets the acknowledged row and the session: an agent keeps both in memory only, and
// loses them when it ends.
func (f *journalFact) resetProcessMemory() { f.acknowledged, f.connected = 0, -1 }

// forgetAfterFault drops facts that a fault invalidates: the rows of edges whose files it damages, and after a rewind
// the applied rows.
func (t *delivery) forgetAfterFault(_ *runContext, f *Fault) {
	for name, edge := range t.edges {
		if f.hasEffectOn(name, []Effect{Damages}) {
			clear(edge.rows)
			clear(t.early[edge.node])
			edge.last, edge.acknowledged = 0, 0
		}
	}
	if f.hasRewindEffect() {
		clear(t.applied)
		for _, edge := range t.edges {
			edge.behind = true
		}
	}
}

// judgeJournal records the rows of an edge's journal that are new, and judges its acknowledged row and its
// size. It drops all rows of a journal that is damaged or says that it lost rows: they will get other numbers.
func (t *delivery) judgeJournal(s *runContext, e *Edge) {
	f := t.journalFactOf(e.Name)
	if e.NodeID != "" {
		f.node = e.NodeID
	}
	if s.faults.hasFaultNow(e.Name, Damages) || e.Journal != nil && e.Journal.Lost != "" {
		clear(f.rows)
		f.last, f.connected = 0, -1
		return
	}
	if e.Journal != nil && e.Journal.Last < f.last {
		s.reportViolation(ExactlyOnce, e.Name, "the journal ends at row %d: it held row %d before, and nothing damaged it", e.Journal.Last, f.last)
		clear(f.rows)
	}
	for i := range e.Rows {
		t.recordJournaledRow(s, e.Name, f, &e.Rows[i])
	}
	if e.Journal == nil {
		return
	}
	s.countJudgement(ExactlyOnce)
	if e.AgentSince != f.agentSince {
		f.agentSince = e.AgentSince
		f.resetProcessMemory()
	}
	f.last = e.Journal.Last
	if n := len(e.Rows); n > 0 { // the rows may have been read a moment after Last
		f.last = max(f.last, e.Rows[n-1].Seq)
	}
	t.judgeAcknowledgedRow(s, e.Name, f, e.Journal)
	t.judgeJournalBounds(s, e.Name, f, e.Journal)
	f.recordLinkState(s.now, e.Link)
}

// recordLinkState sets since when the edge has a session; -1: it has none, or its link was not observed (nil).
func (f *journalFact) recordLinkState(now time.Duration, l *Link) {
	switch {
	case l == nil || !l.Connected:
		f.connected = -1
	case f.connected < 0:
		f.connected = now
	}
}

// judgeAcknowledgedRow reports an acknowledged number that goes back, or that no entry has applied. If no entries are
// observed, acknowledged rows count as applied.
func (t *delivery) judgeAcknowledgedRow(s *runContext, name string, f *journalFact, j *Journal) {
	s.countJudgement(AcknowledgedSurvives)
	s.countJudgement(NeverBack)
	applied, logged := t.applied[f.node]
	f.behind = f.behind && (!logged || j.Acknowledged > applied)
	switch {
	case f.behind || s.isClonedMachine(name):
	case j.Acknowledged < f.acknowledged:
		s.reportViolation(NeverBack, name, "the acknowledged row went from %d back to %d", f.acknowledged, j.Acknowledged)
	case logged && j.Acknowledged > f.acknowledged && j.Acknowledged > applied && !s.isBehindGap():
		s.reportViolation(AcknowledgedSurvives, name, "the edge was told that row %d is applied: the log has rows up to %d", j.Acknowledged, applied)
	}
	f.acknowledged = j.Acknowledged
	if !s.entries { // only the acknowledgement shows that they were applied
		maps.DeleteFunc(f.rows, func(seq fleet.Seq, _ rowFact) bool { return seq <= j.Acknowledged })
	}
}

// judgeJournalBounds reports a journal with more bytes than its bound, and counts rows that were dropped at the
// bound.
func (t *delivery) judgeJournalBounds(s *runContext, name string, f *journalFact, j *Journal) {
	s.countJudgement(Bounded)
	if j.Bytes > s.limits.JournalBytes {
		s.reportViolation(Bounded, name, "the journal holds %d bytes of rows, its bound is %d", j.Bytes, s.limits.JournalBytes)
	}
	if j.Dropped > f.dropped {
		s.countBranch(BranchJournalDropped)
	}
	f.dropped = j.Dropped
}

// recordJournaledRow adds a journaled row to the rows that must be applied, and reports a row that changed in the
// journal. A row that is applied already is compared with the applied one instead.
func (t *delivery) recordJournaledRow(s *runContext, name string, f *journalFact, row *fleet.Transition) {
	s.countJudgement(ExactlyOnce)
	if held, ok := f.rows[row.Seq]; ok && !sameRow(held.row, *row) {
		s.reportViolation(ExactlyOnce, name, "row %d of the journal was %s and is %s now", row.Seq, describeRow(held.row), describeRow(*row))
	}
	cloned := s.isClonedMachine(name)
	seen, early := t.early[f.node][row.Seq]
	switch {
	case early && sameRow(seen, *row) && cloned:
		t.recordRowOwner(s, name, f.node, row.Seq)
		return
	case early && !cloned:
		delete(t.early[f.node], row.Seq)
		if !sameRow(seen, *row) {
			t.reportAlteredRow(s, name, seen, *row)
		}
		return
	case row.Seq <= t.applied[f.node] && !cloned:
		return // it was applied before the journal was observed
	}
	f.rows[row.Seq] = rowFact{leanRow(row), s.now}
	if len(f.rows) > keptRows {
		delete(f.rows, row.Seq-keptRows)
	}
}

// leanRow returns a row with only the fields that are compared or shown.
func leanRow(t *fleet.Transition) fleet.Transition {
	l := fleet.Transition{
		Seq: t.Seq, BootID: t.BootID, Mono: t.Mono, Wall: t.Wall, Kind: t.Kind, Alloc: t.Alloc, Task: t.Task,
		ClientStatus: t.ClientStatus, Dropped: t.Dropped,
	}
	if t.Event != nil {
		l.Event = &fleet.TaskEvent{Type: t.Event.Type}
	}
	return l
}

// judgeAppliedRows compares a node's applied rows with the journals of its edges, and removes them from the
// rows that have to be applied. Rows that no journal was seen to hold are kept as early.
func (t *delivery) judgeAppliedRows(s *runContext, k nodeRows) {
	s.countJudgement(ExactlyOnce)
	cloned := s.isClonedMachine(s.registry.edgeNameOf(k.node))
	for i := range k.rows {
		row := &k.rows[i]
		t.applied[k.node] = max(t.applied[k.node], row.Seq)
		var same []string
		differs := ""
		for name, f := range t.edges {
			held, ok := f.rows[row.Seq]
			switch {
			case !ok || f.node != k.node:
			case sameRow(held.row, *row):
				same = append(same, name)
			default:
				differs = name
			}
		}
		switch {
		case len(same) == 1 && cloned:
			t.recordRowOwner(s, same[0], k.node, row.Seq)
		case len(same) == 0 && differs != "" && !cloned:
			t.reportAlteredRow(s, differs, *row, t.edges[differs].rows[row.Seq].row)
			delete(t.edges[differs].rows, row.Seq)
		case len(same) == 0:
			t.keepEarly(k.node, row)
		}
		for _, name := range same {
			delete(t.edges[name].rows, row.Seq)
		}
	}
}

// keptEarly bounds how many applied rows of a node are kept until its journal is observed.
const keptEarly = 20_000

// keepEarly keeps an applied row until its journal shows it, and drops the row that is keptEarly rows older.
func (t *delivery) keepEarly(node fleet.NodeID, row *fleet.Transition) {
	if t.early[node] == nil {
		t.early[node] = map[fleet.Seq]fleet.Transition{}
	}
	t.early[node][row.Seq] = leanRow(row)
	delete(t.early[node], row.Seq-keptEarly)
}

// reportAlteredRow reports a row whose applied content differs from the journal.
func (t *delivery) reportAlteredRow(s *runContext, name string, applied, journaled fleet.Transition) {
	s.reportViolation(ExactlyOnce, name, "row %d was applied as %s, the journal says %s", applied.Seq, describeRow(applied), describeRow(journaled))
}

// recordRowOwner records which of several machines with one identity had its row applied: the one that journaled it,
// while the others have another row of its number. It reports a second machine whose rows are applied.
func (t *delivery) recordRowOwner(s *runContext, name string, node fleet.NodeID, seq fleet.Seq) {
	for other, f := range t.edges {
		if _, ok := f.rows[seq]; other != name && f.node == node && !ok {
			return // its row of this number is not known yet
		}
	}
	s.countJudgement(Fencing)
	if before := t.owner[node]; before != "" && before != name {
		s.reportViolation(Fencing, name, "row %d of this machine was applied, after rows of %s: they have one identity and two journals", seq, before)
	}
	t.owner[node] = name
}

// judgeRecordedRows compares the rows that an entry adds to allocations' histories with the rows that it
// applies: the same ones, in rising order.
func (t *delivery) judgeRecordedRows(s *runContext, a *Applied) {
	for _, r := range a.Effects.Recorded {
		s.countJudgement(ExactlyOnce)
		want, logged := rowsOf(s.newRows, r)
		for i := 1; i < len(r.Rows); i++ {
			if r.Rows[i] <= r.Rows[i-1] {
				s.reportViolation(ExactlyOnce, s.registry.edgeNameOf(r.Node), "entry %d records row %d of allocation %s after row %d",
					a.Index, r.Rows[i], fleet.Short(r.Alloc), r.Rows[i-1])
			}
		}
		if logged && !r.Full && !slices.Equal(want, r.Rows) {
			s.reportWithEvidence(ExactlyOnce, s.registry.edgeNameOf(r.Node), []string{fmt.Sprintf("applied now: %v", want), fmt.Sprintf("recorded: %v", r.Rows)},
				"entry %d does not record the rows of allocation %s that it applies", a.Index, fleet.Short(r.Alloc))
		}
	}
}

// rowsOf returns the numbers of the rows about the allocation of r. ok is false if the applied rows of its node are
// unknown.
func rowsOf(all []nodeRows, r Recorded) (seqs []fleet.Seq, ok bool) {
	for _, k := range all {
		ok = ok || k.node == r.Node
		for _, row := range k.rows {
			if k.node == r.Node && row.Alloc == r.Alloc {
				seqs = append(seqs, row.Seq)
			}
		}
	}
	return seqs, ok
}

// judgeOverdueRows reports, for each edge, the next row to apply if it waits longer than Limits.Deliver over a working
// link.
func (t *delivery) judgeOverdueRows(s *runContext) {
	for name, f := range t.edges {
		applied, logged := t.applied[f.node]
		oldest, ok := f.rows[applied+1]
		if !logged || !ok || f.connected < 0 || !s.isOverdue(name, max(oldest.at, f.connected), s.limits.Deliver) {
			continue
		}
		s.reportViolation(ExactlyOnce, name, "row %d (%s) was journaled at %s and is not applied, over a link that works since %s",
			applied+1, describeRow(oldest.row), oldest.at, f.connected)
		delete(f.rows, applied+1)
	}
}
