package check

import (
	"time"

	"skerry/fleet"
)

// drains checks that a drained node is empty by the drain's deadline, and stays empty.
type drains struct {
	open map[fleet.NodeID]*draining
}

// draining is a node with an active drain, or one that was emptied and takes no work.
type draining struct {
	until      time.Duration // its deadline; 0: none
	keepSystem bool          // allocations of system jobs may stay
	emptied    bool          // the drainer has emptied it
	since      time.Duration // when it was emptied
	told       bool          // a violation was reported since its last change
}

// newDrains returns the checker of drains.
func newDrains() checker {
	t := &drains{open: map[fleet.NodeID]*draining{}}
	return checker{state: t, entry: t.recordDrainChanges, rewind: func(*runContext) { clear(t.open) }, tick: t.judgeOverdueDrains}
}

// drainBound is how long a drain may last after its deadline without faults. emptyBound is how long allocations may
// stay desired on an emptied node.
const (
	drainBound = 20 * time.Second
	emptyBound = time.Minute
)

// recordDrainChanges records the drains that an entry begins, changes or ends.
func (t *drains) recordDrainChanges(s *runContext, a *Applied) {
	for _, d := range a.Effects.Drains {
		s.countJudgement(DrainsEnd)
		switch known := t.open[d.Node]; {
		case d.Emptied && known != nil:
			known.emptied, known.since, known.told = true, s.now, false
			if d.Deadlined {
				s.countBranch(BranchDrainDeadlined)
			}
		case d.Over:
			delete(t.open, d.Node)
		default:
			next := &draining{keepSystem: d.KeepSystem}
			if d.Deadline > 0 {
				next.until = s.now + d.Deadline
			}
			t.open[d.Node] = next
		}
	}
}

// judgeOverdueDrains reports drains that last after their deadline, and allocations that stay desired on an emptied
// node.
func (t *drains) judgeOverdueDrains(s *runContext) {
	for id, d := range t.open {
		name := s.registry.edgeNameOf(id)
		s.countJudgement(DrainsEnd)
		switch {
		case d.told:
		case !d.emptied && d.until > 0 && s.isOverdue(name, d.until, drainBound):
			d.told = true
			s.reportViolation(DrainsEnd, name, "it is being drained, and its deadline was over at %s", d.until)
		case d.emptied && s.isOverdue(name, d.since, emptyBound):
			d.told = true
			t.judgeDrainedNode(s, id, d)
		}
	}
}

// judgeDrainedNode reports each allocation that is desired on an emptied node, except those of system jobs that the
// drain keeps.
func (t *drains) judgeDrainedNode(s *runContext, id fleet.NodeID, d *draining) {
	for _, alloc := range sorted(s.registry.allocs) {
		f := s.registry.allocs[alloc]
		if f.alloc.NodeID == id && !f.stale && f.isNonTerminal() && !(f.system && d.keepSystem) {
			s.reportViolation(DrainsEnd, s.registry.edgeNameOf(id), "allocation %s (%s) is desired there, although the node was emptied by %s", fleet.Short(alloc), f.alloc.Name, d.since)
		}
	}
}
