package check

import (
	"slices"
	"time"

	"skerry/fleet"
)

// sightings counts branches that no other checker sees.
type sightings struct {
	opened  []time.Duration // of the newest sessions of nodes that were away
	away    map[fleet.NodeID]bool
	exited  map[TaskKey]time.Duration // tasks that ended while their edge was cut off
	rebinds []rebind
}

// rebind is an edge whose address changed in the middle of a session.
type rebind struct {
	edge    string
	session uint64
	at      time.Duration
}

// kindRebind is the kind of fault that gives an edge another address in the middle
// of a session, as chaos/schedule names it.
const kindRebind = "nat-rebind"

const (
	massRejoin  = 5
	rejoinsIn   = 10 * time.Second
	reboundFor  = 20 * time.Second // after which the session has surely noticed
	backoffLong = 30 * time.Second // pauses that only a back-off near its cap draws
)

func newSightings() checker {
	t := &sightings{away: map[fleet.NodeID]bool{}, exited: map[TaskKey]time.Duration{}}
	return checker{state: t, entry: t.countEntryBranches, task: t.countTaskBranches, edge: t.countLinkBranches, fault: t.recordRebinds, agent: t.forgetRebinds}
}

func (t *sightings) recordRebinds(s *runContext, f *Fault) {
	if f.Kind != kindRebind || f.End {
		return
	}
	for _, name := range f.Targets {
		if m := s.machines.by[name]; m != nil && m.connected >= 0 {
			t.rebinds = append(t.rebinds, rebind{name, m.session, s.now})
		}
	}
}

func (t *sightings) countEntryBranches(s *runContext, applied *Applied) {
	e := applied.Effects
	for _, m := range e.Moved {
		t.away[m.Node] = true
	}
	if e.Fenced != nil {
		s.countBranch(BranchCloneFenced)
	}
	if e.Opened != nil && t.away[e.Opened.Node] {
		t.away[e.Opened.Node] = false
		t.opened = append(t.opened, s.now)
		if len(t.opened) > massRejoin {
			t.opened = t.opened[1:]
		}
		if len(t.opened) == massRejoin && s.now-t.opened[0] <= rejoinsIn {
			s.countBranch(BranchMassRejoin)
		}
	}
	for i := range e.Allocs {
		a := &e.Allocs[i]
		if previous := s.registry.allocs[a.PreviousAllocation]; previous != nil && previous.alloc.ClientStatus == fleet.ClientUnknown &&
			s.registry.allocs[a.ID].first == s.now {
			s.countBranch(BranchReplacedAway)
		}
	}
	for _, k := range s.newRows {
		for i := range k.rows {
			if ended := k.rows[i].ClientStatus; t.isReportingAbsence(s, k.node) && (ended == fleet.ClientComplete || ended == fleet.ClientFailed) {
				s.countBranch(BranchEndedAway)
			}
		}
	}
}

// isReportingAbsence reports whether what a node reports happened while it was away.
func (t *sightings) isReportingAbsence(s *runContext, id fleet.NodeID) bool {
	m := s.machineOf(id)
	return m != nil && m.connected < 0
}

func (t *sightings) countTaskBranches(s *runContext, e *Task) {
	key := TaskKey{e.Alloc, e.Task}
	cut := s.faults.hasFaultNow(e.Edge, Severs)
	switch e.What {
	case TaskExited:
		if cut {
			t.exited[key] = s.now
		}
		if len(t.exited) > keptTasks {
			clear(t.exited)
		}
	case TaskStarted:
		if _, ok := t.exited[key]; ok && cut {
			s.countBranch(BranchRestartedAway)
		}
		delete(t.exited, key)
	}
}

func (t *sightings) countLinkBranches(s *runContext, e *Edge) {
	l, name := e.Link, e.Name
	if l == nil {
		return
	}
	if l.WentBack != "" {
		s.countBranch(BranchClusterWentBack)
	}
	if l.NextTry >= backoffLong {
		s.countBranch(BranchBackoffAtCap)
	}
	if m := s.machines.by[name]; m != nil && s.faults.hasFaultAt(name, s.now, MovesTime) && len(m.tasks) > 0 {
		s.countBranch(BranchClockMoved)
	}
	t.rebinds = slices.DeleteFunc(t.rebinds, func(r rebind) bool {
		switch {
		case r.edge != name:
			return false
		case !l.Connected || l.Session != r.session:
			return true
		case s.now-r.at >= reboundFor:
			s.countBranch(BranchRebound)
			return true
		}
		return false
	})
}

// forgetRebinds drops what a process that ended cannot show any more.
func (t *sightings) forgetRebinds(_ *runContext, p *Process) {
	t.rebinds = slices.DeleteFunc(t.rebinds, func(r rebind) bool { return r.edge == p.Name })
}
