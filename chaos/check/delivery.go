package check

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"skerry/fleet"
)

// delivery follows each row from the journal to the log. A journaled row is applied, unchanged,
// and soon where the link works. A row that an edge is told is applied is in the log.
type delivery struct {
	edges map[string]*journalFact
	// early are rows that were applied before anybody looked into the journal.
	early map[fleet.NodeID]map[fleet.Seq]fleet.Transition
	// owner is whose rows count, of a node that several machines take themselves for.
	owner   map[fleet.NodeID]string
	applied map[fleet.NodeID]fleet.Seq
}

// journalFact is an edge's journal as far as it was looked at.
type journalFact struct {
	node         fleet.NodeID
	last         fleet.Seq
	acknowledged fleet.Seq
	dropped      uint64
	agentSince   int64         // of the agent that said so
	connected    time.Duration // since when; -1: it is not
	// behind says that the cluster was put back, and has not caught up with what it
	// had acknowledged.
	behind bool
	rows   map[fleet.Seq]rowFact
}

// rowFact is a journaled row that is not known to be applied.
type rowFact struct {
	row fleet.Transition // without what it says in many words
	at  time.Duration    // when it was seen
}

// keptRows bounds how many rows of one edge are remembered; the oldest go.
const keptRows = 200_000

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

func (t *delivery) judgeEntryRows(s *runContext, a *Applied) {
	for _, taken := range s.newRows {
		t.judgeAppliedRows(s, taken)
	}
	if opened := a.Effects.Opened; opened != nil {
		t.applied[opened.Node] = max(t.applied[opened.Node], opened.Applied)
	}
	t.judgeRecordedRows(s, a)
}

func (t *delivery) journalFactOf(name string) *journalFact {
	if t.edges[name] == nil {
		t.edges[name] = &journalFact{connected: -1, rows: map[fleet.Seq]rowFact{}}
	}
	return t.edges[name]
}

// resetProcessMemory has the next look count anew what a process keeps in memory alone.
func (f *journalFact) resetProcessMemory() { f.acknowledged, f.connected = 0, -1 }

// forgetAfterFault forgets what a fault makes worthless.
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

// judgeJournal takes what a journal holds that was not seen before.
func (t *delivery) judgeJournal(s *runContext, e *Edge) {
	f := t.journalFactOf(e.Name)
	if e.NodeID != "" {
		f.node = e.NodeID
	}
	if s.faults.hasFaultNow(e.Name, Damages) || e.Journal != nil && e.Journal.Lost != "" {
		// Its rows get other numbers when a hub has been told.
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
	if n := len(e.Rows); n > 0 { // they may have been read a moment later
		f.last = max(f.last, e.Rows[n-1].Seq)
	}
	t.judgeAcknowledgedRow(s, e.Name, f, e.Journal)
	t.judgeJournalBounds(s, e.Name, f, e.Journal)
	f.recordLinkState(s.now, e.Link)
}

func (f *journalFact) recordLinkState(now time.Duration, l *Link) {
	switch {
	case l == nil || !l.Connected:
		f.connected = -1
	case f.connected < 0:
		f.connected = now
	}
}

func (t *delivery) judgeAcknowledgedRow(s *runContext, name string, f *journalFact, j *Journal) {
	s.countJudgement(AcknowledgedSurvives)
	s.countJudgement(NeverBack)
	applied, logged := t.applied[f.node]
	f.behind = f.behind && (!logged || j.Acknowledged > applied)
	switch {
	case f.behind || s.isClonedMachine(name):
	case j.Acknowledged < f.acknowledged:
		s.reportViolation(NeverBack, name, "the acknowledged row went from %d back to %d", f.acknowledged, j.Acknowledged)
	case logged && j.Acknowledged > f.acknowledged && j.Acknowledged > applied:
		s.reportViolation(AcknowledgedSurvives, name, "the edge was told that row %d is applied: the log has rows up to %d", j.Acknowledged, applied)
	}
	f.acknowledged = j.Acknowledged
	if !s.entries { // the edge's word is all there is
		maps.DeleteFunc(f.rows, func(seq fleet.Seq, _ rowFact) bool { return seq <= j.Acknowledged })
	}
}

// judgeJournalBounds judges how much waits at the edge.
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

// recordJournaledRow takes a row that an edge holds.
func (t *delivery) recordJournaledRow(s *runContext, name string, f *journalFact, row *fleet.Transition) {
	s.countJudgement(ExactlyOnce)
	if held, ok := f.rows[row.Seq]; ok && !equal(held.row, *row) {
		s.reportViolation(ExactlyOnce, name, "row %d of the journal was %s and is %s now", row.Seq, describe(held.row), describe(*row))
	}
	cloned := s.isClonedMachine(name)
	seen, early := t.early[f.node][row.Seq]
	switch {
	case early && equal(seen, *row) && cloned:
		t.recordRowOwner(s, name, f.node, row.Seq)
		return
	case early && !cloned:
		delete(t.early[f.node], row.Seq)
		if !equal(seen, *row) {
			t.reportAlteredRow(s, name, seen, *row)
		}
		return
	case row.Seq <= t.applied[f.node] && !cloned:
		return // it was applied before anybody looked
	}
	f.rows[row.Seq] = rowFact{lean(row), s.now}
	if len(f.rows) > keptRows {
		delete(f.rows, row.Seq-keptRows)
	}
}

// lean is a row without what nothing is compared by.
func lean(t *fleet.Transition) fleet.Transition {
	l := fleet.Transition{
		Seq: t.Seq, BootID: t.BootID, Mono: t.Mono, Wall: t.Wall, Kind: t.Kind, Alloc: t.Alloc, Task: t.Task,
		ClientStatus: t.ClientStatus, Dropped: t.Dropped,
	}
	if t.Event != nil {
		l.Event = &fleet.TaskEvent{Type: t.Event.Type}
	}
	return l
}

// judgeAppliedRows holds rows that were applied against the journals that they come from.
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
			case equal(held.row, *row):
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

// keptEarly bounds how many applied rows wait for a look into their journal.
const keptEarly = 20_000

func (t *delivery) keepEarly(node fleet.NodeID, row *fleet.Transition) {
	if t.early[node] == nil {
		t.early[node] = map[fleet.Seq]fleet.Transition{}
	}
	t.early[node][row.Seq] = lean(row)
	delete(t.early[node], row.Seq-keptEarly)
}

func (t *delivery) reportAlteredRow(s *runContext, name string, applied, journaled fleet.Transition) {
	s.reportViolation(ExactlyOnce, name, "row %d was applied as %s, the journal says %s", applied.Seq, describe(applied), describe(journaled))
}

// recordRowOwner notes whose rows count, of a node that several machines take themselves for:
// this one has a row that was applied, and the others have another one of its
// number.
func (t *delivery) recordRowOwner(s *runContext, name string, node fleet.NodeID, seq fleet.Seq) {
	for other, f := range t.edges {
		if _, ok := f.rows[seq]; other != name && f.node == node && !ok {
			return // nobody has looked so far
		}
	}
	s.countJudgement(Fencing)
	if before := t.owner[node]; before != "" && before != name {
		s.reportViolation(Fencing, name, "row %d of this machine was applied, after rows of %s: they have one identity and two journals", seq, before)
	}
	t.owner[node] = name
}

// judgeRecordedRows holds what histories have against the rows that an entry applied.
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
				"entry %d does not record of allocation %s what it applies", a.Index, fleet.Short(r.Alloc))
		}
	}
}

// rowsOf are the numbers of the rows taken that concern an allocation; ok is false
// where it is not known what was taken of its node.
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

// judgeOverdueRows looks for rows that are not applied though the link works.
func (t *delivery) judgeOverdueRows(s *runContext) {
	for name, f := range t.edges {
		applied, logged := t.applied[f.node]
		oldest, ok := f.rows[applied+1]
		if !logged || !ok || f.connected < 0 || !s.isOverdue(name, max(oldest.at, f.connected), s.limits.Deliver) {
			continue
		}
		s.reportViolation(ExactlyOnce, name, "row %d (%s) was journaled at %s and is not applied, over a link that works since %s",
			applied+1, describe(oldest.row), oldest.at, f.connected)
		delete(f.rows, applied+1)
	}
}
