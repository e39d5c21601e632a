package check

import (
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"skerry/fleet"
)

// Linearization is the result of a search for a linearization.
type Linearization string

// Results of a search for a linearization.
const (
	Legal     Linearization = "legal"
	Illegal   Linearization = "illegal"
	Undecided Linearization = "undecided" // the search used up its budget
)

// jobState is the state of the sequential specification: a job as far as clients can observe it.
type jobState struct {
	// wild says that nothing is known of the state: any answer about it may be right.
	wild            bool
	exists, stopped bool
	tag             string
	// modify is the job modify index where exact is true, else a lower bound of it.
	modify fleet.Index
	exact  bool
}

// model is the sequential specification of one job whose first state is first. Each step takes one of budget;
// at zero no step is legal, and the search ends. (A bound in wall time could not be repeated, and would not
// pass in virtual time.)
type model struct {
	first  jobState
	budget int
}

// porcupineModel returns the specification as porcupine takes it. Its Step uses up the budget.
func (m *model) porcupineModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return m.first },
		Step: func(state, input, _ any) (bool, any) {
			if m.budget--; m.budget < 0 {
				return false, state
			}
			legal, next := state.(jobState).applyOperation(input.(*Operation))
			return legal, next
		},
	}
}

// applyOperation reports whether an operation may have its outcome in this state, and returns the state after
// it. In a wild state every outcome is legal.
func (s jobState) applyOperation(op *Operation) (bool, jobState) {
	if s.wild {
		return true, s.inferredState(op)
	}
	switch op.Does {
	case OpRead:
		return s.applyRead(op)
	case OpRegister:
		return s.applyRegister(op)
	}
	return s.applyDeregister(op)
}

// inferredState returns the state after an operation in an unknown state, as far as the operation's outcome
// shows it.
func (s jobState) inferredState(op *Operation) jobState {
	switch {
	case op.Outcome == OutcomeNotFound, op.Does == OpPurge && op.Outcome == OutcomeOK:
		return jobState{modify: op.Modify}
	case op.Outcome != OutcomeOK, op.Does == OpDeregister:
		return s // the job may have any tag
	case op.Does == OpRead:
		return jobState{exists: true, stopped: op.Stopped, tag: op.Tag, modify: op.Modify, exact: op.Modify != 0}
	}
	return jobState{exists: true, tag: op.Tag, modify: op.Modify, exact: op.Modify != 0}
}

// applyRead reports whether a read may have its outcome in this state. The state after it has the modify index
// that was read.
func (s jobState) applyRead(op *Operation) (bool, jobState) {
	if op.Outcome == OutcomeNotFound {
		return !s.exists, s
	}
	if !s.exists || s.tag != op.Tag || s.stopped != op.Stopped {
		return false, s
	}
	switch {
	case op.Modify == 0:
	case s.exact && op.Modify != s.modify, !s.exact && op.Modify <= s.modify:
		return false, s
	default:
		s.modify, s.exact = op.Modify, true
	}
	return true, s
}

// applyRegister reports whether a registration may have its outcome in this state, and returns the state after
// it. A registration of unknown outcome takes effect here; one that never did may stand at the end of the
// order.
func (s jobState) applyRegister(op *Operation) (bool, jobState) {
	if op.Enforces {
		match := !s.exists
		if op.Check != 0 {
			match = s.exists && (s.exact && s.modify == op.Check || !s.exact && op.Check > s.modify)
		}
		certain := op.Check == 0 || !s.exists || s.exact
		switch {
		case op.Outcome == OutcomeConflict:
			return !match || !certain, s
		case !match:
			return op.Outcome == OutcomeUnknown, s
		}
	} else if op.Outcome == OutcomeConflict {
		return false, s
	}
	if op.Modify != 0 && op.Modify <= s.modify {
		return false, s // the indexes of entries only grow
	}
	if s.exists && !s.stopped && s.tag == op.Tag {
		return true, s // nothing changed
	}
	return true, s.stateAfterWrite(op, jobState{exists: true, tag: op.Tag})
}

// stateAfterWrite returns next with the modify index of a change: exact where the answer names it, else the old
// one as a lower bound.
func (s jobState) stateAfterWrite(op *Operation, next jobState) jobState {
	next.modify, next.exact = s.modify, false
	if op.Outcome == OutcomeOK && op.Modify != 0 {
		next.modify, next.exact = op.Modify, true
	}
	return next
}

// applyDeregister reports whether a deregistration or purge may have its outcome in this state, and returns the
// state after it.
func (s jobState) applyDeregister(op *Operation) (bool, jobState) {
	switch {
	case op.Outcome == OutcomeNotFound:
		return !s.exists, s
	case !s.exists:
		return op.Outcome == OutcomeUnknown, s
	case op.Modify != 0 && op.Modify <= s.modify:
		return false, s
	case op.Does == OpPurge:
		return true, s.stateAfterWrite(op, jobState{})
	}
	next := s
	next.stopped = true
	return true, s.stateAfterWrite(op, next)
}

// linearize searches for a linearization of the operations of one job, three times until one is legal: without
// the unknown changes that no read saw, then with those that end a job, then with all. Unknown changes may
// stand at the end, so that a legal order without them is one with them; the last search takes much longer.
func linearize(first jobState, ops []call, budget int) Linearization {
	seen := map[string]time.Duration{} // tags that were read, and when the first of those reads returned
	for i := range ops {
		if op := &ops[i]; op.Does == OpRead && op.Tag != "" {
			if at, ok := seen[op.Tag]; !ok || op.end < at {
				seen[op.Tag] = op.end
			}
		}
	}
	var certain, ends, all []porcupine.Operation // all has ends, ends has certain
	for i := range ops {
		op := &ops[i]
		if op.Outcome == OutcomeRefused || op.Outcome == OutcomeUnknown && op.Does == OpRead {
			continue // it has no effect, and does not show the state
		}
		end := op.end
		by, was := seen[op.Tag]
		unknown := op.Outcome == OutcomeUnknown
		switch {
		case unknown && was:
			end = max(op.Call, by) // a read that saw it returned then
		case unknown:
			end = forever
		}
		o := porcupine.Operation{Input: &op.Operation, Call: int64(op.Call), Return: int64(end)}
		all = append(all, o)
		if !unknown || was || op.Does != OpRegister {
			ends = append(ends, o)
		}
		if !unknown || was {
			certain = append(certain, o)
		}
	}
	found := search(first, certain, budget)
	if found != Legal && len(ends) > len(certain) {
		found = search(first, ends, budget)
	}
	if found != Legal && len(all) > len(ends) {
		found = search(first, all, budget)
	}
	return found
}

// search runs porcupine once on a history. It returns Undecided where that takes more steps than budget.
func search(first jobState, history []porcupine.Operation, budget int) Linearization {
	m := &model{first: first, budget: budget}
	switch legal := porcupine.CheckOperations(m.porcupineModel(), history); {
	case m.budget < 0:
		return Undecided
	case legal:
		return Legal
	}
	return Illegal
}

// firstIllegal returns how many of the operations, in the order of their return, have a linearization. The next
// one is the first that no order explains. It repeats linearize in a binary search.
func firstIllegal(first jobState, ops []call, budget int) int {
	low, high := 0, len(ops) // ops[:low] are legal, ops[:high] not
	for high-low > 1 {
		middle := (low + high) / 2
		if linearize(first, upTo(ops, middle), budget) == Illegal {
			high = middle
		} else {
			low = middle
		}
	}
	return low
}

// upTo returns the history as it was known when the n-th operation returned. Operations that were under way
// then have an unknown outcome in it.
func upTo(ops []call, n int) []call {
	part := slices.Clone(ops[:n])
	for _, op := range ops[n:] {
		if n > 0 && op.Call <= ops[n-1].end && op.Outcome != OutcomeNotFound && op.Outcome != OutcomeConflict {
			op.Outcome, op.Modify = OutcomeUnknown, 0
			part = append(part, op)
		}
	}
	return part
}

// describeCall shows an operation with its times, client, tag and outcome on one line.
func (op *call) describeCall() string {
	line := fmt.Sprintf("%s to %s, client %s: %s", op.Call, op.end, op.Client, op.Does)
	if op.Tag != "" {
		line += fmt.Sprintf(" %q", op.Tag)
	}
	if op.Enforces {
		line += fmt.Sprintf(" if at %d", op.Check)
	}
	line += ": " + op.Outcome
	if op.Modify != 0 {
		line += fmt.Sprintf(", at %d", op.Modify)
	}
	if op.Stopped {
		line += ", stopped"
	}
	return line
}
