package history

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"skerry/chaos/check"
	"skerry/fleet"
)

// line is a record in the file. Of a hub it has what changed since the hub's last
// line, of a snapshot a part, and of a job's version its body once.
type line struct {
	Record
	Applied *appliedLine   `json:",omitempty"`
	Hub     *hubChange     `json:",omitempty"`
	Still   *unchangedEdge `json:",omitempty"`
	Picture *snapshotPart  `json:",omitempty"`
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

// unchangedEdge is an edge that stands where it stood at the last look, but that time goes
// on. Most looks find that.
type unchangedEdge struct {
	Edge          string
	Away, NextTry time.Duration `json:",omitzero"`
}

// unchangedEdgeLine is a line that has nothing but a still.
type unchangedEdgeLine struct {
	At    time.Duration
	Still unchangedEdge
}

// body is a job's version, under the name that allocations have for it.
type body struct {
	Version jobVersion
	Job     *fleet.Job
}

// writtenHub is what the writer has told of a hub.
type writtenHub struct {
	writeInFull bool // whatever it says next is told in full
	index       fleet.Index
	polls       uint64
	nodes       map[fleet.NodeID]*version
	allocs      map[fleet.AllocID]*version
	evals       map[fleet.EvalID]*version
}

// version is which version of something was told last, and at which look the hub
// held it.
type version struct {
	index fleet.Index
	poll  uint64
}

// readHub is what the reader has been told of a hub.
type readHub struct {
	nodes  map[fleet.NodeID]fleet.Node
	allocs map[fleet.AllocID]fleet.Alloc
	evals  map[fleet.EvalID]fleet.Evaluation
}

// memory is what lines rely on that came before them.
type memory struct {
	writtenHubs map[string]*writtenHub // by hub; the writer's
	readHubs    map[string]*readHub    // by hub; the reader's
	edges       map[string]check.Edge  // as they were seen last, without rows
	bodies      map[jobVersion]*fleet.Job
}

// jobVersion names a job's version. The hash tells apart what has the same number:
// a cluster that was put back counts again.
type jobVersion struct {
	Namespace string
	ID        fleet.JobID
	Number    uint64
	Hash      string
}

func newMemory() memory {
	return memory{
		writtenHubs: map[string]*writtenHub{}, readHubs: map[string]*readHub{},
		edges: map[string]check.Edge{}, bodies: map[jobVersion]*fleet.Job{},
	}
}

// recordRestart notes that a process began: what a hub holds then may be an older
// copy, in which indexes mean something else.
func (m *memory) recordRestart(name string) {
	if t := m.writtenHubs[name]; t != nil {
		t.writeInFull = true
	}
}

// encodeHubChange is how h differs from what was told of its hub last. As long as a hub
// runs, what it holds changes only together with its modify index.
func (m *memory) encodeHubChange(h *check.Hub) (*hubChange, []body) {
	t := m.writtenHubs[h.Name]
	if t == nil {
		t = &writtenHub{nodes: map[fleet.NodeID]*version{}, allocs: map[fleet.AllocID]*version{}, evals: map[fleet.EvalID]*version{}}
		m.writtenHubs[h.Name] = t
	}
	again := t.writeInFull || h.Index < t.index
	t.writeInFull, t.index = false, h.Index
	t.polls++
	d := *h
	c := &hubChange{}
	d.Nodes, c.GoneNodes = changedSince(t.nodes, h.Nodes, hubPoll{t.polls, again},
		func(n *fleet.Node) (fleet.NodeID, fleet.Index) { return n.ID, n.ModifyIndex })
	d.Allocs, c.GoneAllocs = changedSince(t.allocs, h.Allocs, hubPoll{t.polls, again},
		func(a *fleet.Alloc) (fleet.AllocID, fleet.Index) { return a.ID, a.ModifyIndex })
	d.Evals, c.GoneEvals = changedSince(t.evals, h.Evals, hubPoll{t.polls, again},
		func(e *fleet.Evaluation) (fleet.EvalID, fleet.Index) { return e.ID, e.ModifyIndex })
	var bodies []body
	c.hubLine, bodies = m.hubLine(&d)
	return c, bodies
}

// hubPoll is one look at a hub.
type hubPoll struct {
	number      uint64
	writeInFull bool // everything is to be told
}

// hubLine is a hub as it stands in the file.
func (m *memory) hubLine(h *check.Hub) (hubLine, []body) {
	allocs, bodies := m.detachJobs(h.Allocs)
	return hubLine{
		Hub: *h, Nodes: nodesToLines(h.Nodes), Allocs: allocs, Evals: h.Evals,
		NodeHistory: h.NodeHistory, AllocHistory: h.AllocHistory, Dropped: h.Dropped,
	}, bodies
}

// restoreHub is the hub that a line stands for.
func (l *hubLine) restoreHub(m *memory) check.Hub {
	h := l.Hub
	h.Nodes, h.Allocs, h.Evals = nodesFromLines(l.Nodes), m.attachJobs(l.Allocs), l.Evals
	h.NodeHistory, h.AllocHistory, h.Dropped = l.NodeHistory, l.AllocHistory, l.Dropped
	return h
}

// changedSince returns what of now was not told as it is, and the ids of what is no more.
func changedSince[K ~string, V any](told map[K]*version, now []V, l hubPoll, of func(*V) (K, fleet.Index)) (changed []V, gone []K) {
	for i := range now {
		id, index := of(&now[i])
		v := told[id]
		if v == nil {
			v = &version{}
			told[id] = v
		} else if v.index == index && !l.writeInFull {
			v.poll = l.number
			continue
		}
		v.index, v.poll = index, l.number
		changed = append(changed, now[i])
	}
	if len(told) == len(now) {
		return changed, nil
	}
	for id, v := range told {
		if v.poll != l.number {
			gone = append(gone, id)
			delete(told, id)
		}
	}
	slices.Sort(gone)
	return changed, gone
}

// applyHubChange is the hub that a change makes of what it said last.
func (m *memory) applyHubChange(c *hubChange) *check.Hub {
	h := c.restoreHub(m)
	s := m.readHubs[c.Name]
	if s == nil {
		s = &readHub{nodes: map[fleet.NodeID]fleet.Node{}, allocs: map[fleet.AllocID]fleet.Alloc{}, evals: map[fleet.EvalID]fleet.Evaluation{}}
		m.readHubs[c.Name] = s
	}
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

// rememberAndCompareEdge remembers an edge, and reports whether it stands where it stood.
func (m *memory) rememberAndCompareEdge(e *check.Edge) bool {
	last, known := m.edges[e.Name]
	m.edges[e.Name] = check.Edge{Name: e.Name, NodeID: e.NodeID, Link: e.Link, Journal: e.Journal, AgentSince: e.AgentSince}
	if !known || e.Link == nil || e.Journal == nil || last.Link == nil || last.Journal == nil {
		return false
	}
	link := *last.Link
	link.Away, link.NextTry = e.Link.Away, e.Link.NextTry
	return len(e.Rows)+len(e.Before) == 0 && e.Processes == nil &&
		e.NodeID == last.NodeID && e.AgentSince == last.AgentSince && *e.Link == link && *e.Journal == *last.Journal
}

// restoreUnchangedEdge is the edge that a still stands for.
func (m *memory) restoreUnchangedEdge(s *unchangedEdge) (*check.Edge, error) {
	last, known := m.edges[s.Edge]
	if !known || last.Link == nil || last.Journal == nil {
		return nil, fmt.Errorf("%s stands where it stood, and nothing says where", s.Edge)
	}
	e := check.Edge{Name: last.Name, NodeID: last.NodeID, AgentSince: last.AgentSince}
	link, journal := *last.Link, *last.Journal
	link.Away, link.NextTry = s.Away, s.NextTry
	e.Link, e.Journal = &link, &journal
	return &e, nil
}

// encodeApplied is a command as it stands in the file.
func (m *memory) encodeApplied(a *check.Applied) (*appliedLine, []body) {
	l := &appliedLine{Applied: *a}
	if a.Effects == nil {
		return l, nil
	}
	allocs, bodies := m.detachJobs(a.Effects.Allocs)
	l.Effects = &effectsLine{Effects: *a.Effects, Nodes: nodesToLines(a.Effects.Nodes), Allocs: allocs}
	return l, bodies
}

// restoreApplied is the command that a line stands for.
func (l *appliedLine) restoreApplied(m *memory) *check.Applied {
	a := l.Applied
	if l.Effects != nil {
		effects := l.Effects.Effects
		effects.Nodes, effects.Allocs = nodesFromLines(l.Effects.Nodes), m.attachJobs(l.Effects.Allocs)
		a.Effects = &effects
	}
	return &a
}

// detachJobs returns allocations without their jobs, and the jobs that no line has had
// yet.
func (m *memory) detachJobs(allocs []fleet.Alloc) (stripped []alloc, bodies []body) {
	for i := range allocs {
		a := alloc(allocs[i])
		if v := a.jobVersionKey(); a.Job != nil && m.bodies[v] == nil {
			m.bodies[v] = a.Job
			bodies = append(bodies, body{v, a.Job})
		}
		a.Job = nil
		stripped = append(stripped, a)
	}
	return stripped, bodies
}

// recordJobVersions remembers the job versions that a line brings.
func (m *memory) recordJobVersions(bodies []body) error {
	for _, b := range bodies {
		if b.Job == nil {
			return fmt.Errorf("version %d of job %s has no body", b.Version.Number, b.Version.ID)
		}
		m.bodies[b.Version] = b.Job
	}
	return nil
}

// attachJobs gives allocations their jobs back.
func (m *memory) attachJobs(stripped []alloc) []fleet.Alloc {
	var allocs []fleet.Alloc
	for _, a := range stripped {
		a.Job = m.bodies[a.jobVersionKey()]
		allocs = append(allocs, fleet.Alloc(a))
	}
	return allocs
}

func (a *alloc) jobVersionKey() jobVersion {
	return jobVersion{a.Namespace, a.JobID, a.JobVersion, a.JobHash}
}

func nodesToLines(nodes []fleet.Node) []node {
	var ns []node
	for _, n := range nodes {
		ns = append(ns, node(n))
	}
	return ns
}

func nodesFromLines(nodes []node) []fleet.Node {
	var ns []fleet.Node
	for _, n := range nodes {
		ns = append(ns, fleet.Node(n))
	}
	return ns
}
