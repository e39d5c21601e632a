package check

import (
	"cmp"
	"fmt"
	"time"

	"skerry/fleet"
)

// replicas compares the entries that hubs apply. An entry has the same command and the same result on every
// hub, and never becomes another one later. It also checks that each acknowledged registration is applied.
type replicas struct {
	entries []entry                // a ring, by index
	hubs    map[string]fleet.Index // the newest entry of each hub since its start; 0: it has applied none
	lives   int                    // starts of any hub so far

	// written are applied registrations, by job and tag. owed are registrations that clients got an answer for and
	// that no hub was observed to apply yet.
	written recent[written, fleet.Index]
	owed    []owed
}

// entry is an entry as the first hub applied it, without its effects. lives is the number of starts of hubs
// until then.
type entry struct {
	Applied
	lives int
}

// written identifies a registration of a job by the tag in the job's meta.
type written struct {
	job fleet.JobID
	tag string
}

// owed is an acknowledged registration that was not seen to be applied, with the time of its observation.
type owed struct {
	Operation
	at time.Duration
}

// keptEntries is the number of newest entries that are compared. A hub that is further behind installs a
// snapshot.
const keptEntries = 8192

// keptWrites bounds the applied registrations that are remembered. The oldest are dropped.
const keptWrites = 4096

// newReplicas returns the checker that compares the entries of hubs.
func newReplicas() checker {
	t := &replicas{entries: make([]entry, keptEntries), hubs: map[string]fleet.Index{}, written: newRecent[written, fleet.Index](keptWrites)}
	return checker{
		state: t, applied: t.judgeAppliedEntry, process: t.recordHubStart, operation: t.judgeClientWrite, snapshot: t.judgeRestoredState, rewind: t.forgetEntries,
		tick: func(s *runContext) { t.judgeUnappliedWrites(s, s.limits.Slack) }, finish: t.judgeFinalStates,
	}
}

// ringEntryAt returns the element of the ring for an index. It may hold an older entry.
func (t *replicas) ringEntryAt(i fleet.Index) *entry { return &t.entries[i%keptEntries] }

// recordHubStart records that a hub started: it may apply entries of its log again.
func (t *replicas) recordHubStart(_ *runContext, p *Process) {
	if p.What == ProcessStart {
		t.lives++
		t.hubs[p.Name] = 0
	}
}

// forgetEntries drops everything, because restored hubs use indexes again.
func (t *replicas) forgetEntries(*runContext) {
	clear(t.entries)
	clear(t.hubs)
	t.written, t.owed = newRecent[written, fleet.Index](keptWrites), nil
}

// judgeRestoredState reports a state that differs after it was written as a snapshot and restored.
func (t *replicas) judgeRestoredState(s *runContext, p *Snapshot) {
	s.countJudgement(SameEverywhere)
	switch {
	case p.Failed != "":
		s.reportViolation(SameEverywhere, p.Hub, "its state of entry %d cannot be restored from its snapshot: %s", p.Index, p.Failed)
	case p.State != p.Restored:
		s.reportViolation(SameEverywhere, p.Hub, "its state of entry %d is %s, and %s when it is restored from its snapshot: a field is lost or changed", p.Index, p.State, p.Restored)
	}
}

// judgeAppliedEntry judges that a hub applies entries in rising order, and that the entry is the one that the
// first hub applied. It keeps an entry that is new.
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
	t.recordRegistrations(a.Index, a.Effects)
	t.recordRegistrations(a.Index, a.behindGap)
	switch known := t.ringEntryAt(a.Index); {
	case known.Index < a.Index:
		*known = entry{*a, t.lives}
		known.Effects, known.behindGap = nil, nil
	case known.Index == a.Index:
		t.compareWithFirst(s, a, known)
		known.State = cmp.Or(known.State, a.State)
	}
}

// recordSnapshotInstall counts BranchSnapshotInstalled if a hub skips entries between from and to that another hub
// applied.
func (t *replicas) recordSnapshotInstall(s *runContext, from, to fleet.Index) {
	for i := from + 1; i < to && i-from < keptEntries; i++ {
		if t.ringEntryAt(i).Index == i {
			s.countBranch(BranchSnapshotInstalled)
			return
		}
	}
}

// compareWithFirst reports an entry whose command, term, result or state differs from that of the first hub. A
// command that differs after a hub has restarted means that an acknowledged entry was lost.
func (t *replicas) compareWithFirst(s *runContext, a *Applied, first *entry) {
	var evidence []string
	for _, e := range []*Applied{&first.Applied, a} {
		evidence = append(evidence, fmt.Sprintf("%s: term %d, %s %s, result %s, state %s", e.Hub, e.Term, e.Kind, e.Command, e.Result, e.State))
	}
	switch {
	case (a.Command != first.Command || a.Term != first.Term) && t.lives > first.lives:
		s.reportWithEvidence(AcknowledgedSurvives, a.Hub, evidence, "entry %d was applied, and has another command or term now", a.Index)
	case a.Command != first.Command || a.Term != first.Term:
		s.reportWithEvidence(SameEverywhere, a.Hub, evidence, "entry %d is not the one that %s applied", a.Index, first.Hub)
	case a.Result != first.Result:
		s.reportWithEvidence(SameEverywhere, a.Hub, evidence, "entry %d (%s) gives another result than on %s", a.Index, a.Kind, first.Hub)
	case a.State != "" && first.State != "" && a.State != first.State:
		s.reportWithEvidence(SameEverywhere, a.Hub, evidence, "after entry %d (%s) the state is not the one of %s", a.Index, a.Kind, first.Hub)
	}
}

// recordRegistrations records the registrations with a tag that an entry applied. nil: its effects were not observed.
func (t *replicas) recordRegistrations(index fleet.Index, e *Effects) {
	if e == nil {
		return
	}
	for _, j := range e.Jobs {
		if j.Tag != "" {
			t.written.addEntry(written{j.Job, j.Tag}, index)
		}
	}
}

// judgeClientWrite records an acknowledged registration as owed if it was not observed to be applied. It does so only
// while entries are observed and hubs are not being rewound.
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

// judgeUnappliedWrites reports owed registrations that no hub has applied within patience, and drops those that
// were applied.
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

// judgeFinalStates reports owed registrations at the run's end, and hubs whose states differ at the same entry.
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
