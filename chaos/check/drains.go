package check

import (
	"time"

	"skerry/fleet"
)

// drains judges that nodes that are drained are empty by the deadline.
type drains struct {
	open map[fleet.NodeID]*draining
}

// draining is a node that is emptied, or was and takes no work.
type draining struct {
	until      time.Duration // its deadline; 0: none
	keepSystem bool
	emptied    bool
	since      time.Duration // emptied
	told       bool
}

func newDrains() checker {
	t := &drains{open: map[fleet.NodeID]*draining{}}
	return checker{state: t, entry: t.recordDrainChanges, rewind: func(*runContext) { clear(t.open) }, tick: t.judgeOverdueDrains}
}

// Bounds without faults: of a drain that is not over at its deadline, and of what is
// still to run after it.
const (
	drainBound = 20 * time.Second
	emptyBound = time.Minute
)

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

// judgeDrainedNode judges that nothing is to run on a node that was emptied.
func (t *drains) judgeDrainedNode(s *runContext, id fleet.NodeID, d *draining) {
	for _, alloc := range sorted(s.registry.allocs) {
		f := s.registry.allocs[alloc]
		if f.alloc.NodeID == id && !f.stale && f.isNonTerminal() && !(f.system && d.keepSystem) {
			s.reportViolation(DrainsEnd, s.registry.edgeNameOf(id), "allocation %s (%s) is to run there: it was drained by %s", fleet.Short(alloc), f.alloc.Name, d.since)
		}
	}
}
