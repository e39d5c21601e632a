package check

import (
	"fmt"
	"math"
	"slices"
	"time"

	"skerry/fleet"
)

// clients collects the operations of clients on jobs, and checks for each job that they are linearizable. It
// judges a job's history in pieces: a piece ends with a read that nothing overlaps, and the state that this
// read saw is the first state of the next piece.
type clients struct {
	jobs map[fleet.JobID]*jobOperations
	// rewound is when the hubs were last restored from an older copy. Operations called before it are ignored.
	rewound time.Duration
	wild    bool // a job that appears may have any state
}

// jobOperations is the piece of one job's history that is not judged yet.
type jobOperations struct {
	first jobState      // before ops
	ops   []call        // in the order of their return
	from  time.Duration // an operation called earlier belongs to an earlier piece
	last  time.Duration // when the newest operation was recorded
}

// call is an operation with the time of its return. An operation that returns at forever may take effect at any
// time.
type call struct {
	Operation
	end time.Duration
}

const forever time.Duration = math.MaxInt64

const (
	// pieceOps is the length from which on a piece is ended as soon as possible.
	pieceOps = 48
	// maxPiece bounds a piece. One that cannot be ended earlier counts as undecided.
	maxPiece = 2000
	// longestCall bounds how long an operation takes. A piece ends before operations that
	// others may still overlap.
	longestCall = 2 * time.Minute
	// forgottenCall is the time during which an operation of unknown outcome may take effect.
	forgottenCall = time.Hour
	// shownOps bounds the operations that a violation shows.
	shownOps = 24
)

// newClients returns the checker of the clients' operations.
func newClients() checker {
	t := &clients{jobs: map[fleet.JobID]*jobOperations{}}
	return checker{state: t, operation: t.recordOperation, rewind: t.forgetOperations, tick: t.forgetQuietJobs, finish: t.judgeAllOperations}
}

// forgetOperations starts new pieces in an unknown state, because the restored hubs may have lost writes.
func (t *clients) forgetOperations(s *runContext) {
	for _, j := range t.jobs {
		j.restartFromUnknown(s.now)
	}
	t.rewound, t.wild = s.now, true
}

// recordOperation adds an operation that returned to its job's piece, and judges the piece when it is long
// enough. An operation that was called before the piece began counts as a write of unknown outcome; a read is
// dropped.
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
	if op.Call < j.from { // it may have taken effect before the piece
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

// restartFromUnknown starts a new piece in an unknown state. It keeps only writes that may still take effect.
func (j *jobOperations) restartFromUnknown(now time.Duration) {
	*j = jobOperations{first: jobState{wild: true}, ops: j.pendingWrites(len(j.ops), now), from: now, last: now}
}

// pendingWrites returns the writes of unknown outcome among the first n operations that may still take effect:
// no read saw them, and they are younger than forgottenCall. They return at forever.
func (j *jobOperations) pendingWrites(n int, now time.Duration) (ops []call) {
	for _, op := range j.ops[:n] {
		if op.Outcome == OutcomeUnknown && op.Does != OpRead && !j.hasReadTag(op.Tag, n) && now-op.Call < forgottenCall {
			ops = append(ops, call{op.Operation, forever})
		}
	}
	return ops
}

// judgeFinishedOps judges and removes the operations up to the last isolated read. The state that this read saw
// becomes the first state of the rest. It does nothing for fewer than half of pieceOps.
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

// isolatedPrefixLen returns the number of operations up to and with the last read that was answered before a given
// time and overlaps no other operation, or 0.
func (j *jobOperations) isolatedPrefixLen(before time.Duration) int {
	for n := len(j.ops); n > 0; n-- {
		op := &j.ops[n-1]
		if op.Does == OpRead && (op.Outcome == OutcomeOK || op.Outcome == OutcomeNotFound) && op.end < before && j.hasNoOverlap(n-1) {
			return n
		}
	}
	return 0
}

// hasNoOverlap reports whether operation i overlaps no operation that returned after it, and none of known
// outcome that returned before it.
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

// hasReadTag reports whether a read among the first n operations saw a tag, so its registration took effect.
func (j *jobOperations) hasReadTag(tag string, n int) bool {
	return tag != "" && slices.ContainsFunc(j.ops[:n], func(op call) bool { return op.Does == OpRead && op.Tag == tag })
}

// checkLinearizable judges the first n operations and reports whether they are legal. It records a violation if they
// are not, and counts an abandoned search as undecided.
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
	s.reportWithEvidence(Linearizable, string(id), lines, "no order of these operations explains the last answer: %s", part[legal].describeCall())
	return false
}

// forgetQuietJobs judges and drops jobs of which no operation was recorded for longer than forgottenCall.
func (t *clients) forgetQuietJobs(s *runContext) {
	for id, j := range t.jobs {
		if s.now-j.last > forgottenCall {
			j.checkLinearizable(s, id, len(j.ops))
			delete(t.jobs, id)
			t.wild = true // a job that appears next may have been dropped here
		}
	}
}

// judgeAllOperations judges the remaining piece of each job at the run's end.
func (t *clients) judgeAllOperations(s *runContext, _ *FleetSnapshot) {
	for _, id := range sorted(t.jobs) {
		if j := t.jobs[id]; len(j.ops) > 0 {
			j.checkLinearizable(s, id, len(j.ops))
		}
	}
}
