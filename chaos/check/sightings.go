package check

import (
	"time"

	"skerry/fleet"
)

// sightings notices branches that no other tap comes by.
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

func newSightings() *sightings {
	return &sightings{away: map[fleet.NodeID]bool{}, exited: map[TaskKey]time.Duration{}}
}

func (t *sightings) see(s *scene, o *Observation) {
	switch {
	case o.Applied != nil && o.Applied.Effects != nil:
		t.entry(s, o.Applied.Effects)
	case o.Task != nil:
		t.task(s, o.Task)
	case o.Edge != nil && o.Edge.Link != nil:
		t.link(s, o.Edge.Name, o.Edge.Link)
	case o.Fault != nil && o.Fault.Kind == kindRebind && !o.Fault.End:
		for _, name := range o.Fault.Targets {
			if m := s.truth.by[name]; m != nil && m.connected >= 0 {
				t.rebinds = append(t.rebinds, rebind{name, m.session, s.now})
			}
		}
	case o.Process != nil && o.Process.Edge:
		t.forget(o.Process.Name)
	}
}

func (t *sightings) entry(s *scene, e *Effects) {
	for _, m := range e.Moved {
		t.away[m.Node] = true
	}
	if e.Fenced != nil {
		s.reach(BranchCloneFenced)
	}
	if e.Opened != nil && t.away[e.Opened.Node] {
		t.away[e.Opened.Node] = false
		t.opened = append(t.opened, s.now)
		if len(t.opened) > massRejoin {
			t.opened = t.opened[1:]
		}
		if len(t.opened) == massRejoin && s.now-t.opened[0] <= rejoinsIn {
			s.reach(BranchMassRejoin)
		}
	}
	for i := range e.Allocs {
		a := &e.Allocs[i]
		if previous := s.fleet.allocs[a.PreviousAllocation]; previous != nil && previous.alloc.ClientStatus == fleet.ClientUnknown &&
			s.fleet.allocs[a.ID].first == s.now {
			s.reach(BranchReplacedAway)
		}
	}
	for _, k := range s.taken {
		for i := range k.rows {
			if ended := k.rows[i].ClientStatus; t.replaying(s, k.node) && (ended == fleet.ClientComplete || ended == fleet.ClientFailed) {
				s.reach(BranchEndedAway)
			}
		}
	}
}

// replaying reports whether what a node reports happened while it was away.
func (t *sightings) replaying(s *scene, id fleet.NodeID) bool {
	m := s.truth.by[s.fleet.name(id)]
	return m != nil && m.connected < 0
}

func (t *sightings) task(s *scene, e *Task) {
	key := TaskKey{e.Alloc, e.Task}
	cut := s.weather.during(e.Edge, Severs)
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
			s.reach(BranchRestartedAway)
		}
		delete(t.exited, key)
	}
}

func (t *sightings) link(s *scene, name string, l *Link) {
	if l.WentBack != "" {
		s.reach(BranchClusterWentBack)
	}
	if l.NextTry >= backoffLong {
		s.reach(BranchBackoffAtCap)
	}
	if m := s.truth.by[name]; m != nil && s.weather.at(name, s.now, MovesTime) && len(m.tasks) > 0 {
		s.reach(BranchClockMoved)
	}
	left := t.rebinds[:0]
	for _, r := range t.rebinds {
		switch {
		case r.edge != name:
			left = append(left, r)
		case !l.Connected || l.Session != r.session:
		case s.now-r.at >= reboundFor:
			s.reach(BranchRebound)
		default:
			left = append(left, r)
		}
	}
	t.rebinds = left
}

// forget drops what a process that ended cannot show any more.
func (t *sightings) forget(name string) {
	left := t.rebinds[:0]
	for _, r := range t.rebinds {
		if r.edge != name {
			left = append(left, r)
		}
	}
	t.rebinds = left
}

func (t *sightings) tick(*scene)          {}
func (t *sightings) end(*scene, *Picture) {}
