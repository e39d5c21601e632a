package check

import (
	"slices"
	"time"

	"skerry/fleet"
)

// refusals checks that an edge learns of each refused batch: the refusal ends its session with a code. It also
// checks that no edge sends rows before its session's first heartbeat.
type refusals struct {
	open   []refusal                    // refusals of which the edge has not learned yet
	epochs map[fleet.NodeID]fleet.Epoch // epoch of each node's newest session
}

// refusal is a batch that an entry refused, until its edge learns of it.
type refusal struct {
	at      time.Duration
	m       *machine
	node    fleet.NodeID
	code    fleet.Code
	session uint64
	index   fleet.Index
}

// keptRefusals bounds the refusals that are awaited at a time. Further ones are not judged.
const keptRefusals = 1000

// newRefusals returns the checker of refused batches.
func newRefusals() checker {
	t := &refusals{epochs: map[fleet.NodeID]fleet.Epoch{}}
	return checker{state: t, entry: t.recordRefusedBatches, refused: t.judgeRefusalMessage, agent: t.forgetRefusalsOf, tick: t.judgeOverdueRefusals}
}

// recordRefusedBatches records an entry's session and its refused batches. Entries that are applied again are
// ignored.
func (t *refusals) recordRefusedBatches(s *runContext, a *Applied) {
	if s.now-s.decided > s.limits.Slack {
		return // rewound hubs apply it again: its edge learned of it the first time
	}
	if opened := a.Effects.Opened; opened != nil {
		t.epochs[opened.Node] = opened.Epoch
	}
	for _, b := range a.Effects.Batches {
		if b.Code != "" {
			t.recordRefusedBatch(s, a.Index, b)
		}
	}
}

// forgetRefusalsOf drops the refusals of an edge whose agent starts or ends: its session is over.
func (t *refusals) forgetRefusalsOf(_ *runContext, p *Process) {
	t.removeRefusals(func(r refusal) bool { return r.m.name == p.Name })
}

// recordRefusedBatch counts a refusal by its code. It awaits that the edge learns of it if the batch is from the
// edge's present session.
func (t *refusals) recordRefusedBatch(s *runContext, index fleet.Index, b Batch) {
	switch b.Code {
	case fleet.CodeStaleEpoch:
		s.countBranch(BranchStaleEpochRefused)
	case fleet.CodeNodeNotReady:
		s.countBranch(BranchNotReadyRefused)
	case fleet.CodeGap:
		s.countBranch(BranchGapRefused)
	}
	m := s.machineOf(b.Node)
	if m == nil || m.connected < 0 || b.Epoch != t.epochs[b.Node] || len(t.open) >= keptRefusals {
		return // its session is over already
	}
	t.open = append(t.open, refusal{s.now, m, b.Node, b.Code, m.session, index})
}

// judgeRefusalMessage judges that a refusal has a code, and reports rows that were refused because no heartbeat came
// first. The edge has then learned of its refusals.
func (t *refusals) judgeRefusalMessage(s *runContext, r *Refused) {
	s.countJudgement(RefusedAloud)
	from := r.From
	if from == "" {
		from = s.registry.edgeNameOf(r.Node)
	}
	if r.Code == "" {
		s.reportViolation(RefusedAloud, r.By, "%s was refused without a code: %q", from, r.Reason)
	}
	if r.Code == fleet.CodeHeartbeatFirst && !s.isClonedMachine(from) {
		s.countJudgement(HeartbeatFirst)
		s.reportViolation(HeartbeatFirst, from, "it sent rows before its session's heartbeat was answered, and %s refused them: %s", r.By, r.Reason)
	}
	t.removeRefusals(func(open refusal) bool { return open.node == r.Node || open.m.name == r.From })
}

// removeRefusals removes the awaited refusals for which which is true.
func (t *refusals) removeRefusals(which func(refusal) bool) {
	t.open = slices.DeleteFunc(t.open, which)
}

// judgeOverdueRefusals reports refusals after which the edge's session goes on for longer than Limits.Refusal
// without faults.
func (t *refusals) judgeOverdueRefusals(s *runContext) {
	// A session that is over was ended by the refusal, or by a fault.
	t.removeRefusals(func(r refusal) bool { return r.m.connected < 0 || r.m.session != r.session })
	t.removeRefusals(func(r refusal) bool {
		if !s.isOverdue(r.m.name, r.at, s.limits.Refusal) {
			return false
		}
		s.countJudgement(RefusedAloud)
		s.reportViolation(RefusedAloud, r.m.name, "entry %d refused its rows (%s) at %s, and the edge was not informed: its session %d goes on", r.index, r.code, r.at, r.session)
		return true
	})
}
