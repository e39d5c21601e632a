package history

import (
	"fmt"
	"maps"
	"slices"

	"skerry/chaos/check"
	"skerry/fleet"
)

// line is a record in the file. Of a hub it has what changed since the hub's last
// line, of a picture a part, and of a job's version its body once.
type line struct {
	Record
	Applied *appliedLine `json:",omitempty"`
	Hub     *hubChange   `json:",omitempty"`
	Picture *picturePart `json:",omitempty"`
	// Bodies are job versions that allocations of this line, or of later ones, run.
	Bodies []body `json:",omitempty"`
}

// The nouns without their JSON for Nomad's clients, which has more than they do.
type (
	node  fleet.Node
	alloc fleet.Alloc
)

// appliedLine is a command that was applied.
type appliedLine struct {
	check.Applied
	Effects *effectsLine `json:",omitempty"`
}

type effectsLine struct {
	check.Effects
	Nodes  []node  `json:",omitempty"`
	Allocs []alloc `json:",omitempty"`
}

// hubChange is how a hub differs from its last line.
type hubChange struct {
	hubLine
	GoneNodes  []fleet.NodeID  `json:",omitempty"`
	GoneAllocs []fleet.AllocID `json:",omitempty"`
	GoneEvals  []fleet.EvalID  `json:",omitempty"`
}

// hubLine is a hub.
type hubLine struct {
	check.Hub
	Nodes  []node             `json:",omitempty"`
	Allocs []alloc            `json:",omitempty"`
	Evals  []fleet.Evaluation `json:",omitempty"`

	NodeHistory  map[fleet.NodeID][]fleet.HistoryEntry  `json:",omitempty"`
	AllocHistory map[fleet.AllocID][]fleet.HistoryEntry `json:",omitempty"`
	Dropped      map[fleet.AllocID]uint64               `json:",omitempty"`
}

// body is a job's version, under the name that allocations have for it.
type body struct {
	Version version
	Job     *fleet.Job
}

// said is what a hub said last, in the writer and in the reader.
type said struct {
	again  bool // whatever it says next is told in full
	index  fleet.Index
	nodes  map[fleet.NodeID]fleet.Node
	allocs map[fleet.AllocID]fleet.Alloc
	evals  map[fleet.EvalID]fleet.Evaluation
}

// memory is what lines rely on that came before them.
type memory struct {
	hubs   map[string]*said
	bodies map[version]*fleet.Job
}

// version names a job's version. The hash tells apart what has the same number: a
// cluster that was put back counts again.
type version struct {
	Namespace string
	ID        fleet.JobID
	Number    uint64
	Hash      string
}

func newMemory() memory {
	return memory{hubs: map[string]*said{}, bodies: map[version]*fleet.Job{}}
}

func (m *memory) hub(name string) *said {
	s := m.hubs[name]
	if s == nil {
		s = &said{nodes: map[fleet.NodeID]fleet.Node{}, allocs: map[fleet.AllocID]fleet.Alloc{}, evals: map[fleet.EvalID]fleet.Evaluation{}}
		m.hubs[name] = s
	}
	return s
}

// restarted notes that a process began: what a hub holds then may be an older
// copy, in which indexes mean something else.
func (m *memory) restarted(name string) {
	if s := m.hubs[name]; s != nil {
		s.again = true
	}
}

// change is how h differs from what its hub said last, and remembers h. As long as
// a hub runs, what it holds changes only together with its modify index.
func (m *memory) change(h *check.Hub) (*hubChange, []body) {
	s := m.hub(h.Name)
	again := s.again || h.Index < s.index
	s.again, s.index = false, h.Index
	d := *h
	c := &hubChange{}
	d.Nodes, c.GoneNodes = differ(s.nodes, h.Nodes, again,
		func(n *fleet.Node) (fleet.NodeID, fleet.Index) { return n.ID, n.ModifyIndex })
	d.Allocs, c.GoneAllocs = differ(s.allocs, h.Allocs, again,
		func(a *fleet.Alloc) (fleet.AllocID, fleet.Index) { return a.ID, a.ModifyIndex })
	d.Evals, c.GoneEvals = differ(s.evals, h.Evals, again,
		func(e *fleet.Evaluation) (fleet.EvalID, fleet.Index) { return e.ID, e.ModifyIndex })
	var bodies []body
	c.hubLine, bodies = m.hubLine(&d)
	return c, bodies
}

// hubLine is a hub as it stands in the file.
func (m *memory) hubLine(h *check.Hub) (hubLine, []body) {
	allocs, bodies := m.strip(h.Allocs)
	return hubLine{
		Hub: *h, Nodes: lean(h.Nodes), Allocs: allocs, Evals: h.Evals,
		NodeHistory: h.NodeHistory, AllocHistory: h.AllocHistory, Dropped: h.Dropped,
	}, bodies
}

// hub is the hub that a line stands for.
func (l *hubLine) hub(m *memory) check.Hub {
	h := l.Hub
	h.Nodes, h.Allocs, h.Evals = full(l.Nodes), m.dress(l.Allocs), l.Evals
	h.NodeHistory, h.AllocHistory, h.Dropped = l.NodeHistory, l.AllocHistory, l.Dropped
	return h
}

// differ returns what of now is not in last as it is, and the ids that are no
// more, and makes last the same as now.
func differ[K ~string, V any](last map[K]V, now []V, again bool, of func(*V) (K, fleet.Index)) (changed []V, gone []K) {
	there := make(map[K]bool, len(now))
	for i := range now {
		id, index := of(&now[i])
		there[id] = true
		if known, ok := last[id]; ok && !again {
			if _, before := of(&known); before == index {
				continue
			}
		}
		last[id] = now[i]
		changed = append(changed, now[i])
	}
	for id := range last {
		if !there[id] {
			gone = append(gone, id)
			delete(last, id)
		}
	}
	slices.Sort(gone)
	return changed, gone
}

// whole is the hub that a change makes of what it said last.
func (m *memory) whole(c *hubChange) *check.Hub {
	s, h := m.hub(c.Name), c.hub(m)
	for _, n := range h.Nodes {
		s.nodes[n.ID] = n
	}
	for _, a := range h.Allocs {
		s.allocs[a.ID] = a
	}
	for _, e := range h.Evals {
		s.evals[e.ID] = e
	}
	for _, id := range c.GoneNodes {
		delete(s.nodes, id)
	}
	for _, id := range c.GoneAllocs {
		delete(s.allocs, id)
	}
	for _, id := range c.GoneEvals {
		delete(s.evals, id)
	}
	h.Nodes, h.Allocs, h.Evals = inOrder(s.nodes), inOrder(s.allocs), inOrder(s.evals)
	return &h
}

func inOrder[K ~string, V any](m map[K]V) []V {
	var vs []V
	for _, k := range slices.Sorted(maps.Keys(m)) {
		vs = append(vs, m[k])
	}
	return vs
}

// applied is a command as it stands in the file.
func (m *memory) applied(a *check.Applied) (*appliedLine, []body) {
	l := &appliedLine{Applied: *a}
	if a.Effects == nil {
		return l, nil
	}
	allocs, bodies := m.strip(a.Effects.Allocs)
	l.Effects = &effectsLine{Effects: *a.Effects, Nodes: lean(a.Effects.Nodes), Allocs: allocs}
	return l, bodies
}

// whole is the command that a line stands for.
func (l *appliedLine) whole(m *memory) *check.Applied {
	a := l.Applied
	if l.Effects != nil {
		effects := l.Effects.Effects
		effects.Nodes, effects.Allocs = full(l.Effects.Nodes), m.dress(l.Effects.Allocs)
		a.Effects = &effects
	}
	return &a
}

// strip returns allocations without their jobs, and the jobs that no line has had
// yet.
func (m *memory) strip(allocs []fleet.Alloc) (stripped []alloc, bodies []body) {
	for i := range allocs {
		a := alloc(allocs[i])
		if v := a.version(); a.Job != nil && m.bodies[v] == nil {
			m.bodies[v] = a.Job
			bodies = append(bodies, body{v, a.Job})
		}
		a.Job = nil
		stripped = append(stripped, a)
	}
	return stripped, bodies
}

// learn remembers the job versions that a line brings.
func (m *memory) learn(bodies []body) error {
	for _, b := range bodies {
		if b.Job == nil {
			return fmt.Errorf("version %d of job %s has no body", b.Version.Number, b.Version.ID)
		}
		m.bodies[b.Version] = b.Job
	}
	return nil
}

// dress gives allocations their jobs back.
func (m *memory) dress(stripped []alloc) []fleet.Alloc {
	var allocs []fleet.Alloc
	for _, a := range stripped {
		a.Job = m.bodies[a.version()]
		allocs = append(allocs, fleet.Alloc(a))
	}
	return allocs
}

func (a *alloc) version() version { return version{a.Namespace, a.JobID, a.JobVersion, a.JobHash} }

func lean(nodes []fleet.Node) []node {
	var ns []node
	for _, n := range nodes {
		ns = append(ns, node(n))
	}
	return ns
}

func full(nodes []node) []fleet.Node {
	var ns []fleet.Node
	for _, n := range nodes {
		ns = append(ns, fleet.Node(n))
	}
	return ns
}
