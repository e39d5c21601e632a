package check

import (
	"fmt"
	"math"
	"slices"
	"time"

	"skerry/fleet"
)

func durationOf(nanos int64) time.Duration { return time.Duration(nanos) }

// clients gathers what clients asked for and were told, job by job, and judges it
// in pieces: where a read stands alone, everything before it is over, and what it
// says is what the next piece begins with.
type clients struct {
	jobs map[fleet.JobID]*asking
	// rewound is when the hubs were put back last: what is older says nothing, and what
	// a job is since then is not known.
	rewound time.Duration
	wild    bool
}

// asking is one job's piece of history.
type asking struct {
	first jobState
	ops   []Operation // in the order of their return
	ends  []int64
	from  time.Duration // ops that were called before came too late
	last  time.Duration // when the newest one came
}

const (
	// pieceOps is from how many operations on a piece is ended where it can be.
	pieceOps = 48
	// maxPiece bounds a piece; a history that cannot be cut for so long is given up.
	maxPiece = 2000
	// longestCall is how long an operation may be under way: a piece ends before what
	// may still return.
	longestCall = 2 * time.Minute
	// forgottenCall is for how long an operation of unknown outcome may take effect.
	forgottenCall = time.Hour
	shownOps      = 24
)

func newClients() *clients { return &clients{jobs: map[fleet.JobID]*asking{}} }

func (t *clients) see(s *scene, o *Observation) {
	switch {
	case o.Operation != nil:
		t.operation(s, o)
	case o.Fault.rewinds(): // what was written may be gone: an operator did that
		for _, j := range t.jobs {
			j.restart(s.now)
		}
		t.rewound, t.wild = s.now, true
	}
}

func (t *clients) operation(s *scene, o *Observation) {
	op := *o.Operation
	switch op.Outcome {
	case OutcomeUnknown:
		s.reach(BranchUnknownOutcome)
	case OutcomeConflict:
		s.reach(BranchConflict)
	}
	j := t.jobs[op.Job]
	if j == nil {
		j = &asking{first: jobState{wild: t.wild}, from: t.rewound}
		t.jobs[op.Job] = j
	}
	if op.Call < j.from && !j.first.wild || len(j.ops) > maxPiece {
		s.undecided[Linearizable]++
		j.restart(s.now)
	}
	end := int64(o.At)
	if op.Call < j.from { // it may have taken place before, or not
		if op.Does == OpRead {
			return
		}
		op.Outcome, op.Modify, end = OutcomeUnknown, 0, math.MaxInt64
	}
	j.ops, j.ends, j.last = append(j.ops, op), append(j.ends, end), s.now
	if len(j.ops) >= pieceOps && len(j.ops)%8 == 0 {
		j.cut(s, op.Job)
	}
}

// restart begins a new piece, from a state of which nothing is known.
func (j *asking) restart(now time.Duration) {
	ops, ends := j.pending(len(j.ops), now)
	*j = asking{first: jobState{wild: true}, ops: ops, ends: ends, from: now, last: now}
}

// pending are those of the first n operations that may still take effect.
func (j *asking) pending(n int, now time.Duration) (ops []Operation, ends []int64) {
	for _, op := range j.ops[:n] {
		if op.Outcome == OutcomeUnknown && op.Does != OpRead && !j.seen(op.Tag, n) && now-op.Call < forgottenCall {
			ops, ends = append(ops, op), append(ends, math.MaxInt64)
		}
	}
	return ops, ends
}

// cut judges and forgets what is over.
func (j *asking) cut(s *scene, id fleet.JobID) {
	n := j.alone(int64(s.now - longestCall))
	if n < pieceOps/2 {
		return
	}
	if !j.judge(s, id, n) {
		j.restart(s.now)
		return
	}
	last, end := j.ops[n-1], j.ends[n-1]
	ops, ends := j.pending(n, s.now)
	j.first = jobState{wild: true}.tamed(&last)
	j.ops, j.ends = append(ops, j.ops[n:]...), append(ends, j.ends[n:]...)
	j.from = time.Duration(end)
}

// alone is how many operations there are up to the last read that had an answer
// before a time, and that nothing else overlapped; 0: there is none.
func (j *asking) alone(before int64) int {
	for n := len(j.ops); n > 0; n-- {
		op := &j.ops[n-1]
		if op.Does == OpRead && (op.Outcome == OutcomeOK || op.Outcome == OutcomeNotFound) && j.ends[n-1] < before && j.apart(n-1) {
			return n
		}
	}
	return 0
}

// apart reports whether an operation overlaps no other one whose outcome is known.
func (j *asking) apart(i int) bool {
	call, end := int64(j.ops[i].Call), j.ends[i]
	for k := range j.ops {
		known := j.ops[k].Outcome != OutcomeUnknown
		if k != i && known && int64(j.ops[k].Call) <= end && j.ends[k] >= call {
			return false
		}
		if k > i && int64(j.ops[k].Call) <= end {
			return false
		}
	}
	return true
}

// seen reports whether one of the first n reads saw a tag: its registration took
// place.
func (j *asking) seen(tag string, n int) bool {
	return tag != "" && slices.ContainsFunc(j.ops[:n], func(op Operation) bool { return op.Does == OpRead && op.Tag == tag })
}

// judge judges the first n operations, and reports whether they are legal.
func (j *asking) judge(s *scene, id fleet.JobID, n int) bool {
	part, ends := j.ops[:n], j.ends[:n]
	s.judge(Linearizable)
	switch linearize(j.first, part, ends, s.limits.Linearize) {
	case Legal:
		return true
	case Undecided:
		s.undecided[Linearizable]++
		return false
	}
	legal := firstIllegal(j.first, part, ends, s.limits.Linearize)
	var lines []string
	if j.first.exists {
		lines = append(lines, fmt.Sprintf("before: %q at %d, stopped: %t", j.first.tag, j.first.modify, j.first.stopped))
	}
	for i := max(0, legal+1-shownOps); i <= legal; i++ {
		lines = append(lines, part[i].describe(ends[i]))
	}
	s.shown(Linearizable, string(id), lines, "nothing explains the last of these answers: %s", part[legal].describe(ends[legal]))
	return false
}

// tick judges and forgets jobs that nobody has asked about for long.
func (t *clients) tick(s *scene) {
	for id, j := range t.jobs {
		if s.now-j.last > forgottenCall {
			j.judge(s, id, len(j.ops))
			delete(t.jobs, id)
			t.wild = true // whoever is asked about next may have been among them
		}
	}
}

func (t *clients) end(s *scene, _ *Picture) {
	for _, id := range sorted(t.jobs) {
		if j := t.jobs[id]; len(j.ops) > 0 {
			j.judge(s, id, len(j.ops))
		}
	}
}
