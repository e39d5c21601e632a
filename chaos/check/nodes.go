package check

import (
	"fmt"

	"skerry/fleet"
)

// nodes is a simple model of each node's session and journal. It follows the log entry by entry, and checks
// every session and every batch of rows against it.
type nodes map[fleet.NodeID]*nodeFact

// nodeFact is a node after the newest entry that concerned it: its newest session, with the node's status and
// applied row since.
type nodeFact struct {
	Opened
	logged bool // an entry set it, not only hubs' views
	moved  bool // it missed its deadline since its last session

	// viewed is the newest applied row that any hub showed, and viewedEpoch the epoch of that view.
	viewed      fleet.Seq
	viewedEpoch fleet.Epoch
	// from is the applied row when the newest session opened, and term the term of that entry.
	from fleet.Seq
	term uint64
}

// nodeRows are the rows of a batch that an entry applied for the first time.
type nodeRows struct {
	node fleet.NodeID
	rows []fleet.Transition
}

// newChecker returns the checker that fills this map.
func (t nodes) newChecker() checker {
	return checker{state: t, entry: t.judgeNodeEntry, hub: t.judgeNodeViews, rewind: func(*runContext) { clear(t) }}
}

// judgeNodeEntry judges an entry's sessions, missed deadlines and batches, in this order, and sets s.newRows to
// the rows that it applies first.
func (t nodes) judgeNodeEntry(s *runContext, a *Applied) {
	e := a.Effects
	s.newRows = s.newRows[:0]
	if e.Opened != nil {
		t.judgeOpenedSession(s, a, e.Opened)
	}
	for _, m := range e.Moved {
		n := ensure(t, m.Node)
		n.Status, n.moved = m.Status, true
		s.countJudgement(Fencing)
		if m.Epoch != m.Newest {
			s.reportViolation(Fencing, s.registry.edgeNameOf(m.Node), "entry %d makes the node %s by a missed deadline of epoch %d: its session has epoch %d",
				a.Index, m.Status, m.Epoch, m.Newest)
		}
	}
	for i := range e.Batches {
		if b := &e.Batches[i]; b.Code == "" && len(b.Rows) > 0 {
			t.judgeBatch(s, a, b)
		}
	}
}

// judgeOpenedSession judges that a session has a newer epoch and number than the last one and continues at the
// same row, and that the node is not ready before its history. It then makes it the node's session.
func (t nodes) judgeOpenedSession(s *runContext, a *Applied, o *Opened) {
	name := s.registry.edgeNameOf(o.Node)
	n := ensure(t, o.Node)
	known := n.logged
	s.countJudgement(Fencing)
	s.countJudgement(NeverBack)
	s.countJudgement(HeartbeatFirst)
	switch {
	case known && (o.Epoch <= n.Epoch || o.Session <= n.Session):
		s.reportViolation(Fencing, name, "entry %d commits session %d with epoch %d, after session %d with epoch %d",
			a.Index, o.Session, o.Epoch, n.Session, n.Epoch)
	case known && o.Applied < n.Applied:
		s.reportViolation(NeverBack, name, "entry %d opens a session at row %d: the cluster had applied row %d", a.Index, o.Applied, n.Applied)
	case known && o.Applied > n.Applied:
		s.reportViolation(Sequence, name, "entry %d opens a session at row %d: only row %d was ever applied", a.Index, o.Applied, n.Applied)
	}
	blip := n.Status == fleet.NodeReady && !n.moved && o.Lost == ""
	if known && !blip && o.Status == fleet.NodeReady && o.Applied < o.Head {
		s.reportViolation(HeartbeatFirst, name, "entry %d makes the node ready at row %d: its session announced rows up to %d", a.Index, o.Applied, o.Head)
	}
	if known && !n.moved && n.Status == fleet.NodeReady {
		s.countBranch(BranchSessionTakenOver)
	}
	if o.Lost != "" {
		s.countBranch(BranchJournalRebuilt)
	}
	*n = nodeFact{Opened: *o, logged: true, viewed: n.viewed, viewedEpoch: n.viewedEpoch, from: o.Applied, term: a.Term}
}

// judgeBatch judges a batch of applied rows: its epoch, the node's status and the sequence. The first batch of
// an unknown node only sets the model.
func (t nodes) judgeBatch(s *runContext, a *Applied, b *Batch) {
	name := s.registry.edgeNameOf(b.Node)
	n := ensure(t, b.Node)
	if !n.logged { // the node's earlier session is unknown
		n.logged, n.Epoch, n.Status, n.Applied, n.from = true, b.Epoch, b.Status, b.Applied, b.Applied
		return
	}
	s.countJudgement(Fencing)
	s.countJudgement(HeartbeatFirst)
	switch {
	case b.Epoch != n.Epoch:
		s.reportViolation(Fencing, name, "entry %d applies rows of epoch %d: the node's session has epoch %d", a.Index, b.Epoch, n.Epoch)
	case n.Status != fleet.NodeInitializing && n.Status != fleet.NodeReady:
		s.reportViolation(HeartbeatFirst, name, "entry %d applies rows from %d on though the node is %s: it has sent no heartbeat since",
			a.Index, b.First, n.Status)
	}
	t.judgeRowSequence(s, a, b, n)
	before := n.Status
	n.Applied, n.Status = b.Applied, b.Status
	if before != fleet.NodeReady && n.Status == fleet.NodeReady {
		t.judgeReadyNode(s, a, name, n)
	}
}

// judgeRowSequence judges a batch's sequence numbers and the applied row after it. It adds the rows that are
// new to s.newRows.
func (t nodes) judgeRowSequence(s *runContext, a *Applied, b *Batch, n *nodeFact) {
	name := s.registry.edgeNameOf(b.Node)
	s.countJudgement(Sequence)
	s.countJudgement(NeverBack)
	for i, row := range b.Rows {
		if row.Seq != b.First+fleet.Seq(i) {
			s.reportViolation(Sequence, name, "entry %d: row %d of a batch from %d on is applied as row %d", a.Index, i, b.First, row.Seq)
			return
		}
	}
	last := b.First + fleet.Seq(len(b.Rows)) - 1
	if b.First > n.Applied+1 {
		excused := b.Base && (s.isClonedMachine(name) || s.faults.hasEverHadFault(name, Damages) || s.faults.hasBeenRewound())
		if !excused {
			s.reportWithEvidence(Sequence, name, []string{fmt.Sprintf("applied before: %d", n.Applied), fmt.Sprintf("batch: %d to %d, new base: %t", b.First, last, b.Base)},
				"entry %d applies rows after a gap: rows %d to %d were never applied", a.Index, n.Applied+1, b.First-1)
		}
		s.countBranch(BranchNewBase)
	}
	after := max(n.Applied, last)
	switch {
	case b.Applied < n.Applied:
		s.reportViolation(NeverBack, name, "entry %d sets the applied row from %d back to %d", a.Index, n.Applied, b.Applied)
	case b.Applied > after:
		s.reportViolation(Sequence, name, "entry %d says that row %d is applied: the batch ends at %d", a.Index, b.Applied, last)
	case b.Applied < after:
		s.reportViolation(ExactlyOnce, name, "entry %d took a batch up to row %d and applied only row %d", a.Index, last, b.Applied)
	}
	skip := min(max(n.Applied+1, b.First)-b.First, fleet.Seq(len(b.Rows)))
	s.newRows = append(s.newRows, nodeRows{b.Node, b.Rows[skip:]})
	if b.First <= n.Applied {
		s.countBranch(BranchRowsRepeated)
	}
}

// judgeReadyNode judges a node that a batch makes ready: all rows that its session announced are applied.
func (t nodes) judgeReadyNode(s *runContext, a *Applied, name string, n *nodeFact) {
	if n.Applied < n.Head {
		s.reportViolation(HeartbeatFirst, name, "entry %d makes the node ready at row %d: its session announced rows up to %d", a.Index, n.Applied, n.Head)
	}
	if n.Applied-n.from > longReplay {
		s.countBranch(BranchLongReplay)
	}
	if n.term != 0 && a.Term != n.term {
		s.countBranch(BranchLeaderChangedInReplay)
	}
}

// longReplay is the number of rows from which on a replay counts as a long one.
const longReplay = 100

// judgeNodeViews judges that no hub shows an older applied row in a later epoch. Views of several hubs arrive
// in any order; only the epoch orders them.
func (t nodes) judgeNodeViews(s *runContext, h *Hub) {
	for _, n := range h.Nodes {
		s.countJudgement(NeverBack)
		f := ensure(t, n.ID)
		if n.Epoch > f.viewedEpoch && n.Applied < f.viewed {
			s.reportViolation(NeverBack, h.Name, "node %s is at row %d in epoch %d: it was at row %d in epoch %d",
				n.Name, n.Applied, n.Epoch, f.viewed, f.viewedEpoch)
		}
		if n.Applied > f.viewed && n.Epoch >= f.viewedEpoch {
			f.viewed, f.viewedEpoch = n.Applied, n.Epoch
		}
	}
}
