package check

import (
	"fmt"
	"math"
	"slices"
	"time"

	"skerry/fleet"
)

// clients gathers what clients asked for and were told, job by job, and judges it
// in pieces: where a read stands alone, everything before it is over, and what it
// says is what the next piece begins with.
type clients struct {
	jobs map[fleet.JobID]*jobOperations
	// rewound is when the hubs were put back last: what is older says nothing, and what
	// a job is since then is not known.
	rewound time.Duration
	wild    bool
}

// jobOperations is one job's piece of history.
type jobOperations struct {
	first jobState
	ops   []call        // in the order of their return
	from  time.Duration // ops that were called before came too late
	last  time.Duration // when the newest one came
}

// call is an operation with the time of its return; forever: it may take effect at any time.
type call struct {
	Operation
	end time.Duration
}

const forever time.Duration = math.MaxInt64

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

func newClients() checker {
	t := &clients{jobs: map[fleet.JobID]*jobOperations{}}
	return checker{state: t, operation: t.recordOperation, rewind: t.forgetOperations, tick: t.forgetQuietJobs, finish: t.judgeAllOperations}
}

// forgetOperations begins anew: what was written may be gone, since an operator put the hubs back.
func (t *clients) forgetOperations(s *runContext) {
	for _, j := range t.jobs {
		j.restartFromUnknown(s.now)
	}
	t.rewound, t.wild = s.now, true
}

func (t *clients) recordOperation(s *runContext, o *Observation) {
	op := call{*o.Operation, o.At}
	switch op.Outcome {
	case OutcomeUnknown:
		s.countBranch(BranchUnknownOutcome)
	case OutcomeConflict:
		s.countBranch(BranchConflict)
	}
	j := t.jobs[op.Job]
	if j == nil {
		j = &jobOperations{first: jobState{wild: t.wild}, from: t.rewound}
		t.jobs[op.Job] = j
	}
	if op.Call < j.from && !j.first.wild || len(j.ops) > maxPiece {
		s.verdicts[Linearizable].Undecided++
		j.restartFromUnknown(s.now)
	}
	if op.Call < j.from { // it may have taken place before, or not
		if op.Does == OpRead {
			return
		}
		op.Outcome, op.Modify, op.end = OutcomeUnknown, 0, forever
	}
	j.ops, j.last = append(j.ops, op), s.now
	if len(j.ops) >= pieceOps && len(j.ops)%8 == 0 {
		j.judgeFinishedOps(s, op.Job)
	}
}

// restartFromUnknown begins a new piece, from a state of which nothing is known.
func (j *jobOperations) restartFromUnknown(now time.Duration) {
	*j = jobOperations{first: jobState{wild: true}, ops: j.pendingWrites(len(j.ops), now), from: now, last: now}
}

// pendingWrites are those of the first n operations that may still take effect.
func (j *jobOperations) pendingWrites(n int, now time.Duration) (ops []call) {
	for _, op := range j.ops[:n] {
		if op.Outcome == OutcomeUnknown && op.Does != OpRead && !j.hasReadTag(op.Tag, n) && now-op.Call < forgottenCall {
			ops = append(ops, call{op.Operation, forever})
		}
	}
	return ops
}

// judgeFinishedOps judges and forgets what is over.
func (j *jobOperations) judgeFinishedOps(s *runContext, id fleet.JobID) {
	n := j.isolatedPrefixLen(s.now - longestCall)
	if n < pieceOps/2 {
		return
	}
	if !j.checkLinearizable(s, id, n) {
		j.restartFromUnknown(s.now)
		return
	}
	last := j.ops[n-1]
	j.first, j.from = jobState{wild: true}.inferredState(&last.Operation), last.end
	j.ops = append(j.pendingWrites(n, s.now), j.ops[n:]...)
}

// isolatedPrefixLen is how many operations there are up to the last read that had an answer
// before a time, and that nothing else overlapped; 0: there is none.
func (j *jobOperations) isolatedPrefixLen(before time.Duration) int {
	for n := len(j.ops); n > 0; n-- {
		op := &j.ops[n-1]
		if op.Does == OpRead && (op.Outcome == OutcomeOK || op.Outcome == OutcomeNotFound) && op.end < before && j.hasNoOverlap(n-1) {
			return n
		}
	}
	return 0
}

// hasNoOverlap reports whether an operation overlaps no other one whose outcome is known.
func (j *jobOperations) hasNoOverlap(i int) bool {
	op := &j.ops[i]
	for k := range j.ops {
		other := &j.ops[k]
		if k != i && other.Call <= op.end && (k > i || other.Outcome != OutcomeUnknown && other.end >= op.Call) {
			return false
		}
	}
	return true
}

// hasReadTag reports whether one of the first n reads saw a tag: its registration took
// place.
func (j *jobOperations) hasReadTag(tag string, n int) bool {
	return tag != "" && slices.ContainsFunc(j.ops[:n], func(op call) bool { return op.Does == OpRead && op.Tag == tag })
}

// checkLinearizable judges the first n operations, and reports whether they are legal.
func (j *jobOperations) checkLinearizable(s *runContext, id fleet.JobID, n int) bool {
	part := j.ops[:n]
	s.countJudgement(Linearizable)
	switch linearize(j.first, part, s.limits.Linearize) {
	case Legal:
		return true
	case Undecided:
		s.verdicts[Linearizable].Undecided++
		return false
	}
	legal := firstIllegal(j.first, part, s.limits.Linearize)
	var lines []string
	if j.first.exists {
		lines = append(lines, fmt.Sprintf("before: %q at %d, stopped: %t", j.first.tag, j.first.modify, j.first.stopped))
	}
	for i := max(0, legal+1-shownOps); i <= legal; i++ {
		lines = append(lines, part[i].describeCall())
	}
	s.reportWithEvidence(Linearizable, string(id), lines, "nothing explains the last of these answers: %s", part[legal].describeCall())
	return false
}

// forgetQuietJobs judges and forgets jobs that nobody has asked about for long.
func (t *clients) forgetQuietJobs(s *runContext) {
	for id, j := range t.jobs {
		if s.now-j.last > forgottenCall {
			j.checkLinearizable(s, id, len(j.ops))
			delete(t.jobs, id)
			t.wild = true // whoever is asked about next may have been among them
		}
	}
}

func (t *clients) judgeAllOperations(s *runContext, _ *FleetSnapshot) {
	for _, id := range sorted(t.jobs) {
		if j := t.jobs[id]; len(j.ops) > 0 {
			j.checkLinearizable(s, id, len(j.ops))
		}
	}
}
