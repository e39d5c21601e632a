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
	Nodes  []node  `json:",omitempty"`
	Allocs []alloc `json:",omitempty"`
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

// hubMemory is what was written, or read, of a hub.
type hubMemory struct {
	writeInFull bool // whatever it says next is told in full
	index       fleet.Index
	nodes       hubTable[fleet.NodeID, fleet.Node]
	allocs      hubTable[fleet.AllocID, fleet.Alloc]
	evals       hubTable[fleet.EvalID, fleet.Evaluation]
}

// hubTable is what a hub holds of one kind. The writer keeps versions alone, the reader objects.
type hubTable[K ~string, V any] struct {
	versionOf func(*V) (K, fleet.Index)
	versions  map[K]fleet.Index
	objects   map[K]V
}

// memory is what lines rely on that came before them.
type memory struct {
	hubs   map[string]*hubMemory
	edges  map[string]check.Edge // as they were seen last, without rows
	bodies map[jobVersion]*fleet.Job
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
	return memory{hubs: map[string]*hubMemory{}, edges: map[string]check.Edge{}, bodies: map[jobVersion]*fleet.Job{}}
}

func (m *memory) ensureHub(name string) *hubMemory {
	h := m.hubs[name]
	if h == nil {
		h = &hubMemory{}
		h.nodes.versionOf = func(n *fleet.Node) (fleet.NodeID, fleet.Index) { return n.ID, n.ModifyIndex }
		h.allocs.versionOf = func(a *fleet.Alloc) (fleet.AllocID, fleet.Index) { return a.ID, a.ModifyIndex }
		h.evals.versionOf = func(e *fleet.Evaluation) (fleet.EvalID, fleet.Index) { return e.ID, e.ModifyIndex }
		m.hubs[name] = h
	}
	return h
}

// recordRestart notes that a process began: what a hub holds then may be an older
// copy, in which indexes mean something else.
func (m *memory) recordRestart(name string) {
	if t := m.hubs[name]; t != nil {
		t.writeInFull = true
	}
}

// encodeHubChange is how h differs from what was told of its hub last. As long as a hub
// runs, what it holds changes only together with its modify index.
func (m *memory) encodeHubChange(h *check.Hub) (*hubChange, []body) {
	t := m.ensureHub(h.Name)
	inFull := t.writeInFull || h.Index < t.index
	t.writeInFull, t.index = false, h.Index
	d, c := *h, &hubChange{}
	d.Nodes, c.GoneNodes = t.nodes.changedSince(h.Nodes, inFull)
	d.Allocs, c.GoneAllocs = t.allocs.changedSince(h.Allocs, inFull)
	d.Evals, c.GoneEvals = t.evals.changedSince(h.Evals, inFull)
	var bodies []body
	c.hubLine, bodies = m.hubLine(&d)
	return c, bodies
}

// hubLine is a hub as it stands in the file.
func (m *memory) hubLine(h *check.Hub) (hubLine, []body) {
	allocs, bodies := m.detachJobs(h.Allocs)
	return hubLine{Hub: *h, Nodes: nodesToLines(h.Nodes), Allocs: allocs}, bodies
}

// restoreHub is the hub that a line stands for.
func (l *hubLine) restoreHub(m *memory) check.Hub {
	h := l.Hub
	h.Nodes, h.Allocs = nodesFromLines(l.Nodes), m.attachJobs(l.Allocs)
	return h
}

// changedSince returns what of now was not told as it is, and the ids of what is no more.
func (t *hubTable[K, V]) changedSince(now []V, inFull bool) (changed []V, gone []K) {
	told := t.versions
	t.versions = make(map[K]fleet.Index, len(now))
	for i := range now {
		id, index := t.versionOf(&now[i])
		t.versions[id] = index
		if last, known := told[id]; !known || last != index || inFull {
			changed = append(changed, now[i])
		}
	}
	for id := range told {
		if _, held := t.versions[id]; !held {
			gone = append(gone, id)
		}
	}
	slices.Sort(gone)
	return changed, gone
}

// applyChange returns all that the hub holds after a change, in order.
func (t *hubTable[K, V]) applyChange(changed []V, gone []K) []V {
	if t.objects == nil {
		t.objects = map[K]V{}
	}
	for i := range changed {
		id, _ := t.versionOf(&changed[i])
		t.objects[id] = changed[i]
	}
	for _, id := range gone {
		delete(t.objects, id)
	}
	var all []V
	for _, id := range slices.Sorted(maps.Keys(t.objects)) {
		all = append(all, t.objects[id])
	}
	return all
}

// applyHubChange is the hub that a change makes of what it said last.
func (m *memory) applyHubChange(c *hubChange) *check.Hub {
	h, t := c.restoreHub(m), m.ensureHub(c.Name)
	h.Nodes = t.nodes.applyChange(h.Nodes, c.GoneNodes)
	h.Allocs = t.allocs.applyChange(h.Allocs, c.GoneAllocs)
	h.Evals = t.evals.applyChange(h.Evals, c.GoneEvals)
	return &h
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
