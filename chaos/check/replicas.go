package check

import (
	"cmp"
	"fmt"
	"time"

	"skerry/fleet"
)

// replicas compares what hubs apply: the same entry is the same command with the
// same result on every hub, and what a hub has applied is never another one later.
type replicas struct {
	entries []entry                // a ring, by number
	hubs    map[string]fleet.Index // the newest entry of each, in this life; 0: it has applied nothing
	lives   int                    // starts of any hub so far

	// written are registrations that were applied, by job and tag; owed are those that
	// clients were told of and that no hub has applied yet.
	written recent[written, fleet.Index]
	owed    []owed
}

// entry is an entry as the first hub had it, without its effects.
type entry struct {
	Applied
	lives int
}

type written struct {
	job fleet.JobID
	tag string
}

type owed struct {
	Operation
	at time.Duration
}

// keptEntries is how far back entries are compared. A hub that lags further takes a
// snapshot.
const keptEntries = 8192

// keptWrites is how many registrations are remembered.
const keptWrites = 4096

func newReplicas() checker {
	t := &replicas{entries: make([]entry, keptEntries), hubs: map[string]fleet.Index{}, written: newRecent[written, fleet.Index](keptWrites)}
	return checker{
		state: t, applied: t.judgeAppliedEntry, process: t.recordHubStart, operation: t.judgeClientWrite, snapshot: t.judgeRestoredState, rewind: t.forgetEntries,
		tick: func(s *runContext) { t.judgeUnappliedWrites(s, s.limits.Slack) }, finish: t.judgeFinalStates,
	}
}

// ringEntryAt is the place of an entry in the ring, which may hold an older one.
func (t *replicas) ringEntryAt(i fleet.Index) *entry { return &t.entries[i%keptEntries] }

func (t *replicas) recordHubStart(_ *runContext, p *Process) {
	if p.What == ProcessStart {
		t.lives++
		t.hubs[p.Name] = 0
	}
}

func (t *replicas) forgetEntries(*runContext) {
	clear(t.entries)
	clear(t.hubs)
	t.written, t.owed = newRecent[written, fleet.Index](keptWrites), nil
}

// judgeRestoredState holds a state that was read from its own snapshot against what was written.
func (t *replicas) judgeRestoredState(s *runContext, p *Snapshot) {
	s.countJudgement(SameEverywhere)
	switch {
	case p.Failed != "":
		s.reportViolation(SameEverywhere, p.Hub, "its state of entry %d cannot be restored from its snapshot: %s", p.Index, p.Failed)
	case p.State != p.Restored:
		s.reportViolation(SameEverywhere, p.Hub, "its state of entry %d is %s, and %s when it is restored from its snapshot: a field is lost or changed", p.Index, p.State, p.Restored)
	}
}

func (t *replicas) judgeAppliedEntry(s *runContext, a *Applied) {
	s.countJudgement(SameEverywhere)
	s.countJudgement(AcknowledgedSurvives)
	if last := t.hubs[a.Hub]; last > 0 {
		if a.Index <= last {
			s.reportViolation(SameEverywhere, a.Hub, "it applies entry %d after entry %d", a.Index, last)
		}
		t.recordSnapshotInstall(s, last, a.Index)
	}
	t.hubs[a.Hub] = a.Index
	if a.Effects != nil {
		t.recordRegistrations(a)
	}
	switch known := t.ringEntryAt(a.Index); {
	case known.Index < a.Index:
		*known = entry{*a, t.lives}
		known.Effects = nil
	case known.Index == a.Index:
		t.compareWithFirst(s, a, known)
		known.State = cmp.Or(known.State, a.State)
	}
}

// recordSnapshotInstall notices a hub that went past entries which another hub applied: it took
// a snapshot.
func (t *replicas) recordSnapshotInstall(s *runContext, from, to fleet.Index) {
	for i := from + 1; i < to && i-from < keptEntries; i++ {
		if t.ringEntryAt(i).Index == i {
			s.countBranch(BranchSnapshotInstalled)
			return
		}
	}
}

// compareWithFirst holds an entry against what the first hub had.
func (t *replicas) compareWithFirst(s *runContext, a *Applied, first *entry) {
	var evidence []string
	for _, e := range []*Applied{&first.Applied, a} {
		evidence = append(evidence, fmt.Sprintf("%s: term %d, %s %s, result %s, state %s", e.Hub, e.Term, e.Kind, e.Command, e.Result, e.State))
	}
	switch {
	case (a.Command != first.Command || a.Term != first.Term) && t.lives > first.lives:
		s.reportWithEvidence(AcknowledgedSurvives, a.Hub, evidence, "entry %d was applied and is another one now", a.Index)
	case a.Command != first.Command || a.Term != first.Term:
		s.reportWithEvidence(SameEverywhere, a.Hub, evidence, "entry %d is not the one that %s applied", a.Index, first.Hub)
	case a.Result != first.Result:
		s.reportWithEvidence(SameEverywhere, a.Hub, evidence, "entry %d (%s) gives another result than on %s", a.Index, a.Kind, first.Hub)
	case a.State != "" && first.State != "" && a.State != first.State:
		s.reportWithEvidence(SameEverywhere, a.Hub, evidence, "after entry %d (%s) the state is not the one of %s", a.Index, a.Kind, first.Hub)
	}
}

// recordRegistrations remembers which registrations were applied.
func (t *replicas) recordRegistrations(a *Applied) {
	for _, j := range a.Effects.Jobs {
		if j.Tag != "" {
			t.written.addEntry(written{j.Job, j.Tag}, a.Index)
		}
	}
}

// judgeClientWrite holds what a client was told against what hubs applied.
func (t *replicas) judgeClientWrite(s *runContext, o *Observation) {
	op := o.Operation
	if op.Does != OpRegister || op.Outcome != OutcomeOK || op.Tag == "" || !s.entries || s.faults.isRewindActive() {
		return
	}
	s.countJudgement(AcknowledgedSurvives)
	if _, ok := t.written.known[written{op.Job, op.Tag}]; !ok {
		t.owed = append(t.owed, owed{*op, s.now})
	}
}

// judgeUnappliedWrites looks for what was acknowledged and that nobody applied within a while.
func (t *replicas) judgeUnappliedWrites(s *runContext, patience time.Duration) {
	left := t.owed[:0]
	for _, o := range t.owed {
		_, ok := t.written.known[written{o.Job, o.Tag}]
		switch {
		case ok:
		case s.now-o.at > patience:
			s.reportViolation(AcknowledgedSurvives, string(o.Job), "client %s was told at %s that %q is registered: no hub has applied it",
				o.Client, o.at, o.Tag)
		default:
			left = append(left, o)
		}
	}
	t.owed = left
}

func (t *replicas) judgeFinalStates(s *runContext, p *FleetSnapshot) {
	t.judgeUnappliedWrites(s, 0)
	at := map[fleet.Index]*Hub{}
	for i := range p.Hubs {
		h := &p.Hubs[i]
		if h.State == "" {
			continue
		}
		first := at[h.Index]
		if first == nil {
			at[h.Index] = h
			continue
		}
		s.countJudgement(SameEverywhere)
		if h.State != first.State {
			s.reportWithEvidence(SameEverywhere, h.Name, []string{first.Name + ": state " + first.State, h.Name + ": state " + h.State},
				"at the end, after entry %d, the state is not the one of %s", h.Index, first.Name)
		}
	}
}
