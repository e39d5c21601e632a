package check

import (
	"slices"
	"time"

	"skerry/fleet"
)

// refusals judges that an edge is told of each refusal: a refused batch ends its session with a
// code. It also judges that no edge sends rows before its session's heartbeat.
type refusals struct {
	open   []refusal
	epochs map[fleet.NodeID]fleet.Epoch // of the newest sessions
}

// refusal is a batch that the log refused, and whose edge is to be told.
type refusal struct {
	at      time.Duration
	m       *machine
	node    fleet.NodeID
	code    fleet.Code
	session uint64
	index   fleet.Index
}

// keptRefusals bounds how many wait for an answer.
const keptRefusals = 1000

func newRefusals() checker {
	t := &refusals{epochs: map[fleet.NodeID]fleet.Epoch{}}
	return checker{state: t, entry: t.recordRefusedBatches, refused: t.judgeRefusalMessage, agent: t.forgetRefusalsOf, tick: t.judgeOverdueRefusals}
}

func (t *refusals) recordRefusedBatches(s *runContext, a *Applied) {
	if s.now-s.decided > s.limits.Slack {
		return // hubs that were put back apply it again: who was refused has heard of it long ago
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

func (t *refusals) forgetRefusalsOf(_ *runContext, p *Process) {
	t.removeRefusals(func(r refusal) bool { return r.m.name == p.Name })
}

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
		return // its session is over, whatever it was told
	}
	t.open = append(t.open, refusal{s.now, m, b.Node, b.Code, m.session, index})
}

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

func (t *refusals) removeRefusals(which func(refusal) bool) {
	t.open = slices.DeleteFunc(t.open, which)
}

func (t *refusals) judgeOverdueRefusals(s *runContext) {
	// A session that is over was ended by the refusal, or by a fault.
	t.removeRefusals(func(r refusal) bool { return r.m.connected < 0 || r.m.session != r.session })
	t.removeRefusals(func(r refusal) bool {
		if !s.isOverdue(r.m.name, r.at, s.limits.Refusal) {
			return false
		}
		s.countJudgement(RefusedAloud)
		s.reportViolation(RefusedAloud, r.m.name, "entry %d refused its rows (%s) at %s, and nobody told it: its session %d goes on", r.index, r.code, r.at, r.session)
		return true
	})
}
